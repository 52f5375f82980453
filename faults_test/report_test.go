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
	found := map[string]*figures{}
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
		found[r.id] = f.figures
		table += fmt.Sprintf("| %s | %s | %s |\n", r.fault, r.promise, f.text)
	}
	if path := os.Getenv("RATELIMITER_FAULTS_TABLE"); path != "" {
		require.NoError(t, os.WriteFile(path, []byte(table), 0o644))
	} else {
		t.Log("\n" + table)
	}
	if ran == len(rows) {
		judge(t, doc, docBegin, docEnd, table, promises)
	}
	for _, b := range breaks {
		if found[b.id] == nil {
			return
		}
	}
	for _, page := range pages {
		judge(t, page.file, page.begin, docEnd, page.table(found), firstCells)
	}
}

// A page is one that shows the figures of the breakages.
type page struct {
	file, begin, header, none string
	fault                     func(b breakage) string
}

var pages = []page{
	{"../docs/outages.md", docBegin, "| what breaks | known after | a call then takes | served again after | go-redis alone | granted by policy |\n|---|---|---|---|---|---|\n",
		"no outage", func(b breakage) string { return b.fault }},
	{"../docs/zh/outages.md", "<!-- 下表由 make faults-report 写入。 -->\n", "| 什么坏了 | 多久得知 | 此后一次调用用时 | 多久后恢复 | 只用 go-redis | 由策略放行 |\n|---|---|---|---|---|---|\n",
		"不算故障", func(b breakage) string { return b.zh }},
}

func (p page) table(found map[string]*figures) string {
	table := p.header
	for i := range breaks {
		b := &breaks[i]
		table += found[b.id].row(b, p.fault(*b), p.none)
	}
	return table
}

// firstCells returns the first column of a table.
func firstCells(table string) (cells []string) {
	for line := range strings.Lines(table) {
		first, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		cells = append(cells, first)
	}
	return cells
}

// docs/reliability.md holds the table between these two lines, and docs/outages.md that of the breakages.
const (
	doc      = "../docs/reliability.md"
	docBegin = "<!-- The table is written by make faults-report. -->\n"
	docEnd   = "<!-- The end of the table. -->\n"
	header   = "| fault | promise | measured |\n|---|---|---|\n"
)

// judge fails a run of all rows whose faults and promises are not those of a page of docs: what of says of its table. The figures
// differ from run to run. With RATELIMITER_FAULTS_REPORT=write it writes the table there instead, broken promises included.
func judge(t *testing.T, file, begin, end, table string, of func(table string) []string) {
	t.Helper()
	text := redistest.Must(os.ReadFile(file))(t)
	head, rest, ok1 := strings.Cut(string(text), begin)
	old, tail, ok2 := strings.Cut(rest, end)
	require.True(t, ok1 && ok2, "%s has lost its table", file)
	if os.Getenv("RATELIMITER_FAULTS_REPORT") == "write" {
		require.NoError(t, os.WriteFile(file, []byte(head+begin+table+end+tail), 0o644))
		return
	}
	require.Equal(t, of(old), of(table), "the promises changed: make faults-report, and look at the diff of %s", file)
}

// promises returns a table without its last column.
func promises(table string) (lines []string) {
	for line := range strings.Lines(table) {
		cells := strings.Split(line, " | ")
		lines = append(lines, strings.Join(cells[:min(2, len(cells))], " | "))
	}
	return slices.Clip(lines)
}
