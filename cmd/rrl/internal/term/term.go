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
)

// Is reports whether f is a terminal that understands the sequences of a VT100.
func Is(f io.Writer) bool {
	file, ok := f.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
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
