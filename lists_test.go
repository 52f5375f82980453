// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/test/proptest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
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
	got := must(w.client.TryAcquireAll(w.ctx, 0, demands...))(w.t)
	w.same(want, got)
}

func (w *world) same(want, got AllResult) {
	w.t.Helper()
	name := func(r AllResult) string {
		if r.RejectedBy == nil {
			return ""
		}
		return r.RejectedBy.Name()
	}
	require.Equal(w.t, name(want), name(got))
	require.Equal(w.t, want.Wait, got.Wait)
	require.Equal(w.t, want.Granted, got.Granted)
}

func (w *world) has(l *RateLimiter, want int64) {
	w.t.Helper()
	require.Equal(w.t, want, must(l.AvailablePermits(w.ctx))(w.t), l.Name())
}

// TestAllWaitsForTheLongestTimeout checks that a timeout to which nothing can be added is a long one: it is neither
// over at once, nor does the caller wait longer than for its permits.
func TestAllWaitsForTheLongestTimeout(t *testing.T) {
	inBothWays(t, func(t *testing.T, w *world) {
		l := w.others(overall(2, time.Second), overall(3, 5*time.Second))
		for i := range 3 {
			r := must(w.client.TryAcquireAll(w.ctx, math.MaxInt64, Demand{l[0], 1}, Demand{l[1], 2}))(t)
			w.same(AllResult{Granted: true}, r)
			require.Equal(t, time.Duration(i)*5*time.Second, w.elapsed())
		}
		require.True(t, must(l[1].TryAcquire(w.ctx, 3, math.MaxInt64))(t))
		require.Equal(t, 15*time.Second, w.elapsed())
	})
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
			require.ErrorIs(t, w.client.AcquireAll(w.ctx, demands...), ErrInvalidArgument, name)
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
		w.all(AllResult{RejectedBy: l[0], Wait: time.Second}, Demand{l[0], 1})
		ctx, cancel := context.WithCancel(w.ctx)
		cancel()
		require.ErrorIs(t, w.client.AcquireAll(ctx, Demand{l[0], 1}, Demand{l[1], 1}), context.Canceled)
	})
}

