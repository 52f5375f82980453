package rulefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
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
	other   kind = "neither a string nor a number" // true, null, a date
)

// A node is a value of a file, YAML or JSON, and where it stands.
type node struct {
	kind   kind
	line   int
	text   string  // of a string, a number, or what it is otherwise
	keys   []*node // of a map: strings
	values []*node // of a map or a list
}

// maxDepth is how deep a file may be nested; the deepest field of a rule is at 7.
const maxDepth = 32

var yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

func parseYAML(data []byte) (*node, error) {
	d := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	if err := d.Decode(&document); err != nil {
		if err == io.EOF {
			return nil, &Error{Problem: "it is empty"}
		}
		e := &Error{Problem: err.Error()}
		if m := yamlError.FindStringSubmatch(err.Error()); m != nil {
			e.Line, _ = strconv.Atoi(m[1])
			e.Problem = m[2]
		}
		return nil, e
	}
	if err := d.Decode(&second); err != io.EOF {
		return nil, &Error{Line: second.Line, Problem: "after the first document there is more"}
	}
	if document.Kind != yaml.DocumentNode || len(document.Content) != 1 {
		return nil, &Error{Problem: "it is empty"}
	}
	return fromYAML(document.Content[0], maxDepth)
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
		switch y.ShortTag() {
		case "!!str":
			n.kind = aString
		case "!!int", "!!float":
			n.kind = aNumber
		default:
			n.kind = other
		}
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

// parseJSON does not leave JSON to the YAML parser, which reads most of it: not tabs, not every escape.
func parseJSON(data []byte) (*node, error) {
	p := &jsonParser{data: data, d: json.NewDecoder(bytes.NewReader(data))}
	p.d.UseNumber()
	n, err := p.value(maxDepth)
	if err == nil {
		if _, err = p.d.Token(); err == io.EOF {
			return n, nil
		}
		if err == nil {
			err = errors.New("after the value there is more")
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
	default:
		n.kind, n.text = other, fmt.Sprint(v)
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
