// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEveryTypeHasAnExample finds no exported type that no example is named after or mentions. A constructor, an option or a
// constant of the type mentions it.
func TestEveryTypeHasAnExample(t *testing.T) {
	mentioned := map[string]bool{}    // package.Name
	mentions := map[string][]string{} // by type, the names that mention it
	for _, dir := range []string{
		".", "limit", "httplimit", "httplimit/inbound", "httplimit/platform", "httplimit/rulefile",
		"otelratelimiter", "prometheusratelimiter", "ratelimiterpage", "grpclimit", "ratelimitertest",
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

// TestTestRecipes runs the tests that testing-your-code.md shows, in one package, each twice.
func TestTestRecipes(t *testing.T) {
	text := string(redistest.Must(os.ReadFile("docs/testing-your-code.md"))(t))
	dir := redistest.Must(os.MkdirTemp(".", "_docs"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	recipes := 0
	for _, m := range goBlock.FindAllStringSubmatch(text, -1) {
		if strings.Contains(m[1], "\nfunc Test") {
			recipes++
			name := fmt.Sprintf("recipe%d_test.go", recipes)
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(m[1]), 0o600))
		}
	}
	require.Equal(t, 3, recipes)
	out, err := exec.Command("go", "test", "-v", "-count=2", "./"+dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, 2*recipes, strings.Count(string(out), "--- PASS"), "%s", out)
}
