// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"os/exec"
	"testing"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestQuote checks what is quoted and what is not possible, and has each shell that there is read the words.
func TestQuote(t *testing.T) {
	redistest.NoServer(t)
	shells := 0
	for text, want := range map[string]string{
		"": "''", "a:b.c/d": "a:b.c/d", "a b": "'a b'", "it's": `'it'\''s'`, "{a}": "'{a}'", "名": "'名'", "=ls": "'=ls'", "a=b": "'a=b'", "~": "'~'", "a\\b": `'a'\\'b'`,
		`$(touch x) "c"`: `'$(touch x) "c"'`,
	} {
		word, ok := Quote(text)
		require.True(t, ok, "%q", text)
		require.Equal(t, want, word, "%q", text)
		for _, shell := range []string{"sh", "bash", "zsh", "fish"} {
			if path, err := exec.LookPath(shell); err == nil {
				out, err := exec.Command(path, "-c", "printf %s "+word).Output()
				require.NoError(t, err)
				require.Equal(t, text, string(out), shell)
				shells++
			}
		}
	}
	require.Positive(t, shells)
	for _, text := range []string{"a\x00b", "a\x1b[31m", "a\nb", "\u202e", "a\xff"} {
		_, ok := Quote(text)
		require.False(t, ok, "%q", text)
	}
}
