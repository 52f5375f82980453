// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

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
			j, script := jars[newestListed().name], ourScript(t, m.file)
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

// TestDifferentialSeesHeals checks that an operation is compared when all that it does is done. A caller has its grant
// before a large set is added up, which takes several calls of heal; the hash says how far they have come.
func TestDifferentialSeesHeals(t *testing.T) {
	t.Parallel()
	j, heal := newJar(t, newestListed()), ourScript(t, "heal")
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		ctx, beside, heals := context.Background(), redistest.Peer(t, rdb), 0
		require.NoError(t, j.load(ctx, rdb))
		rdb.AddHook(redistest.OnCommand(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if args := cmd.Args(); args[0] == "evalsha" && args[1] == any(heal.Sha) {
				if heals++; heals > 1 {
					// Waits in real time, of which a bubble has no other, so that a comparison that does not wait comes before it.
					_ = beside.Do(ctx, "blpop", redistest.Key(t)+"nothing", "0.02").Err()
				}
			}
			return next(ctx, cmd)
		}))
		w := newTwinWorld(rand.New(rand.NewPCG(1, 7)), rdb, j, redistest.Key(t))
		require.True(t, w.big && !w.mixed)
		w.ours.hash, w.ours.hashTTL = map[string]string{"rate": "3000", "interval": "10000", "type": "0"}, noTTL
		slot := &w.ours.slots[0]
		for i := range int64(2100) {
			slot.members = append(slot.members, twinMember{time.Now().UnixMilli() - 2100 + i, 1, memberOf(j.version, 1)})
		}
		slot.has, slot.value, slot.valueTTL, slot.permitsTTL = true, 900, noTTL, noTTL
		require.NoError(t, w.copy(ctx, 0))
		require.NoError(t, w.step(ctx, twinOp{name: "tryAcquire", permits: 1}))
		require.NoError(t, w.step(ctx, twinOp{name: "setRateArgs", client: 1, typ: "0", rate: 3001, interval: 10_000, keep: true}))
		require.NoError(t, w.step(ctx, twinOp{name: "tryAcquire", permits: 1}), "the client learns that the rate has changed")
		heals = 0
		require.NoError(t, w.step(ctx, twinOp{name: "tryAcquire", permits: 1}), "and so it checks")
		require.Equal(t, 3, heals, "for 2103 members")
	})
}

// TestDifferentialAllowsForRealTime checks that TTLs, which run in real time, may differ by what has passed of it, however much
// that is, and by no more.
func TestDifferentialAllowsForRealTime(t *testing.T) {
	const began = 1_000_000
	for passed, want := range map[int64]int{0: 3, 4_998: 3, 4_999: 0, 50_000: 0} { // ms
		a, b := twinState{hashTTL: 600_000, at: began}, twinState{hashTTL: 595_000, at: began + passed}
		a.slots[1], b.slots[1] = twinSlot{valueTTL: 600_000, permitsTTL: 595_000}, twinSlot{valueTTL: 595_000, permitsTTL: 600_000}
		require.Len(t, a.differs(b, began), want, "after %d ms", passed)
		b.hashTTL = noTTL
		require.Len(t, a.differs(b, began), max(1, want), "after %d ms", passed)
	}
}

// ourScript returns the script that we send with that name.
func ourScript(t testing.TB, name string) *dispatch.Script {
	t.Helper()
	for _, s := range dispatch.Loaded() {
		if s.Name == name {
			return s
		}
	}
	require.FailNow(t, "no script "+name)
	return nil
}
