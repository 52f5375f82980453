package ratelimiter

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// others returns further limiters of the world's client, one for each rate.
func (w *world) others(rates ...Rate) []*RateLimiter {
	w.t.Helper()
	var list []*RateLimiter
	for i, r := range rates {
		l := w.client.RateLimiter(fmt.Sprintf("%s-%d", w.l.Name(), i))
		require.NoError(w.t, l.SetRate(w.ctx, r))
		list = append(list, l)
	}
	return list
}

// apart is an option that makes the client decide limiters in turn, as if it had several Redis servers.
func apart(c *config) { c.divided = true }

// inBothWays runs f twice: once where one script decides a list, and once where its limiters are decided in turn.
func inBothWays(t *testing.T, f func(t *testing.T, w *world), opts ...Option) {
	for _, way := range []string{"one script", "in turn"} {
		t.Run(way, func(t *testing.T) {
			opts := slices.Clone(opts)
			if way == "in turn" {
				opts = append(opts, apart)
			}
			inWorld(t, Rate{}, f, opts...)
		})
	}
}

func (w *world) all(want AllResult, demands ...Demand) {
	w.t.Helper()
	got, err := w.client.TryAcquireAll(w.ctx, 0, demands...)
	require.NoError(w.t, err)
	w.same(want, got)
}

func (w *world) same(want, got AllResult) {
	w.t.Helper()
	name := func(r AllResult) string {
		if r.Limiter == nil {
			return ""
		}
		return r.Limiter.Name()
	}
	require.Equal(w.t, name(want), name(got))
	require.Equal(w.t, want.Wait, got.Wait)
	require.Equal(w.t, want.Granted, got.Granted)
}

func (w *world) has(l *RateLimiter, want int64) {
	w.t.Helper()
	n, err := l.AvailablePermits(w.ctx)
	require.NoError(w.t, err)
	require.Equal(w.t, want, n, l.Name())
}

// TestAllWaitsForTheLongestTimeout checks that a timeout to which nothing can be added is a long one: it is neither
// over at once, nor does the caller wait longer than for its permits.
func TestAllWaitsForTheLongestTimeout(t *testing.T) {
	for _, timeout := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 - time.Millisecond, math.MaxInt64 - time.Hour} {
		inBothWays(t, func(t *testing.T, w *world) {
			l := w.others(overall(2, time.Second), overall(3, 5*time.Second))
			demands := []Demand{{l[0], 1}, {l[1], 2}}
			for i, at := range []time.Duration{0, 5, 10} {
				r, err := w.client.TryAcquireAll(w.ctx, timeout, demands...)
				require.NoError(t, err)
				w.same(AllResult{Granted: true}, r)
				require.Equal(t, at*time.Second, w.elapsed(), "%v, %d", timeout, i)
			}
			r, err := w.client.TryAcquireAll(w.ctx, timeout, demands[1])
			require.NoError(t, err)
			w.same(AllResult{Granted: true}, r)
			ok, err := l[1].TryAcquire(w.ctx, 3, timeout)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, 20*time.Second, w.elapsed())
			ctx, cancel := context.WithTimeout(w.ctx, time.Second)
			defer cancel()
			_, err = w.client.TryAcquireAll(ctx, timeout, demands...)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
	}
}

func TestAllOfBadInput(t *testing.T) {
	inBothWays(t, func(t *testing.T, w *world) {
		l := w.others(overall(2, time.Second), overall(3, 5*time.Second))
		other := newClient(t, w.rdb)
		defer other.Close()
		for name, demands := range map[string][]Demand{
			"none":              {},
			"nil":               {{l[0], 1}, {nil, 1}},
			"no permits":        {{l[0], 1}, {l[1], 0}},
			"too many":          {{l[0], 1}, {l[1], 1 << 32}},
			"too many together": {{l[0], 1}, {l[1], 1 << 31}, {l[1], 1 << 31}},
			"more than any":     {{l[0], 1}, {l[1], math.MaxInt64}},
			"an overflow":       {{l[1], math.MaxInt64}, {l[1], math.MaxInt64}},
			"the other way":     {{l[0], 1}, {l[1], math.MinInt64}, {l[1], math.MinInt64}},
			"another client":    {{l[0], 1}, {other.RateLimiter(l[1].Name()), 1}},
			"a long list":       make([]Demand, 65),
		} {
			_, err := w.client.TryAcquireAll(w.ctx, 0, demands...)
			require.ErrorIs(t, err, ErrInvalidArgument, name)
			require.ErrorIs(t, errOf(w.client.AcquireAll(w.ctx, demands...)), ErrInvalidArgument, name)
		}
		_, err := w.client.TryAcquireAll(w.ctx, 0, Demand{l[0], 1}, Demand{w.l, 1})
		require.ErrorIs(t, err, ErrNotInitialized)
		require.ErrorContains(t, err, w.l.Name())
		_, err = w.client.TryAcquireAll(w.ctx, 0, Demand{l[0], 1}, Demand{l[1], 4})
		require.ErrorIs(t, err, ErrPermitsExceedRate)
		require.NoError(t, w.rdb.HSet(w.ctx, w.l.redis.Keys.Hash, "rate", "x", "interval", "1", "type", "0").Err())
		_, err = w.client.TryAcquireAll(w.ctx, 0, Demand{l[0], 1}, Demand{w.l, 1})
		require.ErrorIs(t, err, ErrMalformed)
		w.has(l[0], 2)
		w.all(AllResult{Granted: true}, Demand{l[0], 1}, Demand{l[1], 1}, Demand{l[0], 1}) // those of l[0] add up
		w.has(l[0], 0)
		w.all(AllResult{Limiter: l[0], Wait: time.Second}, Demand{l[0], 1})
		ctx, cancel := context.WithCancel(w.ctx)
		cancel()
		require.ErrorIs(t, errOf(w.client.AcquireAll(ctx, Demand{l[0], 1}, Demand{l[1], 1})), context.Canceled)
	})
}

