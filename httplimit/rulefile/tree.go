// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A kind is what a node is.
type kind string

const (
	aMap    kind = "a mapping"
	aList   kind = "a list"
	aString kind = "a string"
	aNumber kind = "a number"
	aBool   kind = "a boolean"
	aNull   kind = "null"
	aDate   kind = "a date"
	other   kind = "of another type"
)

// kinds are the kinds of the scalars of YAML, by their tags.
var kinds = map[string]kind{"!!str": aString, "!!int": aNumber, "!!float": aNumber, "!!bool": aBool, "!!null": aNull, "!!timestamp": aDate}

// A node is a value of a YAML or JSON file, and its position.
type node struct {
	kind   kind
	line   int
	text   string  // of a string, a number, or what it is otherwise
	keys   []*node // of a map: strings
	values []*node // of a map or a list
}

// maxDepth is how deeply a file may be nested; the deepest field of a rule is at depth 7.
const maxDepth = 32

var yamlError = regexp.MustCompile(`^yaml: (?:line \d+: )?(.*)$`)

func parseYAML(data []byte) (*node, error) {
	d := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	if err := d.Decode(&document); err != nil {
		if err == io.EOF {
			return nil, &Error{Problem: "it is empty"}
		}
		return nil, &Error{Line: lineOf(data, err), Problem: problem(err)}
	}
	if err := d.Decode(&second); err != io.EOF {
		return nil, &Error{Line: second.Line, Problem: "after the first document there is more"}
	}
	if document.Kind != yaml.DocumentNode || len(document.Content) != 1 {
		return nil, &Error{Problem: "it is empty"}
	}
	return fromYAML(document.Content[0], maxDepth)
}

// problem returns the text of an error of the YAML parser, without the line that it names.
func problem(err error) string {
	if m := yamlError.FindStringSubmatch(err.Error()); m != nil {
		return m[1]
	}
	return err.Error()
}

// lineOf returns the line of an error of the YAML parser, or 0 if it would take too long to find. The parser never names the
// line of a wrong character. For other errors it often names the line at which the mapping or the list around them begins,
// counted from 0 or from 1.
func lineOf(data []byte, err error) int {
	for i, line := range bytes.Split(data, []byte("\n")) {
		if bytes.ContainsFunc(line, isControl) {
			return i + 1
		}
	}
	s := search{problem: problem(err)}
	return s.line(bytes.SplitAfter(data, []byte("\n")))
}

// A search looks for the first line such that the file up to there has a problem.
type search struct {
	problem string
	parsed  int // bytes
}

const (
	// pieceSize is the size of a part of a long list of rules that is parsed by itself.
	pieceSize = 32 << 10
	// maxParsed bounds what a search parses, some 300 ns a byte.
	maxParsed = 4 * maxSize
)

// has reports whether a file has the problem.
func (s *search) has(file []byte) bool {
	s.parsed += len(file)
	var document yaml.Node
	err := yaml.Unmarshal(file, &document)
	return err != nil && problem(err) == s.problem
}

// line returns the line, counted from 1, or 0. In a long file it first looks for the piece of the list of rules that has the
// problem, because each of the prefixes of the file would be parsed from its beginning.
func (s *search) line(lines [][]byte) int {
	first := slices.IndexFunc(lines, func(line []byte) bool { return listItem.Match(line) })
	if first < 0 {
		return s.prefix(lines)
	}
	mark := listItem.Find(lines[first])
	for from := first; from < len(lines); {
		to, size := from, 0
		for ; to < len(lines) && (size < pieceSize || !bytes.HasPrefix(lines[to], mark)); to++ {
			size += len(lines[to])
		}
		if from == first && to == len(lines) {
			break // it is all one piece
		}
		if piece := slices.Concat(lines[:first], lines[from:to]); s.has(bytes.Join(piece, nil)) {
			n := s.prefix(piece)
			if n > first {
				n += from - first
			}
			return n
		}
		from = to
	}
	return s.prefix(lines)
}

// listItem is the beginning of an item of a block list.
var listItem = regexp.MustCompile(`^ *- `)

