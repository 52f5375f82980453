package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// visible returns text with all characters that are not printable, such as the control characters that a terminal would
// obey, replaced by Go's escapes, as in \x1b. Use it for everything that others can choose: names, numbers in requests,
// fields of a hash in Redis, errors of servers.
func visible(text string) string {
	printable := func(r rune) bool { return strconv.IsPrint(r) }
	if utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !printable(r) }) < 0 {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case printable(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[size:]
	}
	return b.String()
}

// oneLine returns the text of err as one visible line.
func oneLine(err error) string { return visible(strings.Join(strings.Fields(err.Error()), " ")) }

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
