package ratelimiter

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

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
			_, err := l.Try(w.ctx, 1)
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
	client := New(rdb)
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
				c := New(rdb)
				defer c.Close()
				l := c.RateLimiter(name)
				require.NoError(t, l.SetRate(t.Context(), Rate{Type: PerClient, Permits: 3, Interval: time.Minute}, KeepState()))
				require.NoError(t, l.Acquire(t.Context(), 1))
				want = append(want, c.ID())
			}
			c := New(rdb)
			defer c.Close()
			ids, err := idsOf(t.Context(), c.RateLimiter(name))
			require.NoError(t, err)
			slices.Sort(want)
			require.Equal(t, want, ids)
		}
	}
}