// prefix returns the line of the problem that the lines have together.
func (s *search) prefix(lines [][]byte) int {
	has := func(n int) bool { return s.has(bytes.Join(lines[:n], nil)) }
	for without := 0; ; {
		with := len(lines)
		for with-without > 1 {
			if s.parsed > maxParsed {
				return 0
			}
			if middle := (without + with) / 2; has(middle) {
				with = middle
			} else {
				without = middle
			}
		}
		// The file up to there may end within a list over several lines, which has an error only because its end is
		// missing.
		right := 0
		for step := 1; with+step < len(lines) && right == 0; step *= 2 {
			if !has(with + step) {
				right = with + step
			}
		}
		if right == 0 {
			return with
		}
		without = right
	}
}

// isControl reports whether YAML does not allow the character.
func isControl(c rune) bool {
	return c < ' ' && c != '\t' && c != '\r' || 0x7f <= c && c < 0xa0 && c != 0x85 || c == 0xfffe || c == 0xffff
}

func fromYAML(y *yaml.Node, depth int) (*node, error) {
	n := &node{line: y.Line, text: y.Value}
	fail := func(what string) error { return &Error{Line: y.Line, Problem: what} }
	switch {
	case depth == 0:
		return nil, fail("it is nested too deep")
	case y.Kind == yaml.AliasNode || y.Anchor != "":
		// Some hundred bytes of aliases can stand for gigabytes.
		return nil, fail("anchors and aliases are not read here")
	case y.Style&yaml.TaggedStyle != 0:
		return nil, fail(fmt.Sprintf("tags are not read here: %.40s", y.Tag))
	}
	switch y.Kind {
	case yaml.MappingNode:
		n.kind = aMap
	case yaml.SequenceNode:
		n.kind = aList
	default:
		n.kind = cmp.Or(kinds[y.ShortTag()], other)
		return n, nil
	}
	for i, c := range y.Content {
		child, err := fromYAML(c, depth-1)
		if err != nil {
			return nil, err
		}
		if n.kind == aList || i%2 == 1 {
			n.values = append(n.values, child)
			continue
		}
		if child.kind != aString {
			return nil, &Error{Line: child.line, Problem: fmt.Sprintf("the name of a field is %s", child.kind)}
		}
		n.keys = append(n.keys, child)
	}
	return n, nil
}

// parseJSON parses JSON itself, because the YAML parser does not read all of JSON, such as tabs and some escapes.
func parseJSON(data []byte) (*node, error) {
	p := &jsonParser{data: data, d: json.NewDecoder(bytes.NewReader(data))}
	p.d.UseNumber()
	n, err := p.value(maxDepth)
	if err == nil {
		if _, err = p.d.Token(); err == io.EOF {
			return n, nil
		}
		if err == nil {
			err = errors.New("trailing data")
		}
	}
	var known *Error
	if errors.As(err, &known) {
		return nil, known
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return nil, &Error{Line: p.line(), Problem: strings.TrimPrefix(err.Error(), "json: ")}
}

type jsonParser struct {
	data []byte
	d    *json.Decoder
	seen int64 // how far lines were counted
	at   int
}

// line returns the line of the token that was read last.
func (p *jsonParser) line() int {
	end := p.d.InputOffset()
	p.at += bytes.Count(p.data[p.seen:end], []byte("\n"))
	p.seen = end
	return p.at + 1
}

func (p *jsonParser) value(depth int) (*node, error) {
	token, err := p.d.Token()
	if err != nil {
		return nil, err
	}
	n := &node{line: p.line()}
	if depth == 0 {
		return nil, &Error{Line: n.line, Problem: "it is nested too deep"}
	}
	switch v := token.(type) {
	case string:
		n.kind, n.text = aString, v
		return n, nil
	case json.Number:
		n.kind, n.text = aNumber, v.String()
		return n, nil
	case json.Delim:
		n.kind = aList
		if v == '{' {
			n.kind = aMap
		}
	case bool:
		n.kind, n.text = aBool, fmt.Sprint(v)
		return n, nil
	default:
		n.kind = aNull
		return n, nil
	}
	for p.d.More() {
		if n.kind == aMap {
			name, err := p.value(depth - 1) // a string, as the decoder sees to
			if err != nil {
				return nil, err
			}
			n.keys = append(n.keys, name)
		}
		child, err := p.value(depth - 1)
		if err != nil {
			return nil, err
		}
		n.values = append(n.values, child)
	}
	_, err = p.d.Token() // its end
	return n, err
}
