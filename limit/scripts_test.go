package limit

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestScriptHeaders holds together the header of each script, the KEYS and ARGV of its body, and the
// numbers that a Shared sends; Script.Command refuses a call with other numbers.
func TestScriptHeaders(t *testing.T) {
	files, err := os.ReadDir("scripts")
	require.NoError(t, err)
	require.Len(t, every(), len(files), "a script without an algorithm, or the other way round")
	index := regexp.MustCompile(`(KEYS|ARGV)\[(\d+)\]`)
	entry := regexp.MustCompile(`^-- (KEYS|ARGV)\[(\d+)\]   ?\S`)
	for kind, a := range every() {
		t.Run(kind, func(t *testing.T) {
			s := a.script()
			src, err := os.ReadFile("scripts/" + s.Name + ".lua")
			require.NoError(t, err)
			require.Equal(t, string(src), s.Src)
			require.True(t, strings.HasPrefix(s.Src, "-- "+s.Name+": "), "the header names the script")
			head, body, ok := strings.Cut(s.Src, "\n\n")
			require.True(t, ok)
			documented := map[string]int{}
			for _, line := range strings.Split(head, "\n") {
				require.True(t, strings.HasPrefix(line, "--"), line)
				if m := entry.FindStringSubmatch(line); m != nil {
					documented[m[1]]++
					require.Equal(t, strconv.Itoa(documented[m[1]]), m[2], "in order, without gaps: %s", line)
				}
			}
			require.Contains(t, head, "\n-- Returns ")
			used := map[string]map[string]bool{"KEYS": {}, "ARGV": {}}
			for _, m := range index.FindAllStringSubmatch(body, -1) {
				used[m[1]][m[2]] = true
			}
			f := &family{algorithm: a, numbers: a.numbers()}
			require.Len(t, f.arguments(request{}, nil, timeless, false), s.Args)
			for what, n := range map[string]int{"KEYS": s.Keys, "ARGV": s.Args} {
				require.Equal(t, n, documented[what], "%s in the header", what)
				require.Len(t, used[what], n, "%s in the body: %v", what, used[what])
				for i := 1; i <= n; i++ {
					require.True(t, used[what][strconv.Itoa(i)], "%s[%d] is not used", what, i)
				}
			}
			require.NoError(t, wellMannered(s.Src))
		})
	}
}

// TestManners: a key whose name the script makes up, from a key or from an argument, breaks in a cluster.
func TestManners(t *testing.T) {
	for defect, src := range map[string]string{
		"second key derived from the first": `
local tokens = redis.call('GET', KEYS[1])
local last = redis.call('GET', KEYS[1] .. '_time')
return {tokens, last}`,
		"key in a local":       "local key = KEYS[1]\nreturn redis.call('INCR', key)",
		"key in an argument":   "return redis.call('INCR', ARGV[1])",
		"key by a variable":    "for i = 1, #KEYS do redis.call('DEL', KEYS[i]) end",
		"struct, not in minis": "return struct.unpack('fI', redis.call('GET', KEYS[1]))",
	} {
		require.Error(t, wellMannered(src), defect)
	}
}
