// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var paths = NewPaths("a", "a.b", "b.#.a", "#.a", "b.b.b")

const between = " | "

// read returns what Next finds in each document, and which of them are whole, until the body ends.
func read(body io.Reader, mediaType string) (all []string) {
	r := NewReader(body, mediaType, paths)
	for {
		var found []string
		whole, err := r.Next(func(path, value string) { found = append(found, path+"="+value) })
		if err != nil {
			return append(all, err.Error())
		}
		all = append(all, fmt.Sprint("[", strings.Join(found, between), "] ", whole))
	}
}

// oracle returns the same of one JSON text by encoding/json.
func oracle(t *rapid.T, text string) []string {
	var root any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	require.NoError(t, d.Decode(&root))
	var found []string
	var walk func(value any, at string, keys []string)
	walk = func(value any, at string, keys []string) {
		if len(keys) == 0 {
			if text, err := json.Marshal(value); err == nil && text[0] != '{' && text[0] != '[' {
				found = append(found, at+"="+string(text))
			}
			return
		}
		switch v := value.(type) {
		case map[string]any:
			if child, ok := v[keys[0]]; ok && keys[0] != "#" {
				walk(child, at, keys[1:])
			}
		case []any:
			for _, child := range v {
				if keys[0] == "#" {
					walk(child, at, keys[1:])
				}
			}
		}
	}
	for _, path := range []string{"a", "a.b", "b.#.a", "#.a", "b.b.b"} {
		walk(root, path, strings.Split(path, "."))
	}
	return found
}

// anyJSON generates values whose names are few, so that paths are met, with texts that quote JSON.
func anyJSON() *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any { return value(t, 4) })
}

func value(t *rapid.T, depth int) any {
	kind := rapid.IntRange(0, 5).Draw(t, "kind")
	if depth == 0 {
		kind %= 4
	}
	switch kind {
	case 0:
		return rapid.Int64().Draw(t, "number")
	case 1:
		return rapid.SampledFrom([]any{nil, true, false, 1.5e300, -0.25}).Draw(t, "literal")
	case 2:
		return rapid.SampledFrom([]string{"", `{"a":1}`, `\`, "\"", "[DONE]", "\n\ndata: {\"a\":1}\n\n", "\u2028é"}).Draw(t, "text")
	case 3:
		return "word"
	case 4:
		object := map[string]any{}
		for range rapid.IntRange(0, 4).Draw(t, "members") {
			object[rapid.SampledFrom([]string{"a", "b", "#", "", "a.b", "é\"", strings.Repeat("a", 300)}).Draw(t, "name")] = value(t, depth-1)
		}
		return object
	}
	array := []any{}
	for range rapid.IntRange(0, 3).Draw(t, "elements") {
		array = append(array, value(t, depth-1))
	}
	return array
}

// parts reads a text in parts of the sizes, over and over.
type parts struct {
	text  string
	sizes []int
	n     int
}

func (p *parts) Read(b []byte) (int, error) {
	if p.text == "" {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.sizes[p.n%len(p.sizes)])], p.text)
	p.text, p.n = p.text[n:], p.n+1
	return n, nil
}

// TestReadersAgree checks, for JSON texts however they are written, that Next finds what encoding/json finds, in a body of one text and
// in events, whatever the line ends and however the body is split; and that a body which is cut off has no document that is whole.
func TestReadersAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(1, 40), 1, 8).Draw(t, "sizes")
		var text bytes.Buffer
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(rapid.Bool().Draw(t, "escapes"))
		if rapid.Bool().Draw(t, "indented") {
			e.SetIndent(" ", "\t")
		}
		require.NoError(t, e.Encode(anyJSON().Filter(func(v any) bool {
			_, object := v.(map[string]any)
			_, array := v.([]any)
			return object || array
		}).Draw(t, "value")))
		want := oracle(t, text.String())
		got := read(&parts{text: text.String(), sizes: sizes}, "application/json")
		require.Len(t, got, 2)
		require.Equal(t, "EOF", got[1])
		require.ElementsMatch(t, want, foundIn(got[0]), "%s", text.String())

		end := rapid.SampledFrom([]string{"\n", "\r", "\r\n"}).Draw(t, "line end")
		var events strings.Builder
		events.WriteString(rapid.SampledFrom([]string{"", "\ufeff", ": comment" + end, "retry: 1" + end + end}).Draw(t, "start"))
		events.WriteString("event: x" + end)
		for line := range strings.Lines(text.String()) {
			events.WriteString("data: " + strings.TrimSuffix(line, "\n") + end + rapid.SampledFrom([]string{"", "id: 1" + end, ":" + end}).Draw(t, "between"))
		}
		events.WriteString(end + "data: [DONE]" + end + end)
		got = read(&parts{text: events.String(), sizes: sizes}, "text/event-stream")
		require.Equal(t, []string{"[=[DONE]] true", "EOF"}, got[1:])
		require.ElementsMatch(t, want, foundIn(got[0]), "%q", events.String())

		cut := rapid.IntRange(0, len(strings.TrimSpace(text.String()))-1).Draw(t, "cut")
		for _, document := range read(&parts{text: text.String()[:cut], sizes: sizes}, "application/json") {
			require.False(t, strings.HasSuffix(document, " true"), document)
		}
	})
}

// foundIn returns the values of a document of read that is whole.
func foundIn(document string) []string {
	list := strings.TrimSuffix(strings.TrimPrefix(document, "["), "] true")
	if list == "" {
		return nil
	}
	return strings.Split(list, between)
}

// TestBounds checks that a text is read whatever the size of its strings, in memory that does not grow, and that what is bounded is not
// taken for something else.
func TestBounds(t *testing.T) {
	long := strings.Repeat("x", 8<<20)
	for text, want := range map[string]string{
		`{"c":"` + long + `","a":1}`:              "[a=1] true",
		`{"` + long + `":2,"a":1}`:                "[a=1] true",
		`{"a":"` + long + `"}`:                    "[] true",
		`{"a":` + strings.Repeat("1", 1000) + `}`: "[] true",
		`{"\u0061":1}`:                            "[a=1] true",
		`{"c":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `,"a":1}`:   "[a=1] true",
		`{"c":` + strings.Repeat("[", 11000) + strings.Repeat("]", 11000) + `,"a":1}`: errDepth.Error(),
		`{"c":[}`: errSyntax.Error(), `{"a":1,}`: errSyntax.Error(), `{a:1}`: errSyntax.Error(), `{"a" 1}`: errSyntax.Error(),
		`{"\x":1}`: errSyntax.Error(), `{"b":[1 2]}`: errSyntax.Error(), `{"a":+1}`: errSyntax.Error(), `"a"`: errSyntax.Error(),
	} {
		got := read(strings.NewReader(text), "")
		if strings.HasSuffix(got[0], " false") {
			got = got[1:]
		}
		require.Equal(t, want, got[0], "%.40s", text)
	}
	r := NewReader(strings.NewReader(`{"c":"`+long+`","a":1}`), "", paths)
	require.Less(t, testing.AllocsPerRun(1, func() { _, _ = r.Next(func(string, string) {}) }), 100.0)
	require.Less(t, cap(r.scanner.kept)+cap(r.scanner.open), 1<<16)
}
