// SPDX-License-Identifier: Apache-2.0

package envelope

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// JSONText returns a function that returns the text of the value at a path of a body, such as "error.code", or false where
// there is none: a string's content, or a number or boolean as it is written. Of a body that is not complete, or no JSON,
// it finds nothing.
func JSONText(body []byte, complete bool) func(path string) (string, bool) {
	var root any
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(body, []byte("\ufeff"))))
	d.UseNumber()
	if !complete || d.Decode(&root) != nil || d.More() {
		root = nil
	}
	return func(path string) (string, bool) {
		value := root
		for key := range strings.SplitSeq(path, ".") {
			switch v := value.(type) {
			case map[string]any:
				value = v[key]
			case []any:
				i, err := strconv.Atoi(key)
				if err != nil || i < 0 || i >= len(v) {
					return "", false
				}
				value = v[i]
			default:
				return "", false
			}
		}
		switch v := value.(type) {
		case string:
			return v, true
		case json.Number:
			return v.String(), true
		case bool:
			return strconv.FormatBool(v), true
		}
		return "", false
	}
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

// Wait returns how long the field of a header asks to wait, and false where there is none: in seconds, as a duration such
// as 6m0s, or as an instant, which is a date of HTTP or RFC 3339, or seconds or milliseconds since 1970.
func Wait(header http.Header, now time.Time, field string) (time.Duration, bool) {
	value := strings.TrimSpace(header.Get(field))
	if n, err := strconv.ParseFloat(value, 64); err == nil {
		switch {
		case !(n >= 0): // a NaN, too
			return 0, false
		case n >= 1e11:
			return Left(header, now, time.UnixMilli(int64(min(n, MaxSeconds*1e3)))), true
		case n >= 1e9:
			return Left(header, now, time.Unix(int64(n), 0)), true
		}
		return time.Duration(n * float64(time.Second)), true
	}
	if d, err := time.ParseDuration(value); err == nil && d >= 0 {
		return d, true
	}
	if t, err := time.Parse(time.RFC3339, value); err == nil {
		return Left(header, now, t), true
	}
	if t, err := http.ParseTime(value); err == nil {
		return Left(header, now, t), true
	}
	return 0, false
}