// TestWindowSafetyOfAll checks that each limiter of a list keeps its window, as it does alone, for random mixes of
// requests.
func TestWindowSafetyOfAll(t *testing.T) {
	redistest.NoRace(t, "one caller at a time")
	inBothWays(t, func(t *testing.T, w *world) {
		round := 0
		check(t, func(rt *rapid.T) {
			round++
			models, logs := []*model{}, []*windowLog{}
			var limiters []*RateLimiter
			for i := range rapid.IntRange(2, 8).Draw(rt, "limiters") {
				interval := rapid.SampledFrom([]time.Duration{7 * time.Millisecond, 250 * time.Millisecond, time.Second, time.Minute}).Draw(rt, "interval")
				rate := rapid.SampledFrom([]int64{1, 3, 20, 100}).Draw(rt, "rate")
				l := w.client.RateLimiter(fmt.Sprintf("%s#%s%d", w.l.Name(), rapid.StringMatching(`[a-z]{8}`).Draw(rt, "name"), i))
				require.NoError(rt, l.SetRate(w.ctx, overall(rate, interval)))
				limiters, models, logs = append(limiters, l), append(models, &model{rate: rate, interval: interval}), append(logs, &windowLog{})
			}
			for range rapid.IntRange(10, 60).Draw(rt, "steps") {
				now := w.elapsed()
				switch op := rapid.IntRange(0, 9).Draw(rt, "op"); {
				case op < 6:
					var demands []Demand
					var of []int
					for i, m := range models {
						if rapid.Bool().Draw(rt, "takes part") {
							demands = append(demands, Demand{limiters[i], rapid.Int64Range(1, min(m.rate, 5)).Draw(rt, "permits")})
							of = append(of, i)
						}
					}
					if len(demands) == 0 {
						continue
					}
					got, err := w.client.TryAcquireAll(w.ctx, 0, demands...)
					require.NoError(rt, err)
					fits := true
					for j, i := range of {
						fits = fits && models[i].available(now) >= demands[j].Permits
					}
					require.Equal(rt, fits, got.Granted)
					for j, i := range of {
						switch {
						case fits:
							models[i].acquire(now, demands[j].Permits)
							logs[i].add(now, demands[j].Permits)
						case got.Limiter == limiters[i]:
							require.Equal(rt, models[i].wait(now, demands[j].Permits), got.Wait)
						}
					}
				case op < 7:
					i := rapid.IntRange(0, len(models)-1).Draw(rt, "which")
					n := rapid.Int64Range(1, models[i].rate).Draw(rt, "permits")
					r, err := limiters[i].Allow(w.ctx, n)
					require.NoError(rt, err)
					require.Equal(rt, models[i].acquire(now, n), r.Granted)
					if r.Granted {
						logs[i].add(now, n)
					}
				default:
					time.Sleep(time.Duration(rapid.SampledFrom([]int{1, 7, 100, 250, 999, 1000, 30_000}).Draw(rt, "ms")) * time.Millisecond)
				}
			}
			for i, l := range limiters {
				require.LessOrEqual(rt, logs[i].worst(models[i].interval), models[i].rate)
				n, err := l.AvailablePermits(w.ctx)
				require.NoError(rt, err)
				require.Equal(rt, models[i].available(w.elapsed()), n, "nothing is kept, nothing lost")
				_, err = l.Delete(w.ctx)
				require.NoError(rt, err)
			}
		})
		require.GreaterOrEqual(t, round, 20) // with -short, rapid makes a fifth of its 100 checks
	})
}

// TestAllObeysCoolDownAndGap checks that lists observe cool-downs and minimum gaps.
func TestAllObeysCoolDownAndGap(t *testing.T) {
	inBothWays(t, func(t *testing.T, w *world) {
		l := w.others(overall(10, time.Second), paced(20, time.Second, 50*time.Millisecond))
		demands := []Demand{{l[0], 1}, {l[1], 2}}
		for i := range 5 {
			require.NoError(t, errOf(w.client.AcquireAll(w.ctx, demands...)))
			require.Equal(t, time.Duration(i)*100*time.Millisecond, w.elapsed())
		}
		require.NoError(t, l[0].CoolDown(w.ctx, w.epoch.Add(time.Minute)))
		require.NoError(t, errOf(w.client.AcquireAll(w.ctx, demands...)))
		require.Equal(t, time.Minute, w.elapsed())
	})
}
