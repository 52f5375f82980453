// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// A cell is a cell of the matrix.
type cell struct {
	version, operation string
	direction          direction
	typ                string
}

// results holds the ids of the differences met, by cell, once for each time. Scenarios add to it concurrently.
type results struct {
	mu    sync.Mutex
	cells map[cell][]string
	steps *atomic.Int64

	ran     map[string]bool // versions
	written map[cell]string // what the document has
}

func (r *results) add(c cell, ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cells[c] = append(r.cells[c], ids...)
}

// compatibilityDoc holds the matrix between these two lines.
const (
	compatibilityDoc = "../docs/compatibility-matrix.md"
	matrixBegin      = "<!-- The matrix is written by make compat-report. -->\n"
	matrixEnd        = "<!-- The end of the matrix. -->\n"
)

// reportEnv is the variable that says to write the matrix, for which every version is run.
const reportEnv = "RATELIMITER_COMPAT_REPORT"

// judge fails a run that did not meet every deliberate difference, or whose table is not the one in
// docs/compatibility-matrix.md, which it takes for the versions that were not run. With RATELIMITER_COMPAT_REPORT=write it
// writes the table there instead.
func (r *results) judge(t *testing.T) {
	t.Helper()
	t.Logf("%d cells, %d steps compared", len(r.cells), r.steps.Load())
	met := map[string]bool{}
	r.ran = map[string]bool{}
	for c, ids := range r.cells {
		r.ran[c.version] = true
		for _, id := range ids {
			met[id] = true
		}
	}
	if !r.ran[allVersions[0].name] || !r.ran[newestListed().name] {
		return // -run selected some of the tests
	}
	for _, d := range deliberates {
		require.True(t, met[d.id], "no scenario met the deliberate difference %s: %s", d.id, d.title)
	}
	doc := redistest.Must(os.ReadFile(compatibilityDoc))(t)
	head, rest, ok1 := strings.Cut(string(doc), matrixBegin)
	table, tail, ok2 := strings.Cut(rest, matrixEnd)
	require.True(t, ok1 && ok2, "docs/compatibility-matrix.md has lost its matrix")
	r.written = cellsOf(table)
	if os.Getenv(reportEnv) == "write" {
		require.False(t, t.Failed())
		require.NoError(t, os.WriteFile(compatibilityDoc, []byte(head+matrixBegin+r.markdown()+matrixEnd+tail), 0o644))
		return
	}
	require.Equal(t, table, r.markdown(), "the matrix changed: make compat-report, and look at the diff")
}

// cellsOf reads what markdown has written.
func cellsOf(table string) map[cell]string {
	out, of := map[cell]string{}, cell{}
	var versions []string
	for line := range strings.Lines(table) {
		words := strings.Split(strings.Trim(line, "| \n"), " | ")
		if heading, ok := strings.CutPrefix(line, "### "); ok {
			typ, d, _ := strings.Cut(strings.TrimSpace(heading), ", ")
			of = cell{typ: typ, direction: direction(d)}
		} else if strings.HasPrefix(line, "| | ") {
			versions = words
		} else if strings.HasPrefix(line, "| ") {
			for i, v := range versions {
				of.version, of.operation = v, words[0]
				out[of] = words[i+1]
			}
		}
	}
	return out
}

// mark returns the text of a cell: the differences, or "=" if there were none.
func (r *results) mark(c cell) string {
	if !r.ran[c.version] {
		return r.written[c]
	}
	ids := map[string]bool{}
	for _, id := range r.cells[c] {
		ids[id] = true
	}
	// Some scenarios of an operation are newer than the operation. The keepAliveTime field differs in every cell of
	// old versions, and is mentioned once, below the table.
	only := len(ids) == 1 && ids[absent]
	delete(ids, absent)
	delete(ids, equal)
	delete(ids, "v-field")
	delete(ids, "v-end") // in every cell of the row
	switch {
	case only:
		return absent
	case len(ids) == 0:
		return equal
	}
	return strings.Join(slices.Sorted(maps.Keys(ids)), " ")
}

// markdown returns the matrix as tables, without dates and timings, so that a diff shows only real changes. A newest
// version that the matrix does not list is left out, because it would change the text without a change here.
func (r *results) markdown() string {
	var out strings.Builder
	var operations []string
	for _, s := range scenarios {
		if !slices.Contains(operations, s.operation) {
			operations = append(operations, s.operation)
		}
	}
	for _, typ := range []string{"OVERALL", "PER_CLIENT"} {
		for _, d := range []direction{javaToGo, goToJava} {
			fmt.Fprintf(&out, "### %s, %s\n\n| |", typ, d)
			rule := "|---|"
			for _, v := range allVersions {
				if !v.newest {
					fmt.Fprintf(&out, " %s |", v)
					rule += "---|"
				}
			}
			fmt.Fprintf(&out, "\n%s\n", rule)
			for _, operation := range operations {
				fmt.Fprintf(&out, "| %s |", operation)
				for _, v := range allVersions {
					if !v.newest {
						fmt.Fprintf(&out, " %s |", r.mark(cell{v.name, operation, d, typ}))
					}
				}
				out.WriteString("\n")
			}
			out.WriteString("\n")
		}
	}
	for _, d := range deliberates {
		if strings.HasPrefix(d.id, "v-") {
			fmt.Fprintf(&out, "- **%s** %s\n", d.id, d.title)
		}
	}
	return out.String()
}
