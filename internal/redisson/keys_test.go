// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/stretchr/testify/require"
)

func TestKeyNames(t *testing.T) {
	for name, want := range map[string]string{
		"plain":  "{plain}:value",
		"a{b}c":  "a{b}c:value",
		"{tag}x": "{tag}x:value",
		"a{b":    "a{b:value",
		"a}b":    "{a}b}:value",
		"{}x":    "{}x:value",
		"with :": "{with :}:value",
		"漢字":     "{漢字}:value",
	} {
		k := NewKeys(name, "id")
		require.Equal(t, want, k.Value[permit.Overall])
		require.Equal(t, strings.Replace(want, ":value", ":permits:id", 1), k.Permits[permit.PerClient])
		require.Equal(t, []string{name, k.Value[0], k.Permits[0], k.Value[1], k.Permits[1]}, k.All(permit.Overall))
		require.Equal(t, []string{name, k.Value[1], k.Permits[1], k.Value[0], k.Permits[0]}, k.All(permit.PerClient))
	}
}

// TestClusterSafeNames checks the names that docs/design/protocol.md lists as impossible on a cluster.
func TestClusterSafeNames(t *testing.T) {
	for _, name := range []string{"a{b", "{a", "{}x", "x{}{y}", "a}b"} {
		require.ErrorIs(t, CheckClusterSafe(name, "id"), permit.ErrNameNotClusterSafe, name)
	}
	for _, name := range []string{"plain", "a{b}c", "{tag}x", "a{b}{c}", "x{y}}", "with space", "a:b"} {
		require.NoError(t, CheckClusterSafe(name, "id"), name)
	}
}

// TestKeysAreMadeInOnePlace checks that key names are built only in keys.go, both in this package and in the
// others.
func TestKeysAreMadeInOnePlace(t *testing.T) {
	files := 0
	for _, dir := range []string{"../..", "../permit", "../retry", "../outage", "../dispatch", "../engine", "."} {
		list, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		for _, name := range list {
			if strings.HasSuffix(name, "_test.go") || name == "keys.go" {
				continue
			}
			files++
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			require.NoError(t, err)
			ast.Inspect(file, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
					require.NotRegexp(t, `:(value|permits)\b|\}:`, l.Value, name)
				}
				return true
			})
		}
	}
	require.Greater(t, files, 30)
}

// TestSendHoldsToTheHeader checks that a call with the wrong number of keys or arguments for its script fails
// before anything is sent.
func TestSendHoldsToTheHeader(t *testing.T) {
	l := Limiter{Conn: &Conn{}, Name: "L", Keys: NewKeys("L", "id")}
	s := NewScript(dispatch.New("acquire", "return 1", 3, 10), ResendAsReplay)
	_, err := l.send(t.Context(), s, l.Keys.Of(permit.Overall)[:2], make([]any, 10)...)
	require.ErrorContains(t, err, "takes 3 keys and 10 arguments, got 2 and 10")
	_, err = l.send(t.Context(), s, l.Keys.All(permit.Overall), 1)
	require.ErrorContains(t, err, "got 5 and 1")
}
