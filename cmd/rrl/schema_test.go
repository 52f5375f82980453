// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/ops/view"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

const schemaFile = "../../docs/rrl.schema.json"

// outputs are what each command writes with --json: the values, one a line.
var outputs = map[string]any{
	"ls": view.Summary{}, "top": []view.Summary{}, "inspect": view.Detail{}, "watch": watchLine{}, "peek": prediction{}, "doctor": verdict{}, "diff": drift{},
	"heal": changed{}, "set-rate": changed{}, "release": changed{}, "cool-down": changed{}, "lift": changed{}, "delete": changed{}, "error": jsonError{},
}

// A schema writes JSON Schemas of Go types, with the comments behind their fields.
type schema struct {
	defs     map[string]any
	comments map[string]string // by type and field
}

// remarks reads the comments of the types in a directory.
func (s *schema) remarks(t *testing.T, dir string) {
	files := redistest.Must(filepath.Glob(filepath.Join(dir, "*.go")))(t)
	for _, name := range files {
		file := redistest.Must(parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments))(t)
		ast.Inspect(file, func(n ast.Node) bool {
			def, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if of, ok := def.Type.(*ast.StructType); ok {
				for _, f := range of.Fields.List {
					for _, name := range f.Names {
						s.comments[def.Name.Name+"."+name.Name] = strings.TrimSpace(f.Doc.Text() + f.Comment.Text())
					}
				}
			}
			return true
		})
	}
}

// of returns the schema of a type. Structs become definitions.
func (s *schema) of(t reflect.Type) any {
	switch {
	case t.Kind() == reflect.Pointer:
		return s.of(t.Elem())
	case t == reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return map[string]any{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Slice:
		return map[string]any{"type": "array", "items": s.of(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.Struct:
		name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
		if _, ok := s.defs[name]; !ok {
			def := map[string]any{"type": "object", "additionalProperties": false}
			s.defs[name] = def
			properties, required := map[string]any{}, []string{}
			s.fields(t, properties, &required)
			def["properties"], def["required"] = properties, required
		}
		return map[string]any{"$ref": "#/$defs/" + name}
	}
	return map[string]any{"type": map[reflect.Kind]string{reflect.String: "string", reflect.Bool: "boolean", reflect.Float64: "number", reflect.Int: "integer", reflect.Int64: "integer", reflect.Uint32: "integer"}[t.Kind()]}
}

func (s *schema) fields(t reflect.Type, properties map[string]any, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			of := f.Type
			if of.Kind() == reflect.Pointer {
				of = of.Elem()
			}
			s.fields(of, properties, required)
			continue
		case name == "-" || name == "":
			continue
		case options == "":
			*required = append(*required, name)
		}
		p := s.of(f.Type).(map[string]any)
		if why := s.comments[t.Name()+"."+f.Name]; why != "" {
			p["description"] = why
		}
		properties[name] = p
	}
}

// TestSchema compares docs/rrl.schema.json with the types that are written. RRL_TEST_DOCS=write writes it.
func TestSchema(t *testing.T) {
	s := &schema{map[string]any{}, map[string]string{}}
	for _, dir := range []string{".", "../../internal/ops/view", "../../internal/ops/doctor"} {
		s.remarks(t, dir)
	}
	commands := map[string]any{}
	for command, value := range outputs {
		commands[command] = s.of(reflect.TypeOf(value))
	}
	text := redistest.Must(json.MarshalIndent(map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "What rrl writes with --json: one value a line, by command. A command that fails writes an error last.",
		"type": "object", "properties": commands, "$defs": s.defs,
	}, "", "  "))(t)
	text = append(text, '\n')
	if os.Getenv("RRL_TEST_DOCS") == "write" {
		require.NoError(t, os.WriteFile(schemaFile, text, 0o600))
	}
	require.Equal(t, string(redistest.Must(os.ReadFile(schemaFile))(t)), string(text), "RRL_TEST_DOCS=write go test -run Schema ./cmd/rrl")
}

// conforms checks a JSON value against a schema of the file: types, what is required, and that nothing else is there.
func conforms(defs, of map[string]any, v any) error {
	if ref, ok := of["$ref"].(string); ok {
		of = defs[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
	}
	is := map[bool]string{true: "integer", false: "number"}
	kind := ""
	switch v := v.(type) {
	case string:
		kind = "string"
	case bool:
		kind = "boolean"
	case float64:
		if kind = is[v == float64(int64(v))]; of["type"] == "number" {
			kind = "number"
		}
	case []any:
		kind = "array"
		for _, x := range v {
			if err := conforms(defs, of["items"].(map[string]any), x); err != nil {
				return err
			}
		}
	case map[string]any:
		kind = "object"
		known, _ := of["properties"].(map[string]any)
		other, _ := of["additionalProperties"].(map[string]any)
		for name, x := range v {
			p, ok := known[name].(map[string]any)
			if !ok {
				p = other
			}
			if p == nil {
				return fmt.Errorf("%q is in no schema", name)
			}
			if err := conforms(defs, p, x); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		required, _ := of["required"].([]any)
		for _, name := range required {
			if _, ok := v[name.(string)]; !ok {
				return fmt.Errorf("%q is missing", name)
			}
		}
	}
	if kind != of["type"] {
		return fmt.Errorf("%v is no %v", v, of["type"])
	}
	return nil
}

// requireSchema checks what a command has written with --json.
func requireSchema(t *testing.T, command, out string) {
	t.Helper()
	var file struct {
		Properties map[string]map[string]any `json:"properties"`
		Defs       map[string]any            `json:"$defs"`
	}
	require.NoError(t, json.Unmarshal(redistest.Must(os.ReadFile(schemaFile))(t), &file))
	for _, v := range values[any](t, out) {
		of := file.Properties[command]
		if m, ok := v.(map[string]any); ok && m["exit_code"] != nil {
			of = file.Properties["error"]
		}
		require.NotNil(t, of, command)
		require.NoError(t, conforms(file.Defs, of, v), "%s: %v", command, v)
	}
}
