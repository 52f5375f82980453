// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/term"
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

// widthOf returns how many cells of a terminal text takes. It does not know of combining characters of all kinds.
func widthOf(text string) (n int) {
	for _, r := range text {
		switch {
		case unicode.Is(unicode.Mn, r):
		case r >= 0x1100 && (r <= 0x115f || r >= 0x2e80 && r <= 0xa4cf || r >= 0xac00 && r <= 0xd7a3 || r >= 0xf900 && r <= 0xfaff ||
			r >= 0xfe30 && r <= 0xfe6f || r >= 0xff00 && r <= 0xff60 || r >= 0xffe0 && r <= 0xffe6 || r >= 0x1f300 && r <= 0x1faff || r >= 0x20000 && r <= 0x3fffd):
			n += 2
		default:
			n++
		}
	}
	return n
}

// cut returns text in at most width cells, with an ellipsis if something was cut.
func cut(text string, width int) string {
	if width <= 0 || len(text) <= width || widthOf(text) <= width {
		return text
	}
	n := 0
	for i, r := range text {
		w := widthOf(string(r))
		if n+w > width-1 {
			return text[:i] + "…"
		}
		n += w
	}
	return text
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
		shown[i], widths[i] = true, widthOf(c.head)
		for _, row := range t.rows {
			widths[i] = max(widths[i], widthOf(row[i]))
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
			pad := strings.Repeat(" ", max(0, widths[i]-widthOf(cell)))
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

// terminalWidth returns how many cells a line of out has, or 0 if out is no terminal or does not tell.
func terminalWidth(out io.Writer) int {
	columns, _ := terminalSize(out)
	return columns
}

// terminalHeight returns how many lines out has, or 0 if it is no terminal or does not tell.
func terminalHeight(out io.Writer) int {
	_, rows := terminalSize(out)
	return rows
}

func terminalSize(out io.Writer) (columns, rows int) {
	if f, ok := out.(*os.File); ok && term.Is(out) {
		columns, rows = windowSize(f)
	}
	for name, to := range map[string]*int{"COLUMNS": &columns, "LINES": &rows} {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
			*to = n
		}
	}
	return columns, rows
}
