// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"strings"

	"github.com/rivo/uniseg"
)

// A column is one of a table. If a terminal is too narrow, columns are left out, those with the highest drop first,
// and then the first column is cut.
type column struct {
	head  string
	right bool
	drop  int // 0 for never
}

// A table is rows of text in columns.
type table struct {
	columns []column
	rows    [][]string
}

// longestCell is how many cells of a terminal a text in a table takes at most. Without a limit one name of a megabyte would make
// every row a megabyte.
const longestCell = 120

func (t *table) add(cells ...string) {
	for i, c := range cells {
		cells[i] = cut(c, longestCell)
	}
	t.rows = append(t.rows, cells)
}

// cut returns text in at most width cells, with an ellipsis if something was cut. What a terminal shows as one character stays
// whole.
func cut(text string, width int) string {
	if width <= 0 || len(text) <= width || uniseg.StringWidth(text) <= width {
		return text
	}
	n, state := 0, -1
	for rest := text; ; {
		_, left, w, next := uniseg.FirstGraphemeClusterInString(rest, state)
		if n+w > width-1 {
			return text[:len(text)-len(rest)] + "…"
		}
		n, rest, state = n+w, left, next
	}
}

const (
	columnGap   = 2
	leastColumn = 12 // cells of the first column when it is cut
)

// write writes the table in at most width cells a line; 0 for as many as it takes.
func (t *table) write(out io.Writer, width int) error {
	widths := make([]int, len(t.columns))
	shown := make([]bool, len(t.columns))
	for i, c := range t.columns {
		shown[i], widths[i] = true, uniseg.StringWidth(c.head)
		for _, row := range t.rows {
			widths[i] = max(widths[i], uniseg.StringWidth(row[i]))
		}
	}
	total := func() int {
		n := -columnGap
		for i, w := range widths {
			if shown[i] {
				n += w + columnGap
			}
		}
		return n
	}
	// The first column may shrink to half a line before others go.
	if width > 0 {
		for total() > width {
			if over := total() - width; widths[0]-over >= max(leastColumn, width/3) {
				widths[0] -= over
				break
			}
			worst := -1
			for i, c := range t.columns {
				if shown[i] && c.drop > 0 && (worst < 0 || c.drop > t.columns[worst].drop) {
					worst = i
				}
			}
			if worst < 0 {
				widths[0] = max(leastColumn, widths[0]-(total()-width))
				break
			}
			shown[worst] = false
		}
	}
	var b strings.Builder
	line := func(cells []string) {
		var l strings.Builder
		first := true
		for i, cell := range cells {
			if !shown[i] {
				continue
			}
			if !first {
				l.WriteString(strings.Repeat(" ", columnGap))
			}
			first = false
			cell = cut(cell, widths[i])
			pad := strings.Repeat(" ", max(0, widths[i]-uniseg.StringWidth(cell)))
			if t.columns[i].right {
				l.WriteString(pad + cell)
			} else {
				l.WriteString(cell + pad)
			}
		}
		b.WriteString(strings.TrimRight(l.String(), " ") + "\n")
	}
	heads := make([]string, len(t.columns))
	for i, c := range t.columns {
		heads[i] = c.head
	}
	line(heads)
	for _, row := range t.rows {
		line(row)
	}
	_, err := io.WriteString(out, b.String())
	return err
}
