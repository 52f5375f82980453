package redistest

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/stretchr/testify/require"
)

var (
	scriptIndex = regexp.MustCompile(`(KEYS|ARGV)\[(\d+)\]`)
	scriptEntry = regexp.MustCompile(`^-- (KEYS|ARGV)\[(\d+)\]   ?\S`)
)

// ScriptHeader holds together the header of a script in the folder scripts of the tested package, the KEYS
// and ARGV of its body, and the numbers that s is sent with.
func ScriptHeader(t testing.TB, s *dispatch.Script) {
	t.Helper()
	src, err := os.ReadFile("scripts/" + s.Name + ".lua")
	require.NoError(t, err)
	require.Equal(t, string(src), s.Src)
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
