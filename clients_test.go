package ratelimiter

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// idsOf returns what Clients returns, in order, and its error.
func idsOf(ctx context.Context, l *RateLimiter) (ids []string, err error) {
	for id, e := range l.Clients(ctx) {
		if e != nil {
			return ids, e
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids, nil
}

func TestClientsOfAPerClientLimiter(t *testing.T) {
	inWorld(t, Rate{Type: PerClient, Permits: 3, Interval: time.Second}, func(t *testing.T, w *world) {
		ids, err := idsOf(w.ctx, w.l)
		require.NoError(t, err)
		require.Empty(t, ids)

		w.granted(1)
		name := w.l.Name()
		for key, value := range map[string]string{
			"{" + name + "}:value:a":          "1", // of a client whose set is gone
			"{" + name + "}:value:b:c":        "1",
			"{" + name + "}:value":            "1", // of an OVERALL limiter
			"{" + name + "}:value:":           "1",
			"{" + name + "}:told":             "1",
			"{" + name + "x}:value:other":     "1",
			"x{" + name + "}:value:other":     "1",
			"{" + name + "}:various:somebody": "1",
		} {
			require.NoError(t, w.rdb.Set(w.ctx, key, value, 0).Err())
		}
		require.NoError(t, w.rdb.ZAdd(w.ctx, "{"+name+"}:permits:b:c", redis.Z{Member: grant(1)}).Err())
		require.NoError(t, w.rdb.ZAdd(w.ctx, "{"+name+"}:permits:d", redis.Z{Member: grant(1)}).Err())
		ids, err = idsOf(w.ctx, w.l)
		require.NoError(t, err)
		require.Equal(t, slices.Sorted(slices.Values([]string{w.client.ID(), "a", "b:c", "d"})), ids)
	})
}

// A name is not a pattern.
func TestClientsOfAnOddName(t *testing.T) {
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		for _, tail := range []string{"*", "?", "[a]", `\`, "{x}", "^-]", "\x00\n"} {
			name := w.l.Name() + tail
			l := w.client.RateLimiter(name)
			require.NoError(t, l.SetRate(w.ctx, Rate{Type: PerClient, Permits: 3, Interval: time.Second}))
			_, err := l.Allow(w.ctx, 1)
			require.NoError(t, err)
			ids, err := idsOf(w.ctx, l)
			require.NoError(t, err)
			require.Equal(t, []string{w.client.ID()}, ids, "%q", name)
		}
	})
}

// Among many keys the iterator takes several steps, and a loop that is left early takes no more of them.
func TestClientsInSteps(t *testing.T) {
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		want := map[string]bool{}
		for i := range 30 {
			var pairs []any
			for j := range 100 {
				id := fmt.Sprint("client", 100*i+j)
				want[id] = true
				pairs = append(pairs, "{"+w.l.Name()+"}:value:"+id, 1)
			}
			require.NoError(t, w.rdb.MSet(w.ctx, pairs...).Err())
		}
		c := count(w.rdb)
		ids, err := idsOf(w.ctx, w.l)
		require.NoError(t, err)
		require.Equal(t, slices.Sorted(maps.Keys(want)), ids)
		all := c.sent.Load()
		if !redistest.TTLsAreVirtual() { // miniredis returns everything in one step
			require.Greater(t, all, int64(3))
		}
		for range w.l.Clients(w.ctx) {
			break
		}
		require.Equal(t, all+1, c.sent.Load())
	})
}

func TestClientsErrors(t *testing.T) {
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(w.ctx)
		cancel()
		_, err := idsOf(ctx, w.l)
		require.Equal(t, context.Canceled, err)
		_, err = idsOf(w.ctx, w.client.RateLimiter(""))
		require.ErrorIs(t, err, ErrInvalidArgument)
		require.NoError(t, w.client.Close())
		_, err = idsOf(w.ctx, w.l)
		require.ErrorIs(t, err, ErrClosed)
	})
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer rdb.Close()
	client := newClient(t, rdb)
	defer client.Close()
	_, err := idsOf(t.Context(), client.RateLimiter("L"))
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, `Clients of "L"`)
}

// In a cluster, and in a ring, the ids are looked for where the limiter is.
func TestClientsInAClusterAndARing(t *testing.T) {
	redistest.NeedReal(t)
	cluster := redistest.StartCluster(t)
	ring := newRealRing(t, nil)
	for _, rdb := range []redis.UniversalClient{cluster.Client(t), ring.rdb} {
		for i := range 8 {
			var want []string
			name := fmt.Sprint("clients of ", i)
			for range 3 {
				c := newClient(t, rdb)
				defer c.Close()
				l := c.RateLimiter(name)
				require.NoError(t, l.SetRate(t.Context(), Rate{Type: PerClient, Permits: 3, Interval: time.Minute}, KeepState()))
				require.NoError(t, l.Acquire(t.Context(), 1))
				want = append(want, c.ID())
			}
			c := newClient(t, rdb)
			defer c.Close()
			ids, err := idsOf(t.Context(), c.RateLimiter(name))
			require.NoError(t, err)
			slices.Sort(want)
			require.Equal(t, want, ids)
		}
	}
}

// TestALowerRateFitsAllClients lowers the rate of a PER_CLIENT limiter from 20 to 10. The permits of every client whose
// keys are there fit the new rate afterwards, before that client makes a call: Redisson would take what is left.
func TestALowerRateFitsAllClients(t *testing.T) {
	const interval, ttl = time.Minute, time.Hour
	per := func(permits int64) Rate { return Rate{Type: PerClient, Permits: permits, Interval: interval} }
	type state struct {
		value any // nil for none
		used  int64
		ttl   time.Duration
	}
	clients := map[string]struct{ before, after state }{
		"some are left":          {state{15, 5, 0}, state{"5", 5, 0}},
		"and it expires":         {state{15, 5, ttl}, state{"5", 5, ttl}},
		"too many are in use":    {state{4, 16, 0}, state{"0", 10, 0}},
		"too many by far":        {state{15, 900, 0}, state{"0", 10, 0}},
		"none is in use":         {state{20, 0, ttl}, state{"10", 0, ttl}},
		"the value is lost":      {state{nil, 5, ttl}, state{"5", 5, ttl}},
		"the value is no number": {state{"x", 5, 0}, state{"5", 5, 0}},
		"it fits":                {state{3, 7, 0}, state{"3", 7, 0}},
	}
	for how, lower := range map[string]func(w *world) error{
		"SetRate":             func(w *world) error { return w.l.SetRate(w.ctx, per(10)) },
		"SetRate, state kept": func(w *world) error { return w.l.SetRate(w.ctx, per(10), KeepState()) },
		"UpdateRate":          func(w *world) error { _, err := w.l.UpdateRate(w.ctx, per(10)); return err },
		"of no number": func(w *world) error {
			require.NoError(w.t, w.rdb.HSet(w.ctx, w.l.Name(), "rate", "x").Err())
			return w.l.SetRate(w.ctx, per(10), KeepState())
		},
		"of a lost hash": func(w *world) error {
			require.NoError(w.t, w.rdb.Del(w.ctx, w.l.Name()).Err())
			return w.l.SetRate(w.ctx, per(10), KeepState())
		},
	} {
		t.Run(how, func(t *testing.T) {
			inWorld(t, per(20), func(t *testing.T, w *world) {
				keys := func(id string) redisson.Keys { return redisson.NewKeys(w.l.Name(), id) }
				for id, c := range clients {
					k := keys(id)
					if c.before.value != nil {
						require.NoError(t, w.rdb.Set(w.ctx, k.Value[PerClient], c.before.value, c.before.ttl).Err())
					}
					for i := range c.before.used {
						require.NoError(t, w.rdb.ZAdd(w.ctx, k.Permits[PerClient], redis.Z{Score: float64(time.Now().UnixMilli() + i%10), Member: grant(1)}).Err())
					}
					if c.before.ttl > 0 && c.before.used > 0 {
						require.NoError(t, w.rdb.PExpire(w.ctx, k.Permits[PerClient], c.before.ttl).Err())
					}
				}
				require.NoError(t, w.rdb.Set(w.ctx, keys("another type").Permits[PerClient], 1, 0).Err())
				require.NoError(t, lower(w))
				for id, c := range clients {
					k := keys(id)
					require.Equal(t, c.after.value, w.rdb.Get(w.ctx, k.Value[PerClient]).Val(), id)
					require.EqualValues(t, c.after.used, w.rdb.ZCard(w.ctx, k.Permits[PerClient]).Val(), id)
					for _, key := range []string{k.Value[PerClient], k.Permits[PerClient]} {
						if left := w.rdb.PTTL(w.ctx, key).Val(); c.after.ttl == 0 || left == -2 {
							require.Negative(t, left, "%s: %s", id, key)
						} else {
							require.InDelta(t, c.after.ttl, left, float64(time.Minute), "%s: %s", id, key)
						}
					}
				}
			})
		})
	}
	// The keys are looked for only if they may not fit.
	for _, c := range []struct {
		before, after Rate
		opts          []RateOption
		looks         bool
	}{
		{per(20), per(19), nil, true},
		{per(20), per(20), nil, false},
		{per(20), per(21), nil, false},
		{overall(20, interval), per(10), nil, true},
		{overall(20, interval), overall(10, interval), nil, false},
		{per(20), overall(10, interval), nil, false},
		{Rate{}, per(10), nil, false},
		{Rate{}, per(10), []RateOption{KeepState()}, true}, // its hash may be lost
		{Rate{}, overall(10, interval), []RateOption{KeepState()}, false},
	} {
		inWorld(t, c.before, func(t *testing.T, w *world) {
			require.NoError(t, w.client.RateLimiter("{"+w.l.Name()+"}:another").SetRate(w.ctx, per(1))) // Redis knows the script
			n := count(w.rdb)
			require.NoError(t, w.l.SetRate(w.ctx, c.after, c.opts...))
			require.Equal(t, c.looks, n.sent.Load() > 1, "%v to %v", c.before, c.after)
		})
	}
}
