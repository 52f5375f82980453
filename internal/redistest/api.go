// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// apiFile holds the exported names of a package, in the package's folder.
const apiFile = "testdata/api.txt"

// API compares what the package in the working directory exports with its testdata/api.txt, so that a change of
// the public names is seen in review. With RATELIMITER_API=write, as `make api` sets it, API writes the file.
func API(t testing.TB) {
	t.Helper()
	NoServer(t)
	NoRace(t, "it lists names")
	got := apiOf(importDir(t))
	if os.Getenv("RATELIMITER_API") == "write" {
		require.NoError(t, os.MkdirAll(filepath.Dir(apiFile), 0o755))
		require.NoError(t, os.WriteFile(apiFile, []byte(got), 0o644))
		return
	}
	want := Must(os.ReadFile(apiFile))(t)
	require.Equal(t, string(want), got, "if the change is meant, run make api and commit the file")
}

// importDir returns the types of the package in the working directory, as the compiler exports them.
func importDir(t testing.TB) *types.Package {
	t.Helper()
	files, self := map[string]string{}, ""
	out := goCommand(t, ".", nil, "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}} {{not .DepOnly}}", ".")
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSpace(line), " ")
		require.Len(t, f, 3, line)
		files[f[0]] = f[1]
		if f[2] == "true" {
			self = f[0]
		}
	}
	pkg, err := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(files[path])
	}).Import(self)
	require.NoError(t, err)
	return pkg
}

// apiOf returns the exported names of a package with their types, one line for each constant, variable, function,
// method, type and field, in order. It leaves out what only comments say.
func apiOf(pkg *types.Package) string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	qualify := func(p *types.Package) string {
		if p == pkg {
			return ""
		}
		return p.Name()
	}
	typeOf := func(t types.Type) string { return types.TypeString(t, qualify) }
	signature := func(t types.Type) string { return strings.TrimPrefix(typeOf(t), "func") }

	for _, name := range pkg.Scope().Names() {
		obj := pkg.Scope().Lookup(name)
		if !obj.Exported() {
			continue
		}
		switch obj := obj.(type) {
		case *types.Const:
			add("const %s %s = %s", name, typeOf(obj.Type()), obj.Val().ExactString())
		case *types.Var:
			add("var %s %s", name, typeOf(obj.Type()))
		case *types.Func:
			add("func %s%s", name, signature(obj.Type()))
		case *types.TypeName:
			if obj.IsAlias() {
				add("type %s = %s", name, typeOf(types.Unalias(obj.Type())))
				continue
			}
			typ := typeOf(obj.Type()) // with its type parameters
			switch u := obj.Type().Underlying().(type) {
			case *types.Struct:
				add("type %s struct", typ)
				for i := range u.NumFields() {
					f, tag := u.Field(i), ""
					if u.Tag(i) != "" {
						tag = " `" + u.Tag(i) + "`"
					}
					switch {
					case !f.Exported():
						// One such line is enough: the type cannot be made or compared by its fields.
						if line := "type " + typ + " struct, unexported fields"; !slices.Contains(lines, line) {
							add("%s", line)
						}
					case f.Embedded():
						add("type %s struct, embedded %s%s", typ, typeOf(f.Type()), tag)
					default:
						add("type %s struct, %s %s%s", typ, f.Name(), typeOf(f.Type()), tag)
					}
				}
			case *types.Interface:
				add("type %s interface", typ)
				for i := range u.NumMethods() {
					if m := u.Method(i); m.Exported() {
						add("type %s interface, %s%s", typ, m.Name(), signature(m.Type()))
					} else {
						add("type %s interface, unexported methods", typ)
					}
				}
			default:
				add("type %s %s", typ, typeOf(u))
			}
			byValue, byPointer := types.NewMethodSet(obj.Type()), types.NewMethodSet(types.NewPointer(obj.Type()))
			for m := range byPointer.Methods() {
				if !m.Obj().Exported() {
					continue
				}
				star := "*"
				if byValue.Lookup(pkg, m.Obj().Name()) != nil {
					star = ""
				}
				add("method (%s%s) %s%s", star, typ, m.Obj().Name(), signature(m.Type()))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "\n") + "\n"
}
