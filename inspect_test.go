// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/wire"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestInspect(t *testing.T) {
	inWorld(t, overall(5, 10*time.Second), func(t *testing.T, w *world) {
		w.granted(2)
		w.at(3 * time.Second)
		w.granted(1)
		w.at(11 * time.Second)

		s := must(w.l.Admin().Inspect(w.ctx))(t)
		require.Equal(t, overall(5, 10*time.Second), s.Rate)
		require.Equal(t, "2", s.Value, "as it is: nobody has reclaimed what expired")
		require.WithinDuration(t, w.epoch.Add(11*time.Second), s.Time, time.Millisecond)
		require.EqualValues(t, 2, s.MemberCount)

		require.Len(t, s.Members, 2, "newest first")
		require.EqualValues(t, []int64{1, 2}, []int64{s.Members[0].Permits, s.Members[1].Permits})
		require.Equal(t, []bool{false, true}, []bool{s.Members[0].Expired, s.Members[1].Expired})
		require.WithinDuration(t, w.epoch.Add(3*time.Second), s.Members[0].Time, time.Millisecond)
		require.WithinDuration(t, w.epoch, s.Members[1].Time, time.Millisecond)
		for _, m := range s.Members {
			require.EqualValues(t, must(wire.ParseMember(m.Raw))(t).Permits, m.Permits)
			require.Equal(t, "Go", m.Writers)
		}

		require.Equal(t, s, must(w.l.Admin().Inspect(w.ctx))(t), "looking changes nothing")
	})
}

func TestInspectReadsTheKeysOfThisClient(t *testing.T) {
	inWorld(t, Rate{Type: PerClient, Permits: 3, Interval: time.Second, KeepAlive: time.Minute}, func(t *testing.T, w *world) {
		other := newClient(t, w.rdb, WithClientID("b"), func(c *config) { c.clientClock, c.sharedClock = w.client.cfg.clientClock, true })
		defer func() { require.NoError(t, other.Close()) }()
		w.granted(2)
		name := w.l.Name()

		s := must(w.l.Admin().Inspect(w.ctx))(t)
		require.Equal(t, "1", s.Value)
		require.Len(t, s.Members, 1)
		require.Equal(t, PerClient, s.Rate.Type)
		// The other client has taken nothing, so its keys do not exist, unlike the hash.
		s = must(other.RateLimiter(name).Admin().Inspect(w.ctx))(t)
		require.Empty(t, s.Value)
		require.Empty(t, s.Members)
		require.NotNil(t, s.Members)
	})
}

func TestInspectIsBounded(t *testing.T) {
	inWorld(t, overall(1000, time.Minute), func(t *testing.T, w *world) {
		for i := range 300 {
			w.put(time.Duration(i)*time.Millisecond, grant(uint32(i+1)))
		}
		s := must(w.l.Admin().Inspect(w.ctx))(t)
		require.EqualValues(t, 300, s.MemberCount)
		require.Len(t, s.Members, 100)
		require.EqualValues(t, 300, s.Members[0].Permits)
		require.EqualValues(t, 201, s.Members[99].Permits)

		for i := range 100 {
			require.NoError(t, w.rdb.HSet(w.ctx, w.l.Name(), "junk"+string(rune('0'+i)), i).Err())
		}
		require.Len(t, must(do(w.ctx, w.l, (*redisson.Limiter).Inspect))(t).Fields, 4)
	})
}

func TestInspectOfNoLimiter(t *testing.T) {
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		s, err := w.l.Admin().Inspect(w.ctx)
		require.ErrorIs(t, err, ErrNotInitialized)
		require.ErrorContains(t, err, w.l.Name())
		require.Zero(t, s.Rate)
		require.Empty(t, s.Value)

		// The hash is gone but its permits are not.
		w.put(0, grant(3))
		s, err = w.l.Admin().Inspect(w.ctx)
		require.ErrorIs(t, err, ErrNotInitialized)
		require.Len(t, s.Members, 1)
		require.EqualValues(t, 3, s.Members[0].Permits)

		for _, typ := range []string{"0", "7"} {
			require.NoError(t, w.rdb.HSet(w.ctx, w.l.Name(), "rate", "many", "interval", "1000", "type", typ).Err())
			s, err = w.l.Admin().Inspect(w.ctx)
			require.ErrorIs(t, err, ErrMalformed)
			require.Zero(t, s.Rate)
			require.Len(t, s.Members, 1)
		}
	})
}

// TestInspectOfAMark checks that the permits of a peer with a fast clock are shown as expired an interval after they were
// first seen, and no earlier, whatever their score.
func TestInspectOfAMark(t *testing.T) {
	for _, ahead := range []time.Duration{5 * time.Second, time.Hour} {
		inWorld(t, overall(10, 20*time.Second), func(t *testing.T, w *world) {
			w.put(ahead, javaGrant(10))
			w.setValue(0)
			w.rejected(10, 20*time.Second)
			for _, expired := range []bool{false, true} {
				at := 20*time.Second - time.Millisecond
				if expired {
					at = 20 * time.Second
				}
				w.at(at)
				s := must(w.l.Admin().Inspect(w.ctx))(t)
				require.Len(t, s.Members, 1)
				require.Equal(t, expired, s.Members[0].Expired, "%v ahead, at %v", ahead, at)
			}
		})
	}
}

