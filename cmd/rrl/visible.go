package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"unicode/utf16"

	"github.com/goredisson/ratelimiter/internal/survey"
)

// visible returns text with all characters that are not printable escaped, as [survey.Visible] does.
func visible(text string) string { return survey.Visible(text) }

// oneLine returns the text of err as one visible line.
func oneLine(err error) string { return survey.OneLine(err) }

// encodeJSON writes v as JSON, followed by a newline. Package json does not escape all characters that a terminal may
// obey, such as U+009B. encodeJSON escapes every character that is not printable, which is the same JSON.
func encodeJSON(out io.Writer, v any) error {
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