// TestWindowSafetyOfAll checks that each limiter of a list keeps its window, as it does alone, for random mixes of
// requests.
func TestWindowSafetyOfAll(t *testing.T) {
	redistest.NoRace(t, "one caller at a time")
	inBothWays(t, func(t *testing.T, w *world) {
		round := 0
		proptest.Check(t, func(rt *rapid.T) {
			round++
			models := []*model{}
			var limiters []*RateLimiter
			for i := range rapid.IntRange(2, 8).Draw(rt, "limiters") {
				interval := rapid.SampledFrom([]time.Duration{7 * time.Millisecond, 250 * time.Millisecond, time.Second, time.Minute}).Draw(rt, "interval")
				rate := rapid.SampledFrom([]int64{1, 3, 20, 100}).Draw(rt, "rate")
				l := w.client.RateLimiter(fmt.Sprintf("%s#%s%d", w.l.Name(), rapid.StringMatching(`[a-z]{8}`).Draw(rt, "name"), i))
				require.NoError(rt, l.SetRate(w.ctx, overall(rate, interval)))
				limiters, models = append(limiters, l), append(models, &model{rate: rate, interval: interval})
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
					got := must(w.client.TryAcquireAll(w.ctx, 0, demands...))(rt)
					fits := true
					for j, i := range of {
						fits = fits && models[i].available(now) >= demands[j].Permits
					}
					require.Equal(rt, fits, got.Granted)
					for j, i := range of {
						switch {
						case fits:
							models[i].acquire(now, demands[j].Permits)
						case got.RejectedBy == limiters[i]:
							require.Equal(rt, models[i].wait(now, demands[j].Permits), got.Wait)
						}
					}
				case op < 7:
					i := rapid.IntRange(0, len(models)-1).Draw(rt, "which")
					n := rapid.Int64Range(1, models[i].rate).Draw(rt, "permits")
					r := must(limiters[i].Allow(w.ctx, n))(rt)
					require.Equal(rt, models[i].acquire(now, n), r.Granted)
				default:
					time.Sleep(time.Duration(rapid.SampledFrom([]int{1, 7, 100, 250, 999, 1000, 30_000}).Draw(rt, "ms")) * time.Millisecond)
				}
			}
			for i, l := range limiters {
				require.LessOrEqual(rt, models[i].worst(), models[i].rate)
				n := must(l.AvailablePermits(w.ctx))(rt)
				require.Equal(rt, models[i].available(w.elapsed()), n, "nothing is kept, nothing lost")
				must(l.Admin().Delete(w.ctx))(rt)
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
			require.NoError(t, w.client.AcquireAll(w.ctx, demands...))
			require.Equal(t, time.Duration(i)*100*time.Millisecond, w.elapsed())
		}
		require.NoError(t, l[0].CoolDown(w.ctx, w.epoch.Add(time.Minute)))
		require.NoError(t, w.client.AcquireAll(w.ctx, demands...))
		require.Equal(t, time.Minute, w.elapsed())
	})
}

// turns is how often each caller was granted what it asks for again and again, and how long it waited at most.
type turns struct {
	mu      sync.Mutex
	wg      sync.WaitGroup
	granted []int
	longest []time.Duration
}

// again has one more caller ask until acquire fails. A wait that has not ended by then counts.
func (v *turns) again(acquire func() error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	i := len(v.granted)
	v.granted, v.longest = append(v.granted, 0), append(v.longest, 0)
	v.wg.Go(func() {
		for {
			began := time.Now()
			err := acquire()
			v.mu.Lock()
			v.longest[i] = max(v.longest[i], time.Since(began))
			if err == nil {
				v.granted[i]++
			}
			v.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
}

// TestListsOfSeveralProcesses has three processes, each with three callers, ask for seven or eight of eight limiters at a time. It
// checks that none of the callers starves, whichever limiters they share and whoever else waits for these, and that lists which stand
// behind others ask seldom.
func TestListsOfSeveralProcesses(t *testing.T) {
	redistest.NeedReal(t) // miniredis would take a minute
	redistest.NoRace(t, "other tests of lists have as many goroutines")
	for _, c := range []struct {
		permits int64
		singles int // callers of each limiter in each process
		lasts   time.Duration
		longest time.Duration
		least   int // lists that are granted; on a machine that does nothing else it is twice as many
	}{
		{permits: 120, lasts: 15 * time.Second, longest: 6 * time.Second, least: 35},
		{permits: 50, singles: 1, lasts: 10 * time.Second, longest: 6 * time.Second, least: 30},
	} {
		t.Run(fmt.Sprintf("%d permits of 200, beside %d callers of each", c.permits, c.singles), func(t *testing.T) {
			inWorld(t, Rate{}, func(t *testing.T, w *world) {
				l := w.others(slices.Repeat([]Rate{overall(200, 200*time.Millisecond)}, 8)...)
				ctx, cancel := context.WithTimeout(w.ctx, c.lasts)
				defer cancel()
				var lists, singles turns
				var calls atomic.Int64
				for process := range 3 {
					client := w.another(WithHook(Hook{Call: func(CallInfo) { calls.Add(1) }})).client
					for list := range 3 {
						var demands []Demand
						for i, l := range l {
							if i != 3*process+list {
								demands = append(demands, Demand{client.RateLimiter(l.Name()), c.permits})
							}
						}
						lists.again(func() error { return client.AcquireAll(ctx, demands...) })
					}
					for i := range c.singles * len(l) {
						limiter := client.RateLimiter(l[i%len(l)].Name())
						singles.again(func() error { return limiter.Acquire(ctx, 1) })
					}
				}
				lists.wg.Wait()
				singles.wg.Wait()
				t.Logf("lists: %v granted, the longest waits %v; %v granted to singles; %d calls", lists.granted, lists.longest, singles.granted, calls.Load())
				require.LessOrEqual(t, slices.Max(lists.longest), c.longest)
				all := 0
				for _, n := range lists.granted {
					all += n
				}
				require.GreaterOrEqual(t, all, c.least)
				if c.singles == 0 {
					require.LessOrEqual(t, calls.Load(), int64(15_000))
				}
			})
		})
	}
}

// onOneAndOnCluster runs f on one server, where one script decides, and on a cluster, where the limiters are on
// different nodes, both at the same time. Afterwards it checks that no goroutine is left.
func onOneAndOnCluster(t *testing.T, f func(t *testing.T, rdb redis.UniversalClient)) {
	redistest.NeedReal(t)
	before := runtime.NumGoroutine()
	abreast(t, map[string]func(*testing.T){
		"one Redis": func(t *testing.T) { f(t, redistest.Start(t).Client(t)) },
		"a cluster": func(t *testing.T) { f(t, redistest.StartCluster(t).Client(t)) },
	})
	soon(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}

// Callers give up at random moments. What is granted at such a moment goes back to every limiter.
func TestListsThatAreGivenUp(t *testing.T) {
	const rate, callers, lists = 1_000_000, 24, 60
	onOneAndOnCluster(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := context.Background()
		c, name := newClient(t, rdb), redistest.Key(t)
		scarce, a, b := c.RateLimiter(name+"0"), c.RateLimiter(name+"1"), c.RateLimiter(name+"2")
		require.NoError(t, scarce.SetRate(ctx, overall(60, 100*time.Millisecond)))
		require.NoError(t, a.SetRate(ctx, overall(rate, time.Hour)))
		require.NoError(t, b.SetRate(ctx, overall(rate, time.Hour)))
		var told, granted, left, rejected atomic.Int64
		var running sync.WaitGroup
		begin := time.Now()
		for range callers {
			running.Go(func() {
				row := 0 // how many lists in a row it has given up
				for range lists {
					n := 1 + rand.Int64N(5)
					demands := []Demand{{a, n}, {scarce, n}, {b, n}}
					d := time.Duration(rand.Int64N(int64(20*time.Millisecond) << min(row/5, 6))) // longer on a busy machine
					giveUp, cancel := context.WithCancel(ctx)
					if rand.IntN(2) == 0 {
						time.AfterFunc(d, cancel)
						d = 0
					}
					r, err := AllResult{Granted: true}, error(nil)
					if d == 0 && rand.IntN(2) == 0 {
						err = c.AcquireAll(giveUp, demands...)
					} else if d == 0 {
						r, err = c.TryAcquireAll(giveUp, time.Minute, demands...)
					} else {
						r, err = c.TryAcquireAll(giveUp, d, demands...)
					}
					cancel()
					row++
					switch {
					case err == nil && r.Granted:
						row = 0
						told.Add(n)
						granted.Add(1)
					case err == nil:
						row = 0
						rejected.Add(1)
					case errors.Is(err, context.Canceled), d > 0 && (errors.Is(err, ErrUnavailable) || errors.Is(err, ErrOverloaded)): // timed out first
						left.Add(1)
					default:
						assert.NoError(t, err)
					}
				}
			})
		}
		running.Wait()
		t.Logf("%d granted, %d rejected, %d left in %v", granted.Load(), rejected.Load(), left.Load(), time.Since(begin).Round(time.Millisecond))
		require.NotZero(t, granted.Load())
		require.Greater(t, left.Load(), int64(callers*lists/10))
		for _, l := range []*RateLimiter{a, b} {
			soon(t, "what was granted to callers that left is back", func() bool { return accounts(rdb, l, rate, told.Load()) == nil })
		}
		soon(t, "and of the short one", func() bool {
			n, err := scarce.AvailablePermits(ctx)
			return err == nil && n == 60
		})
		require.NoError(t, c.Close())
	})
}

// TestDemandsOfOneLimiter checks that what several demands for one limiter carry does not depend on their order.
func TestDemandsOfOneLimiter(t *testing.T) {
	inWorld(t, overall(1, time.Hour), func(t *testing.T, w *world) {
		for i, swap := range []bool{false, true} {
			x := w.client.RateLimiter(fmt.Sprintf("%s-new-%d", w.l.Name(), i))
			demands := []Demand{{x, 1}, {x.WithRate(overall(3, time.Hour)), 1}}
			if swap {
				slices.Reverse(demands)
			}
			require.True(t, must(w.client.TryAcquireAll(w.ctx, 0, demands...))(t).Granted)
			require.EqualValues(t, 1, must(x.AvailablePermits(w.ctx))(t))
			one, err := merged(x.OnOutage(FailOpen()), x.OnOutage(LocalQuota(overall(3, time.Hour), 2)))
			require.NoError(t, err)
			other, err := merged(x.OnOutage(LocalQuota(overall(3, time.Hour), 2)), x.OnOutage(FailOpen()))
			require.NoError(t, err)
			require.Equal(t, one.want.Policy, other.want.Policy)
			require.Equal(t, 2, one.want.Policy.Nodes)
		}
		x := w.client.RateLimiter(w.l.Name())
		_, err := w.client.TryAcquireAll(w.ctx, 0, Demand{x.WithRate(overall(3, time.Hour)), 1}, Demand{x.WithRate(overall(4, time.Hour)), 1})
		require.ErrorIs(t, err, ErrInvalidArgument)
		require.ErrorContains(t, err, "carry two rates")
	})
}

// aScript is for the calls that decide a list.
func aScript(requests [][]string) bool { return strings.HasPrefix(requests[0][0], "eval") }

// withCutter runs f with three limiters of 10 an hour that a client reaches through a cutter. One permit of each is in use.
func withCutter(t *testing.T, c *redistest.Cutter, f func(client *Client, l []*RateLimiter)) {
	rdb := redistest.Client(t, c.Option)
	client := must(New(rdb))(t)
	defer client.Close()
	var l []*RateLimiter
	for range 3 {
		o := client.RateLimiter(redistest.Key(t))
		require.NoError(t, o.SetRate(context.Background(), overall(10, time.Hour)))
		l = append(l, o)
	}
	require.NoError(t, client.AcquireAll(context.Background(), Demand{l[0], 1}, Demand{l[1], 1}, Demand{l[2], 1}))
	f(client, l)
}

// TestAConnectionBreaksWithinTheReplyToAList breaks the connection after each byte of the reply to the call that decides a list. The
// list is granted, and its permits are taken once.
func TestAConnectionBreaksWithinTheReplyToAList(t *testing.T) {
	for after := 0; ; after++ {
		c := &redistest.Cutter{}
		withCutter(t, c, func(client *Client, l []*RateLimiter) {
			c.CutAt(after, aScript)
			require.NoError(t, client.AcquireAll(context.Background(), Demand{l[0], 3}, Demand{l[1], 4}, Demand{l[2], 5}), "after %d bytes", after)
			for i, want := range []int64{6, 5, 4} {
				require.Equal(t, want, must(l[i].AvailablePermits(context.Background()))(t), "after %d bytes", after)
			}
		})
		cut, matched := c.Cut()
		require.True(t, matched)
		if !cut {
			require.Greater(t, after, 3, "bytes of the reply")
			return
		}
	}
}

// TestAContextEndsWhileAListIsDecided ends the context of a list while the call that decides it is on its way, with and without a
// connection that breaks then. What was granted goes back.
func TestAContextEndsWhileAListIsDecided(t *testing.T) {
	for _, after := range []int{math.MaxInt, 0, 2} {
		c := &redistest.Cutter{Delay: 100 * time.Millisecond}
		withCutter(t, c, func(client *Client, l []*RateLimiter) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			c.CutAt(after, aScript)
			time.AfterFunc(20*time.Millisecond, cancel)
			require.ErrorIs(t, client.AcquireAll(ctx, Demand{l[0], 3}, Demand{l[1], 4}, Demand{l[2], 5}), context.Canceled)
			for _, l := range l {
				soon(t, "all is back", func() bool { return must(l.AvailablePermits(context.Background()))(t) == 9 })
			}
		})
	}
}
