// SPDX-License-Identifier: Apache-2.0

package envelope

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// JSONTexts returns a function that returns the texts of the values at a path of a body, such as "error.code": a string's
// content, or a number or boolean as it is written. A * in the path stands for each element of a list or member of an
// object, as in "errors.*.type"; the texts of a list are in its order, those of an object in the order of its names. Of a body that is not complete, or no JSON, it finds nothing.
func JSONTexts(body []byte, complete bool) func(path string) []string {
	root := parseJSON(body, complete)
	return func(path string) []string { return texts(root, strings.Split(path, "."), nil) }
}

// CheckPath returns what is wrong with a path of values in a body that is JSON or XML, with an example of a right one; "" when nothing
// is. A path that is written as in another language, and would never be found, is wrong.
func CheckPath(path string, isXML bool) string {
	segments := strings.Split(path, ".")
	for _, s := range segments {
		switch {
		case s == "" || strings.HasPrefix(path, "/") || strings.TrimSpace(path) != path:
			return "is no path; it is such as error.code"
		case isXML && strings.Contains(s, "*"):
			return "has a *, which only a path of JSON may have; it is such as Error.Code"
		case strings.ContainsAny(s, "[]") || s == "$":
			return "is no path; a list's elements are *, as in errors.*.type, or have a number, as in errors.0.type"
		case strings.Contains(s, "*") && s != "*":
			return "has a * beside other characters; * stands for all elements or members, as in errors.*.type"
		}
	}
	return ""
}

func parseJSON(body []byte, complete bool) (root any) {
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(body, []byte("\ufeff"))))
	d.UseNumber()
	if !complete || d.Decode(&root) != nil || d.More() {
		return nil
	}
	return root
}

// texts appends to all the texts of the values at a path below value. It looks at each value at most once.
func texts(value any, path, all []string) []string {
	if len(path) == 0 {
		switch v := value.(type) {
		case string:
			return append(all, v)
		case json.Number:
			return append(all, v.String())
		case bool:
			return append(all, strconv.FormatBool(v))
		}
		return all
	}
	key := path[0]
	switch v := value.(type) {
	case map[string]any:
		if key != "*" {
			return texts(v[key], path[1:], all)
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			all = texts(v[name], path[1:], all)
		}
	case []any:
		for i, inner := range v {
			if key == "*" || strconv.Itoa(i) == key {
				all = texts(inner, path[1:], all)
			}
		}
	}
	return all
}

// XMLTexts returns a function that returns the texts of the elements at a path of a body, such as "Error.Code", in their
// order. Of a body that is not complete, or no XML, it finds nothing.
func XMLTexts(body []byte, complete bool) func(path string) []string {
	found := map[string][]string{}
	var at []string
	var text strings.Builder
	d := xml.NewDecoder(bytes.NewReader(body))
	for complete {
		token, err := d.Token()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				clear(found)
			}
			break
		}
		switch t := token.(type) {
		case xml.StartElement:
			at = append(at, t.Name.Local)
			text.Reset()
		case xml.CharData:
			text.Write(t)
		case xml.EndElement:
			path := strings.Join(at, ".")
			found[path] = append(found[path], strings.TrimSpace(text.String()))
			at = at[:len(at)-1]
			text.Reset()
		}
	}
	return func(path string) []string { return found[path] }
}
