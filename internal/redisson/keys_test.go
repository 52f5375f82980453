package redisson

import (
	"strings"
	"testing"

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

// The names of docs/protocol.md that no cluster can hold.
func TestClusterSafeNames(t *testing.T) {
	for _, name := range []string{"a{b", "{a", "{}x", "x{}{y}", "a}b"} {
		require.ErrorIs(t, CheckClusterSafe(name, "id"), permit.ErrNameNotClusterSafe, name)
	}
	for _, name := range []string{"plain", "a{b}c", "{tag}x", "a{b}{c}", "x{y}}", "with space", "a:b"} {
		require.NoError(t, CheckClusterSafe(name, "id"), name)
	}
}
