package httplimit

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
)

// An object is what is known of a body that is a JSON object (RFC 8259): the members of the outermost
// object whose values are strings or numbers. Members of nested objects are not among them, so that a
// field of a platform's payload is never taken for the field of its envelope.
//
// A string's member is its content, a number's is how it is written. Platforms write the same code as 90018
// and as "90018"; what is written otherwise (90018.0, 9.0018e4) is nobody's code, and comparing text
// spares the question how large a number may be.
type object map[string]string

// json is the body's outermost object, empty when it has none.
func (r *Response) json() object {
	if r.object == nil {
		r.object = parseObject(r.Body, r.Complete)
	}
	return r.object
}

// parseObject reads the members of the object that body is, or starts with when it is not complete.
//
// Of a body that was cut off it keeps what lies before the cut: the deciding fields come first, as a
// rule. A number that touches the cut is left out, since 90018 may be the start of 900181. A complete
// body must be one object and nothing else; a body with a syntax error is no object, wherever the error
// lies before the cut. Of a key that comes twice the last one counts, as in most parsers.
func parseObject(body []byte, complete bool) object {
	none := object{}
	body = bytes.TrimPrefix(body, []byte("\ufeff")) // RFC 8259 §8.1 lets a parser ignore it
	if start := bytes.TrimLeft(body, " \t\r\n"); len(start) == 0 || start[0] != '{' {
		return none
	}
	o := object{}
	d := json.NewDecoder(bytes.NewReader(body))
	cut := func(err error) object {
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

func (o object) set(key string, value json.RawMessage) {
	delete(o, key)
	switch c := value[0]; {
	case c == '"':
		var s string
		if json.Unmarshal(value, &s) == nil {
			o[key] = s
		}
	case c == '-' || '0' <= c && c <= '9':
		o[key] = string(value)
	}
}

// isDigits says whether s is 1*DIGIT.
func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
