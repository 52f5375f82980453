// SPDX-License-Identifier: Apache-2.0

// Package term writes to terminals text that cannot command them.
package term

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"unicode/utf16"

	"golang.org/x/term"
)

// Is reports whether f is a terminal that understands the sequences of a VT100.
func Is(f io.Writer) bool {
	file, ok := f.(*os.File)
	return ok && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(file.Fd()))
}

// Width returns how many cells a line of out has: COLUMNS if that is set, and 0 if out is no terminal or does not tell.
func Width(out io.Writer) int {
	return size(out, "COLUMNS", func(columns, _ int) int { return columns })
}

// Height returns how many lines out has: LINES if that is set, and 0 if out is no terminal or does not tell.
func Height(out io.Writer) int { return size(out, "LINES", func(_, lines int) int { return lines }) }

func size(out io.Writer, variable string, of func(columns, lines int) int) int {
	if n, err := strconv.Atoi(os.Getenv(variable)); err == nil && n > 0 {
		return n
	}
	if !Is(out) {
		return 0
	}
	columns, lines, err := term.GetSize(int(out.(*os.File).Fd()))
	if err != nil {
		return 0
	}
	return of(columns, lines)
}

// EncodeJSON writes v as JSON, followed by a newline. Package json does not escape all characters that a terminal may
// obey, such as U+009B. EncodeJSON escapes every character that is not printable, which is the same JSON.
func EncodeJSON(out io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var line bytes.Buffer
	for _, r := range string(text) {
		switch {
		case strconv.IsPrint(r):
			line.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&line, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&line, `\u%04x`, r)
		}
	}
	line.WriteByte('\n')
	_, err = out.Write(line.Bytes())
	return err
}
