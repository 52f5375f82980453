package ratelimiter

import (
	"path/filepath"
	"reflect"
	"testing"

	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

func allScripts() (list []*redisson.Script) {
	v := reflect.ValueOf(scripts)
	for i := range v.NumField() {
		list = append(list, v.Field(i).Interface().(*redisson.Script))
	}
	return list
}

// TestScriptHeaders checks that three things agree: the header of each script, the KEYS and ARGV in its body,
// and the numbers that the Go wrapper sends, which rejects a call with other numbers.
func TestScriptHeaders(t *testing.T) {
	files, err := filepath.Glob("scripts/*.lua")
	require.NoError(t, err)
	require.Len(t, allScripts(), len(files), "a script without a wrapper, or the other way round")

	for _, s := range allScripts() {
		t.Run(s.Name, func(t *testing.T) { redistest.ScriptHeader(t, s.Script) })
	}
}
