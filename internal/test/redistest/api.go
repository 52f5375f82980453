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

// API compares what each public package of the module in the working directory exports with its testdata/api.txt, so that a
// change of the public names is seen in review. With RATELIMITER_API=write, as `make api` sets it, API writes the files.
func API(t testing.TB) {
	t.Helper()
	NoServer(t)
	NoRace(t, "it lists names")
	for dir, pkg := range publicPackages(t) {
		file, got := filepath.Join(dir, apiFile), apiOf(pkg)
		if os.Getenv("RATELIMITER_API") == "write" {
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
			require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
			continue
		}
		want := Must(os.ReadFile(file))(t)
		require.Equal(t, string(want), got, "%s: if the change is meant, run make api and commit the file", dir)
	}
}

// publicPackages returns the packages that others can import, by their folders, as the compiler exports them.
func publicPackages(t testing.TB) map[string]*types.Package {
	t.Helper()
	dirs, files := map[string]string{}, map[string]string{} // by import path
	list := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}
	for line := range strings.Lines(goCommand(t, ".", nil, "list", "-f", "{{if .GoFiles}}{{.ImportPath}} {{.Name}} {{.Dir}}{{end}}", "./...")) {
		f := strings.SplitN(strings.TrimSpace(line), " ", 3)
		if f[1] != "main" && !strings.Contains(f[0]+"/", "/internal/") {
			dirs[f[0]], list = f[2], append(list, f[0])
		}
	}
	require.NotEmpty(t, dirs)
	for line := range strings.Lines(goCommand(t, ".", nil, list...)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	from := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
	packages := map[string]*types.Package{}
	for path, dir := range dirs {
		packages[dir] = Must(from.Import(path))(t)
	}
	return packages
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
