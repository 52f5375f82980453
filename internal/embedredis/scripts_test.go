// SPDX-License-Identifier: Apache-2.0

package embedredis_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestScriptsReadNoFiles calls each function that could read a file, or write to the output of this process, in every
// way in which a script can get to run.
func TestScriptsReadNoFiles(t *testing.T) {
	_, rdb := start(t)
	ctx := t.Context()
	file := filepath.Join(t.TempDir(), "secret.lua")
	require.NoError(t, os.WriteFile(file, []byte("return 'the secret'"), 0o600))
	ways := map[string]func(script string) error{
		"EVAL":    func(s string) error { return rdb.Eval(ctx, s, nil, file).Err() },
		"EVAL_RO": func(s string) error { return rdb.EvalRO(ctx, s, nil, file).Err() },
		"EVALSHA": func(s string) error {
			redistest.Must(rdb.ScriptLoad(ctx, s).Result())(t)
			return rdb.EvalSha(ctx, redis.NewScript(s).Hash(), nil, file).Err()
		},
		"EVALSHA of the reply to SCRIPT LOAD": func(s string) error {
			sha := redistest.Must(rdb.ScriptLoad(ctx, s).Result())(t)
			return rdb.EvalSha(ctx, sha, nil, file).Err()
		},
		"MULTI": func(s string) error {
			_, err := rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
				p.Eval(ctx, s, nil, file)
				return nil
			})
			return err
		},
	}
	for way, run := range ways {
		for _, script := range []string{
			"return loadfile(ARGV[1])()",
			"return dofile(ARGV[1])",
			"return _G['do'..'file'](ARGV[1])",
			"return rawget(_G, 'loadfile')(ARGV[1])()",
			"package.path = ARGV[1] return require('x')",
			"return module('x')",
			"print('x')",
		} {
			err := run(script)
			require.Error(t, err, "%s: %s", way, script)
			require.Regexp(t, "nonexistent global variable|attempt to call a non-function object", err.Error(), "%s: %s", way, script)
		}
	}
}

// TestScriptsKeepTheirDigest checks that a script is known by the SHA-1 digest of the text that its caller sent, as
// in Redis.
func TestScriptsKeepTheirDigest(t *testing.T) {
	_, rdb := start(t)
	ctx := t.Context()
	for i, learn := range []func(script string) error{
		func(s string) error { return rdb.Eval(ctx, s, []string{"k"}, "a").Err() },
		func(s string) error { return rdb.ScriptLoad(ctx, s).Err() },
	} {
		script := "return {KEYS[1], ARGV[1], " + string(rune('0'+i)) + "}"
		require.True(t, redis.HasErrorPrefix(rdb.EvalSha(ctx, redis.NewScript(script).Hash(), nil).Err(), "NOSCRIPT"))
		require.Equal(t, []bool{false}, rdb.ScriptExists(ctx, redis.NewScript(script).Hash()).Val())
		require.NoError(t, learn(script))
		require.Equal(t, []bool{true, false}, rdb.ScriptExists(ctx, redis.NewScript(script).Hash(), redis.NewScript("x").Hash()).Val())
		got := redistest.Must(rdb.EvalSha(ctx, redis.NewScript(script).Hash(), []string{"k"}, "a").Result())(t)
		require.Equal(t, []any{"k", "a", int64(i)}, got)
		require.NoError(t, rdb.ScriptFlush(ctx).Err())
		require.True(t, redis.HasErrorPrefix(rdb.EvalSha(ctx, redis.NewScript(script).Hash(), nil).Err(), "NOSCRIPT"))
		require.Equal(t, []bool{false}, rdb.ScriptExists(ctx, redis.NewScript(script).Hash()).Val())
	}
	require.Error(t, rdb.Do(ctx, "EVAL").Err())
	require.Error(t, rdb.Do(ctx, "EVALSHA").Err())
	require.Error(t, rdb.Do(ctx, "SCRIPT").Err())
	require.Error(t, rdb.Do(ctx, "SCRIPT", "LOAD").Err())
	require.ErrorContains(t, rdb.Eval(ctx, "return redis.call('EVAL', 'return 1', 0)", nil).Err(), "not allowed")
}

// TestAnyNameIsFound checks that keys are found by a pattern of any bytes, which miniredis panics at if they are not UTF-8.
func TestAnyNameIsFound(t *testing.T) {
	_, rdb := start(t)
	ctx := t.Context()
	for _, name := range []string{"\xe9t\xe9", "\xff\x00bin", `back\slash`, `\E`, `\\Q`, "plain"} {
		require.NoError(t, rdb.Set(ctx, name+":1", "", 0).Err())
		pattern := strings.ReplaceAll(name, `\`, `\\`) + ":*"
		require.Contains(t, redistest.Must(rdb.Keys(ctx, pattern).Result())(t), name+":1", "%q", name)
		keys, _, err := rdb.Scan(ctx, 0, pattern, 100).Result()
		require.NoError(t, err)
		require.Contains(t, keys, name+":1", "%q", name)
	}
}
