// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
	"github.com/stretchr/testify/require"
)

// TestScriptHeaders tests that the header of each script, the KEYS and ARGV of its body, and the numbers of them
// that a Shared sends are the same. Script.Command rejects a call with other numbers.
func TestScriptHeaders(t *testing.T) {
	files := redistest.Must(filepath.Glob("scripts/*.lua"))(t)
	used := map[string]bool{}
	for _, a := range every() {
		used["scripts/"+a.model().Script.Name+".lua"] = true
	}
	require.ElementsMatch(t, files, slices.Collect(maps.Keys(used)), "a script without an algorithm, or the other way round")
	redistest.ScriptHeader(t, parametersScript)
	require.NoError(t, wellMannered(parametersScript.Src))
	for kind, a := range every() {
		t.Run(kind, func(t *testing.T) {
			s := a.model().Script
			c := &calls.Limiter{}
			for since, n := range map[int64]int{calls.First: s.Args - s.Optional, calls.Unknown: s.Args} {
				require.Len(t, redistest.Must(c.Command(newSetting(a), make([]string, s.Keys), "1", "", since))(t), 3+s.Keys+n)
			}
			redistest.ScriptHeader(t, s)
			require.NoError(t, wellMannered(s.Src))
		})
	}
}

// TestManners tests that wellMannered finds keys that a script derives, from a key or from an argument.
func TestManners(t *testing.T) {
	for defect, src := range map[string]string{
		"second key derived from the first": `
local tokens = redis.call('GET', KEYS[1])
local last = redis.call('GET', KEYS[1] .. '_time')
return {tokens, last}`,
		"derived second key":   "redis.call('UNLINK', KEYS[1], KEYS[1] .. '_time')",
		"key in a local":       "local key = KEYS[1]\nreturn redis.call('INCR', key)",
		"key in an argument":   "return redis.call('INCR', ARGV[1])",
		"key by a variable":    "for i = 1, #KEYS do redis.call('DEL', KEYS[i]) end",
		"struct, not in minis": "return struct.unpack('fI', redis.call('GET', KEYS[1]))",
	} {
		require.Error(t, wellMannered(src), defect)
	}
}

// wellMannered returns an error if a script cannot run in a cluster, behind a proxy that wants literal keys, or on
// Redis 5: above all if it uses a key that is not in KEYS.
func wellMannered(src string) error {
	if err := redistest.LiteralKeys(src); err != nil {
		return err
	}
	for _, no := range []string{"struct.", "cjson", "cmsgpack", "unpack(", "pcall", "tostring("} {
		if strings.Contains(src, no) {
			return fmt.Errorf("it uses %s", no)
		}
	}
	return nil
}