// TestInspectTellsLayoutsApart puts one member of each writer into a set: the three that share a format have
// layouts of their own.
func TestInspectTellsLayoutsApart(t *testing.T) {
	inWorld(t, overall(100, time.Minute), func(t *testing.T, w *world) {
		for i, m := range redistest.JavaMembers(5) {
			w.put(time.Duration(i)*time.Millisecond, m)
		}
		w.put(5*time.Millisecond, grant(6))
		w.put(6*time.Millisecond, redisson.Member(true, redisson.RandomID(), 7))
		require.NoError(t, w.rdb.Do(w.ctx, "ZADD", w.permitsKey(), "-inf", "who wrote this?").Err())
		s := must(w.l.Admin().Inspect(w.ctx))(t)
		count := map[string]int{}
		for _, m := range s.Members {
			count[m.Writers]++
		}
		require.Equal(t, map[string]int{wire.LayoutFI.Writers(): 1, wire.LayoutLc0I.Writers(): 2, wire.LayoutBc0IShort.Writers(): 1,
			wire.LayoutBc0ILong.Writers(): 1, "Go": 1, wire.LayoutUnknown.Writers(): 1}, count)
		require.EqualValues(t, []int64{7, 6, 5}, []int64{s.Members[0].Permits, s.Members[1].Permits, s.Members[2].Permits})
		stranger := s.Members[len(s.Members)-1]
		require.Equal(t, "who wrote this?", string(stranger.Raw))
		require.True(t, stranger.Expired)
	})
}

// TestGrantsHaveOurLayout checks the layout of what each operation of this package leaves in a set.
func TestGrantsHaveOurLayout(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		w.granted(3)
		require.NoError(t, w.l.Release(w.ctx, 1))
		require.NoError(t, w.l.CoolDown(w.ctx, time.Now().Add(time.Hour)))
		s := must(w.l.Admin().Inspect(w.ctx))(t)
		for _, m := range s.Members {
			require.Equal(t, "Go", m.Writers)
		}
	})
}

// idsOf returns what Clients returns, in order, and its error.
func idsOf(ctx context.Context, l *RateLimiter) (ids []string, err error) {
	for id, e := range l.Admin().Clients(ctx) {
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
		require.Empty(t, must(idsOf(w.ctx, w.l))(t))

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
		ids := must(idsOf(w.ctx, w.l))(t)
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
			must(l.Allow(w.ctx, 1))(t)
			ids := must(idsOf(w.ctx, l))(t)
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
		ids := must(idsOf(w.ctx, w.l))(t)
		require.Equal(t, slices.Sorted(maps.Keys(want)), ids)
		all := c.sent.Load()
		if !redistest.TTLsAreVirtual() { // miniredis returns everything in one step
			require.Greater(t, all, int64(3))
		}
		for range w.l.Admin().Clients(w.ctx) {
			break
		}
		require.Equal(t, all+1, c.sent.Load())
	})
}

// In a cluster, and in a ring, the ids are looked for where the limiter is.
func TestClientsInAClusterAndARing(t *testing.T) {
	redistest.NeedReal(t)
	cluster := redistest.StartCluster(t)
	ring := newRealRing(t)
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
			ids := must(idsOf(t.Context(), c.RateLimiter(name)))(t)
			slices.Sort(want)
			require.Equal(t, want, ids)
		}
	}
}

// TestFittingOthersSaysNothingOfOurs has the rate be lowered once more while a lower rate is made to fit the permits of another client: that
// these add up then does not say that those of this client do, and none of its grants is dropped.
func TestFittingOthersSaysNothingOfOurs(t *testing.T) {
	per := func(permits int64) Rate { return Rate{Type: PerClient, Permits: permits, Interval: time.Hour} }
	inWorld(t, per(20), func(t *testing.T, w *world) {
		w.another().granted(5)
		w.granted(1)
		lowered := false
		onScripts(w.rdb, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if source := cmd.Args()[1]; !lowered && (source == scripts.Heal.Sha || source == scripts.Heal.Src) {
				lowered = true
				w.granted(5)
				require.NoError(t, w.rdb.HSet(ctx, w.l.redis.Keys.Hash, "rate", 6).Err())
				w.granted(1)
			}
			return next(ctx, cmd)
		})
		require.NoError(t, w.l.SetRate(w.ctx, per(10)))
		require.True(t, lowered)
		require.False(t, w.try(5).Granted)
		used, _ := w.used()
		require.EqualValues(t, 6, used)
	})
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
		"too many are in use":    {state{4, 16, 0}, state{"-6", 16, 0}},
		"too many by far":        {state{15, 900, 0}, state{"-890", 900, 0}},
		uuid.NewString():         {state{20, 0, ttl}, state{"10", 0, ttl}}, // none is in use
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
				// What others have under such names stays as it is.
				require.NoError(t, w.rdb.Set(w.ctx, keys("another type").Permits[PerClient], 1, 0).Err())
				others := map[string]string{"a text": "hello", "a number": "17", "a number beside a set": "12"}
				for id, text := range others {
					require.NoError(t, w.rdb.Set(w.ctx, keys(id).Value[PerClient], text, 0).Err())
				}
				require.NoError(t, w.rdb.ZAdd(w.ctx, keys("a number beside a set").Permits[PerClient], redis.Z{Score: float64(time.Now().UnixMilli()), Member: "user0001"}).Err())
				require.NoError(t, lower(w))
				for id, text := range others {
					require.Equal(t, text, w.rdb.Get(w.ctx, keys(id).Value[PerClient]).Val(), id)
				}
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
