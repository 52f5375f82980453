// SPDX-License-Identifier: Apache-2.0

// Package stream reads the JSON of a response while it passes, in constant memory: as one text, as one after the other, or as
// the data of server-sent events.
package stream

import (
	"bufio"
	"io"
	"strings"
)

// done is the data by which OpenAI, and those that answer as it does, end a stream of events.
const done = "[DONE]"

// A Reader reads the documents of a body: the data of each event, or each JSON text.
type Reader struct {
	paths   *Paths
	scanner scanner
	events  *events // nil for JSON
	err     error
}

// NewReader returns a Reader that tells the values at the paths. It takes the body for events if that is its media type
// or if it begins with a field of one; for JSON if it begins with an object or an array; and otherwise reads nothing.
func NewReader(body io.Reader, mediaType string, paths *Paths) *Reader {
	b := bufio.NewReader(body)
	r := &Reader{paths: paths, scanner: scanner{r: b}}
	if bom, _ := b.Peek(3); string(bom) == "\ufeff" {
		_, _ = b.Discard(len(bom))
	}
	c, err := firstByte(b)
	switch {
	case err != nil:
		r.err = err
	case mediaType == "text/event-stream":
		r.events = &events{r: b}
	case c == '{' || c == '[':
	case beginsEvent(b):
		r.events = &events{r: b}
	default:
		r.err = errSyntax
	}
	return r
}

// firstByte skips white space, and returns what follows without reading it.
func firstByte(b *bufio.Reader) (byte, error) {
	for {
		c, err := b.Peek(1)
		if err != nil {
			return 0, err
		}
		if strings.IndexByte(" \t\r\n", c[0]) < 0 {
			return c[0], nil
		}
		_, _ = b.Discard(1)
	}
}

func beginsEvent(b *bufio.Reader) bool {
	for _, field := range []string{":", "id:", "data:", "event:", "retry:"} {
		if start, _ := b.Peek(len(field)); string(start) == field {
			return true
		}
	}
	return false
}

// Events reports whether the body is a stream of events.
func (r *Reader) Events() bool { return r.events != nil }

// Next reads the next document and calls found for each of its values that a path leads to, a string with its quotation marks.
// It reports whether it has read all of it: what was found in a document that is cut off or malformed does not count. Of the event that
// ends a stream of OpenAI it calls found with an empty path; an event that holds no object is passed over. The error is the one
// that ended the body where no document was left, io.EOF at its end.
func (r *Reader) Next(found func(path, value string)) (whole bool, err error) {
	r.scanner.found = found
	for r.err == nil {
		if r.events == nil {
			c, err := r.scanner.token()
			if r.err = err; err == nil {
				r.err = within(r.scanner.rest(c, r.paths))
				return r.err == nil, nil
			}
			break
		}
		if r.err = r.events.next(); r.err != nil {
			break
		}
		r.scanner.r, r.scanner.has = r.events, false
		switch err := r.scanner.value(r.paths); {
		case err == nil:
			return true, nil
		case r.isDone():
			found("", done)
			return true, nil
		case strings.HasPrefix(strings.TrimLeft(string(r.events.start), " \t\n"), "{"):
			return false, nil
		}
	}
	return false, r.err
}

// isDone reports whether the event is the one that ends a stream of OpenAI.
func (r *Reader) isDone() bool {
	for len(r.events.start) < len(done) {
		if _, err := r.events.ReadByte(); err != nil {
			return false
		}
	}
	return string(r.events.start) == done
}
