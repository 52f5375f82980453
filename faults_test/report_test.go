// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// A row is one fault: what happens, what is promised, and the test that makes it happen.
type row struct {
	id, fault, promise string
	run                func(f *fault)
}

// A fault is a row that runs.
type fault struct {
	*testing.T
	stalls  *stalls
	text    string
	figures *figures // of a breakage
}

// measured records what the row found, for the table. A row calls it before it judges, so that a broken promise
// is printed with its figure.
func (f *fault) measured(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	f.Log(f.text)
}

// TestFaults runs the rows one after another, because some of them measure time, and closes with the table.
func TestFaults(t *testing.T) {
	ran, table := 0, header
	for _, r := range rows {
		f := &fault{}
		kept := t.Run(r.id, func(t *testing.T) {
			f.T, f.stalls = t, watchStalls(t)
			r.run(f)
			if f.text == "" {
				t.Error("the row has measured nothing")
			}
		})
		if f.T == nil {
			continue // -run has selected others
		}
		ran++
		switch {
		case f.Skipped():
			t.Errorf("%s did not run", r.id)
			f.text = "**not run**"
		case !kept:
			f.text = strings.TrimSpace("**broken** " + f.text)
		}
		table += fmt.Sprintf("| %s | %s | %s |\n", r.fault, r.promise, f.text)
	}
	if path := os.Getenv("RATELIMITER_FAULTS_TABLE"); path != "" {
		require.NoError(t, os.WriteFile(path, []byte(table), 0o644))
	} else {
		t.Log("\n" + table)
	}
	if ran == len(rows) {
		judge(t, table)
	}
}

// docs/reliability.md holds the table between these two lines.
const (
	doc      = "../docs/reliability.md"
	docBegin = "<!-- The table is written by make faults-report. -->\n"
	docEnd   = "<!-- The end of the table. -->\n"
	header   = "| fault | promise | measured |\n|---|---|---|\n"
)

// judge fails a run of all rows whose faults and promises are not those of docs/reliability.md. The figures differ
// from run to run. With RATELIMITER_FAULTS_REPORT=write it writes the table there instead, broken promises included.
func judge(t *testing.T, table string) {
	t.Helper()
	text := redistest.Must(os.ReadFile(doc))(t)
	head, rest, ok1 := strings.Cut(string(text), docBegin)
	old, tail, ok2 := strings.Cut(rest, docEnd)
	require.True(t, ok1 && ok2, "docs/reliability.md has lost its table")
	if os.Getenv("RATELIMITER_FAULTS_REPORT") == "write" {
		require.NoError(t, os.WriteFile(doc, []byte(head+docBegin+table+docEnd+tail), 0o644))
		return
	}
	require.Equal(t, promises(old), promises(table), "the promises changed: make faults-report, and look at the diff")
}

// promises returns a table without its last column.
func promises(table string) (lines []string) {
	for line := range strings.Lines(table) {
		cells := strings.Split(line, " | ")
		lines = append(lines, strings.Join(cells[:min(2, len(cells))], " | "))
	}
	return slices.Clip(lines)
}
