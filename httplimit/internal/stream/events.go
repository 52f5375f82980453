// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"bufio"
	"errors"
	"io"
)

// An events reads the data of a stream of server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html),
// one event after the other.
type events struct {
	r       *bufio.Reader
	cr      bool   // the last byte was a carriage return, and a line feed belongs to it
	inData  bool   // within a line of data
	started bool   // the event has had a line of data
	start   []byte // of the event's data
	err     error  // that ended the stream
}

// next goes on to the next event that has data. It returns the error that ends the stream, which is io.EOF at its end.
func (e *events) next() error {
	for e.started { // the rest of the last one
		_, err := e.ReadByte()
		e.started = err == nil
	}
	e.start = e.start[:0]
	for e.err == nil {
		if data, _ := e.line(); data {
			e.inData, e.started = true, true
			return nil
		}
	}
	return e.err
}

// ReadByte returns the next byte of the event's data, and io.EOF at its end.
func (e *events) ReadByte() (byte, error) {
	if !e.started {
		return 0, io.EOF
	}
	if e.inData {
		c, eol, err := e.raw()
		if err != nil {
			return 0, err
		}
		if !eol {
			return e.keep(c), nil
		}
		e.inData = false
	}
	for {
		data, blank := e.line()
		switch {
		case data:
			e.inData = true
			return e.keep('\n'), nil
		case e.err != nil && !errors.Is(e.err, io.EOF):
			return 0, e.err
		case blank, e.err != nil: // the last event may lack its blank line
			e.started = false
			return 0, io.EOF
		}
	}
}

func (e *events) keep(c byte) byte {
	if len(e.start) <= len(done) {
		e.start = append(e.start, c)
	}
	return c
}

// line reads the name of a line's field: data, whose value follows, or the whole line of any other. It reports whether it is a
// blank line, which ends an event.
func (e *events) line() (data, blank bool) {
	name := make([]byte, 0, 5)
	for n := 0; ; n++ {
		c, eol, err := e.raw()
		if err != nil {
			return false, false
		}
		if !eol && c != ':' {
			if len(name) < cap(name) {
				name = append(name, c)
			}
			continue
		}
		data = n == 4 && string(name) == "data"
		switch {
		case eol:
			return false, n == 0 // a field without a colon has no value
		case !data:
			e.skipLine()
			return false, false
		}
		if b, err := e.r.Peek(1); err == nil && b[0] == ' ' {
			_, _, _ = e.raw() // one space belongs to the colon
		}
		return true, false
	}
}

func (e *events) skipLine() {
	for {
		if _, eol, err := e.raw(); eol || err != nil {
			return
		}
	}
}

// raw returns the next byte of the stream, or that a line ended: by CR, LF, or both.
func (e *events) raw() (c byte, eol bool, err error) {
	if e.err != nil {
		return 0, false, e.err
	}
	c, err = e.r.ReadByte()
	if err == nil && e.cr && c == '\n' {
		c, err = e.r.ReadByte()
	}
	e.cr = err == nil && c == '\r'
	e.err = err
	return c, c == '\n' || c == '\r', err
}
