// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/stretchr/testify/require"
)

var (
	scriptIndex = regexp.MustCompile(`(KEYS|ARGV)\[(\d+)\]`)
	scriptUse   = regexp.MustCompile(`(?m)^ *--#use (\w+)$`)
	scriptEntry = regexp.MustCompile(`^-- (KEYS|ARGV)\[(\d+)\]   ?\S`)
)

// ScriptHeader checks that three things agree: the header of a script in the folder scripts of the tested package,
// the KEYS and ARGV of its body, and the numbers of both with which s is sent.
func ScriptHeader(t testing.TB, s *dispatch.Script) {
	t.Helper()
	require.Equal(t, dispatch.Source(os.DirFS("."), s.Name), s.Src)
	require.True(t, strings.HasPrefix(s.Src, "-- "+s.Name+": "), "the header names the script")

	head, body, ok := strings.Cut(s.Src, "\n\n")
	require.True(t, ok)
	documented := map[string]int{}
	for _, line := range strings.Split(head, "\n") {
		require.True(t, strings.HasPrefix(line, "--"), line)
		if m := scriptEntry.FindStringSubmatch(line); m != nil {
			documented[m[1]]++
			require.Equal(t, strconv.Itoa(documented[m[1]]), m[2], "in order, without gaps: %s", line)
		}
	}
	require.Contains(t, head, "\n-- Returns ")
	used := map[string]map[string]bool{"KEYS": {}, "ARGV": {}}
	for _, m := range scriptIndex.FindAllStringSubmatch(body, -1) {
		used[m[1]][m[2]] = true
	}
	for kind, n := range map[string]int{"KEYS": s.Keys, "ARGV": s.Args} {
		require.Equal(t, n, documented[kind], "%s in the header", kind)
		require.Len(t, used[kind], n, "%s in the body: %v", kind, used[kind])
		for i := 1; i <= n; i++ {
			require.True(t, used[kind][strconv.Itoa(i)], "%s[%d] is not used", kind, i)
		}
	}
}

// SharedFragments checks that the scripts in the folder scripts of the tested package use each of the fragments in
// scripts/shared at least twice.
func SharedFragments(t testing.TB) {
	t.Helper()
	read := func(pattern string) map[string]string {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files)
		texts := map[string]string{}
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			texts[strings.TrimSuffix(filepath.Base(file), ".lua")] = string(text)
		}
		return texts
	}
	used, fragments := map[string]int{}, read("scripts/shared/*.lua")
	for _, texts := range []map[string]string{read("scripts/*.lua"), fragments} {
		for _, text := range texts {
			for _, m := range scriptUse.FindAllStringSubmatch(text, -1) {
				used[m[1]]++
			}
		}
	}
	for name := range fragments {
		require.GreaterOrEqual(t, used[name], 2, "uses of %s", name)
	}
	require.Len(t, fragments, len(used))
}
