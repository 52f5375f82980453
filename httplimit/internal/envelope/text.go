// SPDX-License-Identifier: Apache-2.0

package envelope

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"strconv"
	"strings"
)

// JSONText returns a function that returns the text of the value at a path of a body, such as "error.code", or false where
// there is none: a string's content, or a number or boolean as it is written. Of a body that is not complete, or no JSON,
// it finds nothing.
func JSONText(body []byte, complete bool) func(path string) (string, bool) {
	root := parseJSON(body, complete)
	return func(path string) (string, bool) {
		all := texts(root, strings.Split(path, "."), false)
		if len(all) == 0 {
			return "", false
		}
		return all[0], true
	}
}

// JSONTexts is [JSONText] for paths in which * stands for each element of a list or member of an object, such as
// "error.details.*.retryDelay". It returns the texts of all values, by path.
func JSONTexts(body []byte, complete bool, paths []string) (all [][]string) {
	root := parseJSON(body, complete)
	for _, path := range paths {
		all = append(all, texts(root, strings.Split(path, "."), true))
	}
	return all
}

// XMLTexts returns what [XMLText] finds at each path.
func XMLTexts(body []byte, complete bool, paths []string) (all [][]string) {
	textAt := XMLText(body, complete)
	for _, path := range paths {
		text, _ := textAt(path)
		all = append(all, []string{text})
	}
	return all
}

func parseJSON(body []byte, complete bool) (root any) {
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(body, []byte("\ufeff"))))
	d.UseNumber()
	if !complete || d.Decode(&root) != nil || d.More() {
		return nil
	}
	return root
}

// texts returns the texts of the values at a path below value.
func texts(value any, path []string, stars bool) (all []string) {
	if len(path) == 0 {
		switch v := value.(type) {
		case string:
			return []string{v}
		case json.Number:
			return []string{v.String()}
		case bool:
			return []string{strconv.FormatBool(v)}
		}
		return nil
	}
	key, star := path[0], stars && path[0] == "*"
	switch v := value.(type) {
	case map[string]any:
		for k, inner := range v {
			if star || k == key {
				all = append(all, texts(inner, path[1:], stars)...)
			}
		}
	case []any:
		for i, inner := range v {
			if star || strconv.Itoa(i) == key {
				all = append(all, texts(inner, path[1:], stars)...)
			}
		}
	}
	return all
}

// XMLText returns a function that returns the text of the first element at a path of a body, such as "Error.Code", or
// false where there is none. Of a body that is not complete, or no XML, it finds nothing.
func XMLText(body []byte, complete bool) func(path string) (string, bool) {
	found := map[string]string{}
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
			if _, twice := found[path]; !twice {
				found[path] = strings.TrimSpace(text.String())
			}
			at = at[:len(at)-1]
			text.Reset()
		}
	}
	return func(path string) (string, bool) {
		s, ok := found[path]
		return s, ok
	}
}
