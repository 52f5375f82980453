// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
)

// The bounds of what is kept of a JSON text. A longer name is none of the [Paths], a longer value is not told, and a deeper text
// is not read.
const (
	maxName  = 256
	maxValue = 64
	maxDepth = 10_000 // as in encoding/json
)

var (
	errSyntax = errors.New("the JSON is malformed")
	errDepth  = errors.New("the JSON is nested more than 10,000 deep")
)

// Paths are the places of a JSON text whose values are told, such as usage.total_tokens. A # is each element of an array.
type Paths struct {
	path  string // "" unless the value here is told
	below map[string]*Paths
	each  *Paths
}

// NewPaths returns the Paths of the list.
func NewPaths(list ...string) *Paths {
	root := &Paths{}
	for _, path := range list {
		at := root
		for name := range strings.SplitSeq(path, ".") {
			at = at.to(name)
		}
		at.path = path
	}
	return root
}

// to returns what is below, at a name or at #.
func (at *Paths) to(name string) *Paths {
	switch {
	case name == "#" && at.each == nil:
		at.each = &Paths{}
	case name == "#":
	case at.below == nil:
		at.below = map[string]*Paths{name: {}}
	case at.below[name] == nil:
		at.below[name] = &Paths{}
	}
	if name == "#" {
		return at.each
	}
	return at.below[name]
}

// A scanner reads JSON texts (RFC 8259) byte by byte. It keeps the name and the value it reads, and the brackets around it, and
// nothing else: a string of megabytes passes. What no path leads to is skipped: only its strings and brackets are looked at.
type scanner struct {
	r     io.ByteReader
	found func(path, value string) // a string with its quotation marks
	kept  []byte                   // of the name or value that is read
	open  []byte                   // the brackets of a value that is skipped
	back  byte                     // a byte that was read too far
	has   bool                     // there is one
}

// value reads the next value. It returns io.EOF where there is none, and io.ErrUnexpectedEOF where it is cut off.
func (s *scanner) value(paths *Paths) error {
	c, err := s.token()
	if err != nil {
		return err
	}
	if err := s.rest(c, paths); err != nil {
		return within(err)
	}
	return nil
}

// within returns the error of an end within a value.
func within(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// rest reads a value of which c is the first byte. It calls itself no deeper than the paths go.
func (s *scanner) rest(c byte, at *Paths) error {
	told := at != nil && at.path != ""
	switch {
	case c == '{' && at != nil && at.below != nil:
		return s.object(at)
	case c == '[' && at != nil && at.each != nil:
		return s.array(at.each)
	case c == '{' || c == '[':
		return s.skip(c)
	case c == '"':
		fits, err := s.text(maxValue)
		if err == nil && told && fits {
			s.found(at.path, `"`+string(s.kept)+`"`)
		}
		return err
	}
	return s.literal(c, at, told)
}

// object reads the members of an object.
func (s *scanner) object(at *Paths) error {
	c, err := s.token()
	for first := true; err == nil; first = false {
		if first && c == '}' {
			return nil
		}
		if c != '"' {
			return errSyntax
		}
		name, err := s.name()
		if err != nil {
			return err
		}
		if c, err = s.token(); err != nil || c != ':' {
			return orSyntax(err)
		}
		if c, err = s.token(); err != nil {
			return err
		}
		if err = s.rest(c, at.below[name]); err != nil {
			return err
		}
		if c, err = s.token(); err != nil || c == '}' {
			return err
		}
		if c != ',' {
			return errSyntax
		}
		if c, err = s.token(); err != nil {
			return err
		}
	}
	return err
}

// array reads the elements of an array.
func (s *scanner) array(element *Paths) error {
	c, err := s.token()
	for first := true; err == nil; first = false {
		if first && c == ']' {
			return nil
		}
		if err = s.rest(c, element); err != nil {
			return err
		}
		if c, err = s.token(); err != nil || c == ']' {
			return err
		}
		if c != ',' {
			return errSyntax
		}
		c, err = s.token()
	}
	return err
}

func orSyntax(err error) error {
	if err != nil {
		return err
	}
	return errSyntax
}

// skip reads the rest of an object or an array, of which c is the first byte.
func (s *scanner) skip(c byte) error {
	s.open = append(s.open[:0], c)
	for len(s.open) > 0 {
		c, err := s.token()
		if err != nil {
			return err
		}
		switch c {
		case '"':
			if _, err := s.text(0); err != nil {
				return err
			}
		case '{', '[':
			if s.open = append(s.open, c); len(s.open) > maxDepth {
				return errDepth
			}
		case '}', ']':
			if s.open[len(s.open)-1] != c-2 { // as far apart in ASCII
				return errSyntax
			}
			s.open = s.open[:len(s.open)-1]
		}
	}
	return nil
}

// name returns the name of a member, or "" if it is longer than any that is looked for.
func (s *scanner) name() (string, error) {
	fits, err := s.text(maxName)
	if err != nil || !fits {
		return "", err
	}
	if !slices.Contains(s.kept, '\\') {
		return string(s.kept), nil
	}
	var name string
	if json.Unmarshal([]byte(`"`+string(s.kept)+`"`), &name) != nil {
		return "", errSyntax
	}
	return name, nil
}

// text reads the rest of a string and keeps it as it is written, if it has no more than most bytes.
func (s *scanner) text(most int) (fits bool, err error) {
	s.kept = s.kept[:0]
	fits = true
	for escaped := false; ; {
		c, err := s.r.ReadByte()
		if err != nil {
			return false, err
		}
		if c == '"' && !escaped {
			return fits, nil
		}
		escaped = c == '\\' && !escaped
		if fits = fits && len(s.kept) < most; fits {
			s.kept = append(s.kept, c)
		}
	}
}

// literal reads the rest of a number, or of true, false or null.
func (s *scanner) literal(c byte, at *Paths, told bool) error {
	if c != '-' && (c < '0' || c > '9') && c != 't' && c != 'f' && c != 'n' {
		return errSyntax
	}
	s.kept = append(s.kept[:0], c)
	for {
		c, err := s.r.ReadByte()
		if err == nil && strings.IndexByte(" \t\r\n,]}", c) < 0 {
			if len(s.kept) <= maxValue {
				s.kept = append(s.kept, c)
			}
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err // a number that is cut off is another number
		}
		s.back, s.has = c, err == nil
		if told && len(s.kept) <= maxValue {
			s.found(at.path, string(s.kept))
		}
		return nil
	}
}

// token returns the next byte that is not white space.
func (s *scanner) token() (byte, error) {
	for {
		c, err := s.back, error(nil)
		if !s.has {
			c, err = s.r.ReadByte()
		}
		s.has = false
		if err != nil || c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return c, err
		}
	}
}
