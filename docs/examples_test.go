// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/assert"
)

// TestEveryTypeHasAnExample finds no exported type that no example is named after or mentions. A constructor, an option or a
// constant of the type mentions it.
func TestEveryTypeHasAnExample(t *testing.T) {
	mentioned := map[string]bool{}    // package.Name
	mentions := map[string][]string{} // by type, the names that mention it
	for _, dir := range []string{
		".", "limit", "httplimit", "httplimit/gateway", "httplimit/inbound", "httplimit/platform", "httplimit/rulefile",
		"otelratelimiter", "prometheusratelimiter", "ratelimiterpage", "wire", "grpclimit",
	} {
		p, examples := documentation(t, dir)
		assert.NotEmpty(t, examples, "%s has no example", dir)
		for _, x := range examples {
			name, _, _ := strings.Cut(x.Name, "_")
			mentioned[p.Name+"."+name] = true
			ast.Inspect(x.Code, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					if of, ok := s.X.(*ast.Ident); ok {
						mentioned[of.Name+"."+s.Sel.Name] = true
					}
				}
				return true
			})
		}
		for _, typ := range p.Types {
			names := []string{typ.Name}
			for _, f := range typ.Funcs {
				names = append(names, f.Name)
			}
			for _, v := range slices.Concat(typ.Consts, typ.Vars) {
				names = append(names, v.Names...)
			}
			mentions[p.Name+"."+typ.Name] = names
		}
	}
	for typ, names := range mentions {
		pkg, _, _ := strings.Cut(typ, ".")
		assert.True(t, slices.ContainsFunc(names, func(name string) bool { return mentioned[pkg+"."+name] }), "%s has no example", typ)
	}
}

// documentation returns the documentation and the examples of the package in dir.
func documentation(t *testing.T, dir string) (*doc.Package, []*doc.Example) {
	paths := redistest.Must(filepath.Glob(filepath.Join(dir, "*.go")))(t)
	fset := token.NewFileSet()
	var sources, tests []*ast.File
	for _, path := range paths {
		f := redistest.Must(parser.ParseFile(fset, path, nil, parser.ParseComments))(t)
		if strings.HasSuffix(path, "_test.go") {
			tests = append(tests, f)
		} else {
			sources = append(sources, f)
		}
	}
	p := redistest.Must(doc.NewFromFiles(fset, sources, dir))(t)
	return p, doc.Examples(tests...)
}
