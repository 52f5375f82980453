// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

// mutations are faults in our scripts that no other line makes up for. The run must find each of them.
var mutations = []struct {
	name, file, old, new string
	version              string // the version that shows it, the newest when empty
}{
	{"a grant expires a millisecond late", "acquire",
		"string.format('%d', now - interval)", "string.format('%d', now - interval - 1)", ""},
	{"a grant takes one permit, whatever was asked for", "acquire",
		"redis.pcall('INCRBY', KEYS[2], expired == 0 and granted == 1 and '-' .. ARGV[2] or freed - taken)", "redis.pcall('INCRBY', KEYS[2], freed - granted)", ""},
	{"a wait is a millisecond long", "acquire",
		"math.max(1, at - now)", "math.max(1, at + 1 - now)", ""},
	{"the limiter's TTL is not given to its grants", "acquire",
		"redis.call('PEXPIRE', KEYS[3], ttl)", "redis.call('PTTL', KEYS[3])", ""},
	{"the keep-alive is not refreshed", "acquire",
		"redis.call('PEXPIRE', KEYS[1], stay)", "redis.call('PTTL', KEYS[1])", ""},
	{"old readers do not find the permits", "acquire",
		"'NX', string.format('%d', now), member) == 0", "'NX', now, string.sub(member, 1, 4) .. 'some' .. string.sub(member, 9)) == 0", "3.15.5"},
	{"a request may exceed the rate", "acquire",
		"if permits > rate", "if permits > rate + 1", ""},
	{"release gives back the oldest", "release",
		"redis.call('ZREVRANGE', KEYS[3], 0,", "redis.call('ZRANGE', KEYS[3], 0,", ""},
	{"a new rate keeps a grant that has expired", "set_rate",
		"'-inf', string.format('%.0f', now - interval))", "'-inf', string.format('%.0f', now - interval - 1))", ""},
	{"updateRate makes a limiter", "set_rate",
		"if not was and says", "if false and says", ""},
	{"a lower rate leaves other clients more", "set_rate",
		"or old > rate or keeps", "or keeps", ""},
	{"availablePermits counts a grant that expires in a millisecond", "available",
		"'-inf', string.format('%.0f', now - interval))", "'-inf', string.format('%.0f', now - interval + 1))", ""},
}

// mutationLimit is the number of operations after which a mutation must be found.
const mutationLimit = 100_000

// A mutator is a hook of a client that sends another script in place of one of ours.
type mutator struct {
	redistest.Passing
	ours, sent string // SHA-1 of each
}

func (m *mutator) mutate(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		if args := cmd.Args(); len(args) > 1 && args[0] == "evalsha" && args[1] == any(m.ours) {
			args[1] = m.sent
		}
	}
}

func (m *mutator) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { m.mutate(cmd); return next(ctx, cmd) }
}

func (m *mutator) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { m.mutate(cmds...); return next(ctx, cmds) }
}

// TestDifferentialCatchesMutations tests the comparison itself: it fails with any one of the faults above.
func TestDifferentialCatchesMutations(t *testing.T) {
	t.Parallel()
	seed := newTwinSeed(t)
	t.Logf("RATELIMITER_COMPAT_SEED=%d", seed.run)
	ours := map[string]*dispatch.Script{}
	for _, s := range dispatch.Loaded() {
		ours[s.Name] = s
	}
	jars := map[string]*jar{}
	for _, v := range twinVersions() {
		jars[v.name] = newJar(t, v)
	}
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		ctx, hook := context.Background(), &mutator{}
		rdb.AddHook(hook)
		for _, j := range jars {
			require.NoError(t, j.load(ctx, rdb))
		}
		for _, m := range mutations {
			j, script := jars[newestListed().name], ours[m.file]
			if m.version != "" {
				j = jars[m.version]
			}
			require.Equal(t, 1, strings.Count(script.Src, m.old), "%s: the line to change is not in %s.lua: %s", m.name, m.file, m.old)
			hook.ours, hook.sent = script.Sha, redistest.Must(rdb.ScriptLoad(ctx, strings.Replace(script.Src, m.old, m.new, 1)).Result())(t)
			done, _, err := playTwins(rdb, j, seed, redistest.Key(t), mutationLimit)
			require.Error(t, err, "not noticed in %d operations: %s", done, m.name)
			t.Logf("%s: caught by operation %d against %s: %s", m.name, done, j.version, strings.SplitN(err.Error(), "\n", 3)[1])
		}
	})
}
