// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
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

// TestPinnedKeysStayOnTheirShard checks that a key goes to its own shard or nowhere, whatever shards are down, and that the keys of
// other shards are not affected.
func TestPinnedKeysStayOnTheirShard(t *testing.T) {
	inRing(t, func(r *testRing) {
		whole := r.homes(r.rdb, "k")
		s := Pin(r.rdb)
		require.Equal(t, whole, r.homes(s, "k"))
		for _, dead := range [][]string{{"b"}, {"a", "c"}, nil, {"c"}, {"a"}, {"a", "b", "c"}, nil, {"b"}} {
			r.set(dead...)
			require.Equal(t, without(whole, dead...), r.homes(s, "k"), "%v are dead", dead)
			require.Equal(t, 3-len(dead), r.rdb.Len())
		}
		late := Pin(r.rdb) // while a shard is down
		require.Equal(t, without(whole, "b"), r.homes(late, "k"))
		r.set()
		require.Equal(t, whole, r.homes(late, "k"))
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

// TestShardGoesDownWhileACommandIsOnItsWay checks that a command goes to no other shard if its own is taken out after it was let
// through, while it is in a hook of the ring.
func TestShardGoesDownWhileACommandIsOnItsWay(t *testing.T) {
	inRing(t, func(r *testRing) {
		h := &slowHook{}
		r.rdb.AddHook(h)
		s := Of(r.rdb)
		home := r.homes(s, "k")
		require.Equal(t, 60, h.seen, "hooks of the ring run")
		h.delay = 5 * time.Second
		for key, addr := range home {
			r.set()
			r.dead[addr].Store(true)
			ran, err := r.send(s, key) // by a connection that still works
			require.NoError(t, err)
			require.Equal(t, addr, ran)
			require.Equal(t, 2, r.rdb.Len())
		}
	})
}

// TestResharded checks that once SetAddrs has changed the shards every key goes where the ring sends it, whether all are up or not.
func TestResharded(t *testing.T) {
	for name, addrs := range map[string]map[string]string{
		"a shard more":    {"a": "a", "b": "b", "c": "c", "d": "d"},
		"a shard less":    {"a": "a", "b": "b"},
		"another address": {"a": "a", "b": "b", "c": "d"},
		"another name":    {"a": "a", "b": "b", "x": "c"},
		"names exchanged": {"a": "b", "b": "a", "c": "c"},
		"nothing":         {"a": "a", "b": "b", "c": "c"},
	} {
		t.Run(name, func(t *testing.T) {
			inRing(t, func(r *testRing) {
				s := Pin(r.rdb)
				if name == "another address" {
					r.set("c") // it is replaced because it is dead
				}
				r.rdb.SetAddrs(addresses(addrs))
				home := r.homes(r.rdb, "k")
				require.Equal(t, home, r.homes(s, "k"))
				r.set("a")
				if name == "nothing" {
					require.Equal(t, without(home, "a"), r.homes(s, "k"))
					return
				}
				require.Equal(t, r.homes(r.rdb, "k"), r.homes(s, "k"))
			})
		})
	}
}

// TestPinnedWithAnotherHash checks that the hash that the user gave the ring decides.
func TestPinnedWithAnotherHash(t *testing.T) {
	inRing(t, func(r *testRing) {
		s := Pin(r.rdb)
		home := r.homes(s, "k")
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

// TestWhatIsNotPinned checks that Pin returns every client but a ring.
func TestWhatIsNotPinned(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{})
	defer func() { _ = rdb.Close() }()
	require.Equal(t, Sender(rdb), Pin(rdb))
	require.Nil(t, Pin(nil))
	require.Equal(t, Sender((*redis.Ring)(nil)), Pin((*redis.Ring)(nil)))
}
