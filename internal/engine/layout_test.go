// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// TestLayout checks the bounds that keep the packages of the engine readable: no function is longer than a page, no file
// longer than 300 lines, the two types that everything hangs on have few fields, and no exported function takes a bool,
// which tells the reader of a call nothing.
func TestLayout(t *testing.T) {
	fields := map[string]int{"limiter": 16, "request": 12}
	for _, dir := range []string{".", "fair", "known", "list", "../link"} {
		names := redistest.Must(filepath.Glob(filepath.Join(dir, "*.go")))(t)
		require.NotEmpty(t, names)
		for _, name := range names {
			if !strings.HasSuffix(name, "_test.go") {
				checkLayout(t, name, fields)
			}
		}
	}
	require.Empty(t, fields, "these types have not been seen")
}

// checkLayout checks one file, and forgets the types of fields that it has seen.
func checkLayout(t *testing.T, name string, fields map[string]int) {
	const maxFile, maxFunc = 300, 60
	fset := token.NewFileSet()
	file := redistest.Must(parser.ParseFile(fset, name, nil, 0))(t)
	lines := func(from, to token.Pos) int { return fset.Position(to).Line - fset.Position(from).Line + 1 }
	require.LessOrEqual(t, lines(file.FileStart, file.FileEnd), maxFile+1, "lines of %s", name)
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			require.LessOrEqual(t, lines(n.Pos(), n.End()), maxFunc, "lines of %s in %s", n.Name, name)
			for _, p := range n.Type.Params.List {
				typ, _ := p.Type.(*ast.Ident)
				require.False(t, n.Name.IsExported() && typ != nil && typ.Name == "bool", "%s in %s takes a bool", n.Name, name)
			}
		case *ast.TypeSpec:
			s, ok := n.Type.(*ast.StructType)
			if most := fields[n.Name.Name]; ok && most > 0 {
				require.LessOrEqual(t, s.Fields.NumFields(), most, "fields of %s", n.Name)
				delete(fields, n.Name.Name)
			}
		}
		return true
	})
}
