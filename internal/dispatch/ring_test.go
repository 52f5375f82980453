// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"fmt"
	"maps"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A testRing is a ring of miniredis servers whose heartbeats are under the control of the test.
type testRing struct {
	t       *testing.T
	rdb     *redis.Ring
	servers map[string]*miniredis.Miniredis // by the letter of its address
	dead    map[string]*atomic.Bool
}

// inRing runs f in a bubble, with a ring of the shards a, b and c, each at the address of the same letter.
func inRing(t *testing.T, f func(r *testRing), opts ...func(*redis.RingOptions)) {
	synctest.Test(t, func(t *testing.T) {
		r := &testRing{t: t, servers: map[string]*miniredis.Miniredis{}, dead: map[string]*atomic.Bool{}}
		for _, addr := range []string{"a", "b", "c", "d", "e"} {
			m := miniredis.NewMiniRedis()
			t.Cleanup(m.Close)
			r.servers[addr], r.dead[addr] = m, new(atomic.Bool)
		}
		o := &redis.RingOptions{
			Addrs:              addresses(map[string]string{"a": "a", "b": "b", "c": "c"}),
			DisableIdentity:    true,
			PoolSize:           100,
			HeartbeatFrequency: time.Second,
			HeartbeatFn:        func(_ context.Context, c *redis.Client) bool { return !r.dead[letter(c.Options().Addr)].Load() },
			Dialer: func(_ context.Context, _, addr string) (net.Conn, error) {
				addr = letter(addr)
				if r.dead[addr].Load() {
					return nil, &net.OpError{Op: "dial", Err: fmt.Errorf("%s is dead", addr)}
				}
				return r.servers[addr].Dial()
			},
		}
		for _, opt := range opts {
			opt(o)
		}
		r.rdb = redis.NewRing(o)
		defer func() { _ = r.rdb.Close() }()
		f(r)
	})
}

// addresses returns the addresses of the shards with these letters. A host name would have to be looked up.
func addresses(letters map[string]string) map[string]string {
	addrs := map[string]string{}
	for name, l := range letters {
		addrs[name] = fmt.Sprintf("127.0.0.1:%d", l[0])
	}
	return addrs
}

func letter(addr string) string {
	var l byte
	_, _ = fmt.Sscanf(addr, "127.0.0.1:%d", &l)
	return string(l)
}

// set makes the shards at those addresses fail and all others work, and waits until the ring knows.
func (r *testRing) set(dead ...string) {
	for _, d := range r.dead {
		d.Store(false)
	}
	for _, addr := range dead {
		r.dead[addr].Store(true)
	}
	time.Sleep(3500 * time.Millisecond)
}

// send sends one command for a key, and returns the address of the shard that it ran on.
func (r *testRing) send(s Sender, key string) (string, error) {
	r.t.Helper()
	before := map[string]int{}
	for addr, m := range r.servers {
		before[addr], _ = m.Incr(key, 1) // far above what else runs
	}
	cmd := redis.NewCmd(r.t.Context(), "incrby", key, 1000)
	err := s.Process(r.t.Context(), cmd)
	require.Equal(r.t, err, cmd.Err())
	ran := ""
	for addr, m := range r.servers {
		if n, _ := m.Incr(key, 1); n > before[addr]+1 {
			require.Empty(r.t, ran, "it ran on one shard")
			ran = addr
		}
	}
	require.Equal(r.t, err == nil, ran != "", "%v", err)
	return ran, err
}

// homes sends a command for each of 60 keys with that prefix, and returns where it was executed: "" stands for
// nowhere, in which case the error must say that nothing was sent.
func (r *testRing) homes(s Sender, prefix string) map[string]string {
	r.t.Helper()
	homes := map[string]string{}
	for i := range 60 {
		key := fmt.Sprint(prefix, i)
		addr, err := r.send(s, key)
		if err != nil {
			require.ErrorIs(r.t, err, errShardDown)
			require.Equal(r.t, retry.NotExecuted, Classify(err))
		}
		homes[key] = addr
	}
	return homes
}

// without returns homes with nothing on the shards that are down.
func without(homes map[string]string, dead ...string) map[string]string {
	left := maps.Clone(homes)
	for key, addr := range homes {
		if slices.Contains(dead, addr) {
			left[key] = ""
		}
	}
	return left
}

