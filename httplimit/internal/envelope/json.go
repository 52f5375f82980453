// SPDX-License-Identifier: Apache-2.0

package envelope

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
)

// An Object is what is known of a body that is a JSON object (RFC 8259): the members of the outermost
// object. Of nested values it knows only that they are there, so that a field of a platform's payload
// is never taken for a field of its envelope.
//
// A string's text is its content, a number's is how it is written. Platforms write the same code as 90018
// and as "90018"; what is written otherwise (90018.0, 9.0018e4) is nobody's code, and comparing text
// spares the question how large a number may be.
type Object struct {
	members map[string]member
	twice   bool // a key stood twice: parsers differ in which of the two counts
}

// A member is the value of one key.
type member struct {
	kind byte // '"' a string, '0' a number, 't' true or false, 0 anything else
	text string
}

// Text is the content of a member that is a string or a number, otherwise empty.
func (o *Object) Text(key string) string { return o.members[key].text }

// Str is the content of a member that is a string, otherwise empty.
func (o *Object) Str(key string) string {
	if m := o.members[key]; m.kind == '"' {
		return m.text
	}
	return ""
}

// Number is how a member that is a number is written, otherwise empty.
func (o *Object) Number(key string) string {
	if m := o.members[key]; m.kind == '0' {
		return m.text
	}
	return ""
}

// Only reports whether the object has no members but those of the names, each once, and each a string or
// a number or a boolean.
func (o *Object) Only(names ...string) bool {
	for key, m := range o.members {
		if m.kind == 0 || !slices.Contains(names, key) {
			return false
		}
	}
	return !o.twice && len(o.members) > 0
}

// Has reports whether the object has a member of that name.
func (o *Object) Has(key string) bool {
	_, ok := o.members[key]
	return ok
}

// Len returns the number of members.
func (o *Object) Len() int { return len(o.members) }

// ObjectOf returns the object of the body of response, an *httplimit.Response, which parses it once for all
// detectors. Package httplimit sets it: the field is its own.
var ObjectOf func(response any) *Object

// ParseObject reads the members of the object that body is, or starts with when it is not complete.
//
// Of a body that was cut off it keeps what lies before the cut: the deciding fields come first, as a
// rule. A number that touches the cut is left out, since 90018 may be the start of 900181. A complete
// body must be one object and nothing else; a body with a syntax error is no object, wherever the error
// lies before the cut. Of a key that comes twice the last one counts, as in most parsers.
func ParseObject(body []byte, complete bool) *Object {
	none := &Object{}
	body = bytes.TrimPrefix(body, []byte("\ufeff")) // RFC 8259 §8.1 lets a parser ignore it
	if start := bytes.TrimLeft(body, " \t\r\n"); len(start) == 0 || start[0] != '{' {
		return none
	}
	o := &Object{members: map[string]member{}}
	d := json.NewDecoder(bytes.NewReader(body))
	cut := func(err error) *Object {
		if !complete && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
			return o
		}
		return none
	}
	if _, err := d.Token(); err != nil {
		return cut(err)
	}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return cut(err)
		}
		key, ok := token.(string)
		if !ok {
			return none
		}
		var value json.RawMessage // a nested value is skipped in one step, not token by token
		if err := d.Decode(&value); err != nil {
			return cut(err)
		}
		if !complete && d.InputOffset() == int64(len(body)) && value[0] != '"' {
			return o
		}
		o.set(key, value)
	}
	if _, err := d.Token(); err != nil { // the closing brace
		return cut(err)
	}
	if _, err := d.Token(); complete && !errors.Is(err, io.EOF) {
		return none
	}
	return o
}

func (o *Object) set(key string, value json.RawMessage) {
	if _, ok := o.members[key]; ok {
		o.twice = true
	}
	m := member{}
	switch c := value[0]; {
	case c == '"':
		var s string
		if json.Unmarshal(value, &s) == nil {
			m = member{'"', s}
		}
	case c == '-' || '0' <= c && c <= '9':
		m = member{'0', string(value)}
	case c == 't' || c == 'f':
		m = member{kind: 't'}
	}
	o.members[key] = m
}

// IsDigits reports whether s is 1*DIGIT.
func IsDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