// spread checks that keys were executed on each of those shards and nowhere else.
func (r *testRing) spread(homes map[string]string, addrs ...string) {
	r.t.Helper()
	n := map[string]int{}
	for _, addr := range homes {
		n[addr]++
	}
	for _, addr := range addrs {
		require.NotZero(r.t, n[addr], "%s has keys: %v", addr, n)
	}
	require.Len(r.t, n, len(addrs), "%v", n)
}

// A key goes to its own shard or nowhere, and the keys of other shards are not affected.
func TestPinnedKeysStayOnTheirShard(t *testing.T) {
	inRing(t, func(r *testRing) {
		s := Pin(r.rdb)
		home := r.homes(s, "k")
		r.spread(home, "a", "b", "c")
		for _, dead := range [][]string{{"b"}, {"a", "c"}, nil, {"c"}, {"a"}, {"a", "b", "c"}, nil} {
			r.set(dead...)
			require.Equal(t, without(home, dead...), r.homes(s, "k"), "%v are dead", dead)
			require.Equal(t, 3-len(dead), r.rdb.Len())
			late := r.homes(s, fmt.Sprint("asked first when dead ", dead)) // keys that were never used before
			for _, addr := range dead {
				require.NotContains(t, late, addr)
			}
		}
		r.set("b")
		first := r.homes(s, "first")
		r.set()
		require.Equal(t, first, without(r.homes(s, "first"), "b"))
		_, err := r.send(s, "{"+"k1}:value")
		require.NoError(t, err)

		require.NoError(t, r.rdb.Close())
		require.ErrorIs(t, s.Process(t.Context(), redis.NewCmd(t.Context(), "get", "k1")), redis.ErrClosed)
	})
}

// A slowHook sees every command, and holds each for a while.
type slowHook struct {
	through
	delay time.Duration
	seen  int
}

func (h *slowHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.seen++
		time.Sleep(h.delay)
		return next(ctx, cmd)
	}
}

// A shard is taken out after a command was let through, and before the ring chooses a shard for it.
func TestShardGoesDownWhileACommandIsOnItsWay(t *testing.T) {
	inRing(t, func(r *testRing) {
		h := &slowHook{}
		r.rdb.AddHook(h)
		s := Pin(r.rdb)
		home := r.homes(s, "k")
		require.Equal(t, 60, h.seen, "hooks of the ring run")
		for key, addr := range home {
			h.delay = 0
			r.set()
			ran, err := r.send(s, key)
			require.NoError(t, err)
			require.Equal(t, addr, ran)
			h.delay = 5 * time.Second
			r.dead[addr].Store(true)
			ran, err = r.send(s, key)
			require.Empty(t, ran)
			require.ErrorIs(t, err, errShardDown)
			require.Equal(t, 2, r.rdb.Len())
		}
	})
}

// SetAddrs moves keys, as it should, and then keys of a shard that is down stay pinned as far as that can be
// known.
func TestPinnedRingIsResharded(t *testing.T) {
	for name, test := range map[string]struct {
		addrs   map[string]string
		unknown bool // the names of the shards are not known
	}{
		"a shard more":     {map[string]string{"a": "a", "b": "b", "c": "c", "d": "d"}, true},
		"a shard less":     {map[string]string{"a": "a", "b": "b"}, true},
		"another address":  {map[string]string{"a": "a", "b": "b", "c": "d"}, false},
		"other addresses":  {map[string]string{"a": "d", "b": "b", "c": "e"}, false},
		"another name":     {map[string]string{"a": "a", "b": "b", "x": "c"}, true},
		"another shard":    {map[string]string{"a": "a", "b": "b", "d": "d"}, true},
		"all of them":      {map[string]string{"d": "d", "e": "e"}, true},
		"names exchanged":  {map[string]string{"a": "b", "b": "a", "c": "c"}, false},
		"nothing":          {map[string]string{"a": "a", "b": "b", "c": "c"}, false},
		"three more names": {map[string]string{"a": "a", "b": "b", "c": "c", "d": "d", "e": "e"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inRing(t, func(r *testRing) {
				s := Pin(r.rdb)
				r.homes(s, "k")
				r.rdb.SetAddrs(addresses(test.addrs))
				addrs := slices.Collect(maps.Values(test.addrs))
				home := r.homes(s, "k")
				r.spread(home, addrs...)
				for key, addr := range home {
					shard, err := r.rdb.GetShardClientForKey(key)
					require.NoError(t, err)
					require.Equal(t, letter(shard.Options().Addr), addr, "where the ring has it")
				}
				for _, dead := range addrs {
					r.set(dead)
					require.Equal(t, without(home, dead), r.homes(s, "k"))
					unseen := r.homes(s, "unseen"+dead)
					if test.unknown {
						r.spread(unseen, "")
					}
					r.set()
					now := r.homes(s, "unseen"+dead)
					r.spread(now, addrs...)
					if !test.unknown {
						require.Equal(t, without(now, dead), unseen)
					}
				}
			})
		})
	}
}

// After a dead shard is replaced, what it held is gone and its keys are usable again.
func TestDeadShardIsReplaced(t *testing.T) {
	inRing(t, func(r *testRing) {
		s := Pin(r.rdb)
		want := r.homes(s, "k")
		r.set("b")
		r.rdb.SetAddrs(addresses(map[string]string{"a": "a", "b": "d", "c": "c"}))
		for key, addr := range want {
			want[key] = strings.Replace(addr, "b", "d", 1)
		}
		require.Equal(t, want, r.homes(s, "k"))
	})
}

// A ring may be pinned when a shard is down already, or after SetAddrs.
func TestPinnedLate(t *testing.T) {
	inRing(t, func(r *testRing) {
		whole := r.homes(r.rdb, "k")
		r.set("b")
		s := Pin(r.rdb)
		require.Equal(t, without(whole, "b"), r.homes(s, "k"))
		r.set()
		require.Equal(t, whole, r.homes(s, "k"))
		r.set("a")
		require.Equal(t, without(whole, "a"), r.homes(s, "k"))
	})
	for _, at := range []map[string]string{nil, {"a": "a"}, {"a": "a", "b": "b", "c": "c"}} {
		inRing(t, func(r *testRing) {
			now := map[string]string{"a": "a", "b": "b", "d": "d"}
			r.rdb.SetAddrs(addresses(now))
			s := Pin(r.rdb)
			home := r.homes(s, "k")
			r.spread(home, "a", "b", "d")
			r.set("d")
			require.Equal(t, without(home, "d"), r.homes(s, "k"))
		}, func(o *redis.RingOptions) { o.Addrs = addresses(at) })
	}
}

// The hash that the user gave the ring decides, even if it leaves a shard without keys.
func TestPinnedWithAnotherHash(t *testing.T) {
	inRing(t, func(r *testRing) {
		s := Pin(r.rdb)
		home := r.homes(s, "k")
		r.spread(home, "a", "b")
		addr, err := r.send(s, "rare")
		require.NoError(t, err)
		require.Equal(t, "c", addr)
		for _, dead := range []string{"a", "b", "c"} {
			r.set(dead)
			require.Equal(t, without(home, dead), r.homes(s, "k"))
			_, err := r.send(s, "rare")
			require.Equal(t, dead == "c", err != nil)
		}
	}, func(o *redis.RingOptions) {
		o.NewConsistentHash = func(shards []string) redis.ConsistentHash { return preference(shards) }
	})
}

// preference hashes most keys to a or b, and one to c.
type preference []string

func (p preference) Get(key string) string {
	order := []string{"a", "b", "c"}
	if key == "rare" {
		order = []string{"c", "a", "b"}
	} else if len(key)%2 == 1 {
		order = []string{"b", "a", "c"}
	}
	for _, shard := range order {
		if slices.Contains(p, shard) {
			return shard
		}
	}
	return ""
}

// However many Clients and limiters a ring has, it and its shards are prepared once.
func TestRingIsPreparedOnce(t *testing.T) {
	inRing(t, func(r *testRing) {
		p := Pin(r.rdb).(*pinnedRing).pins
		runtime.GC()
		for range 100 {
			require.Same(t, p, Pin(r.rdb).(*pinnedRing).pins)
			require.Same(t, p, Pin(struct{ *redis.Ring }{r.rdb}).(*pinnedRing).pins)
		}
	})
	rdb := redis.NewClient(&redis.Options{})
	defer rdb.Close()
	require.Equal(t, Sender(rdb), Pin(rdb))
	require.Nil(t, Pin(nil))
	require.Equal(t, Sender((*redis.Ring)(nil)), Pin((*redis.Ring)(nil)))
}
