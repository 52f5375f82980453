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
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/proptest"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/internal/testworld"
	"github.com/goredisson/ratelimiter/wire"
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
	require.Equal(w.t, want, must(l.AvailablePermits(w.ctx))(w.t), l.Name())
}

// TestAllWaitsForTheLongestTimeout checks that a timeout to which nothing can be added is a long one: it is neither
// over at once, nor does the caller wait longer than for its permits.
func TestAllWaitsForTheLongestTimeout(t *testing.T) {
	for _, timeout := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 - time.Millisecond, math.MaxInt64 - time.Hour} {
		inBothWays(t, func(t *testing.T, w *world) {
			l := w.others(overall(2, time.Second), overall(3, 5*time.Second))
			demands := []Demand{{l[0], 1}, {l[1], 2}}
			for i, at := range []time.Duration{0, 5, 10} {
				r := must(w.client.TryAcquireAll(w.ctx, timeout, demands...))(t)
				w.same(AllResult{Granted: true}, r)
				require.Equal(t, at*time.Second, w.elapsed(), "%v, %d", timeout, i)
			}
			r := must(w.client.TryAcquireAll(w.ctx, timeout, demands[1]))(t)
			w.same(AllResult{Granted: true}, r)
			require.True(t, must(l[1].TryAcquire(w.ctx, 3, timeout))(t))
			require.Equal(t, 20*time.Second, w.elapsed())
			ctx, cancel := context.WithTimeout(w.ctx, time.Second)
			defer cancel()
			_, err := w.client.TryAcquireAll(ctx, timeout, demands...)
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
		proptest.Check(t, func(rt *rapid.T) {
			round++
			models, logs := []*model{}, []*grantLog{}
			var limiters []*RateLimiter
			for i := range rapid.IntRange(2, 8).Draw(rt, "limiters") {
				interval := rapid.SampledFrom([]time.Duration{7 * time.Millisecond, 250 * time.Millisecond, time.Second, time.Minute}).Draw(rt, "interval")
				rate := rapid.SampledFrom([]int64{1, 3, 20, 100}).Draw(rt, "rate")
				l := w.client.RateLimiter(fmt.Sprintf("%s#%s%d", w.l.Name(), rapid.StringMatching(`[a-z]{8}`).Draw(rt, "name"), i))
				require.NoError(rt, l.SetRate(w.ctx, overall(rate, interval)))
				limiters, models, logs = append(limiters, l), append(models, &model{rate: rate, interval: interval}), append(logs, &grantLog{})
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
							logs[i].add(now, demands[j].Permits)
						case got.Limiter == limiters[i]:
							require.Equal(rt, models[i].wait(now, demands[j].Permits), got.Wait)
						}
					}
				case op < 7:
					i := rapid.IntRange(0, len(models)-1).Draw(rt, "which")
					n := rapid.Int64Range(1, models[i].rate).Draw(rt, "permits")
					r := must(limiters[i].Allow(w.ctx, n))(rt)
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
				n := must(l.AvailablePermits(w.ctx))(rt)
				require.Equal(rt, models[i].available(w.elapsed()), n, "nothing is kept, nothing lost")
				must(l.Delete(w.ctx))(rt)
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
// checks that none of the callers starves, whichever limiters they share and whoever else waits for these.
func TestListsOfSeveralProcesses(t *testing.T) {
	redistest.Repeats(t)
	redistest.NoRace(t, "other tests of lists have as many goroutines")
	for _, c := range []struct {
		permits int64
		singles int // callers of each limiter in each process
		lasts   time.Duration
		longest time.Duration
	}{
		{permits: 120, lasts: 15 * time.Second, longest: 6 * time.Second},
		{permits: 50, singles: 1, lasts: 6 * time.Second, longest: 5 * time.Second},
	} {
		t.Run(fmt.Sprintf("%d permits of 200, beside %d callers of each", c.permits, c.singles), func(t *testing.T) {
			inWorld(t, Rate{}, func(t *testing.T, w *world) {
				l := w.others(slices.Repeat([]Rate{overall(200, 200*time.Millisecond)}, 8)...)
				ctx, cancel := context.WithTimeout(w.ctx, c.lasts)
				defer cancel()
				var lists, singles turns
				for process := range 3 {
					client := w.otherProcess()
					for list := range 3 {
						var demands []Demand
						for i, l := range l {
							if i != 3*process+list {
								demands = append(demands, Demand{client.RateLimiter(l.Name()), c.permits})
							}
						}
						lists.again(func() error { return errOf(client.AcquireAll(ctx, demands...)) })
					}
					for i := range c.singles * len(l) {
						limiter := client.RateLimiter(l[i%len(l)].Name())
						singles.again(func() error { return limiter.Acquire(ctx, 1) })
					}
				}
				lists.wg.Wait()
				singles.wg.Wait()
				t.Logf("lists: %v granted, the longest waits %v; %v granted to singles", lists.granted, lists.longest, singles.granted)
				require.LessOrEqual(t, slices.Max(lists.longest), c.longest)
			})
		})
	}
}

// TestPerClientLimitersAreEachClientsOwn has eight clients ask for most of the permits of PER_CLIENT limiters, two at a time or
// one, beside small requests. Since each client has permits of its own, it checks that none of them
// waits for the others.
func TestPerClientLimitersAreEachClientsOwn(t *testing.T) {
	redistest.Repeats(t)
	rate := Rate{Type: PerClient, Permits: 10, Interval: time.Second}
	for _, asks := range []struct {
		name    string
		acquire func(ctx context.Context, l []*RateLimiter) error
	}{
		{"lists", func(ctx context.Context, l []*RateLimiter) error {
			return errOf(l[0].client.AcquireAll(ctx, Demand{l[0], 8}, Demand{l[1], 8}))
		}},
		{"large requests", func(ctx context.Context, l []*RateLimiter) error { return l[0].Acquire(ctx, 8) }},
	} {
		t.Run(asks.name, func(t *testing.T) {
			inWorld(t, Rate{}, func(t *testing.T, w *world) {
				shared := w.others(rate, rate)
				ctx, cancel := context.WithTimeout(w.ctx, 30*rate.Interval)
				defer cancel()
				var large, small turns
				for range 8 {
					client := w.otherProcess()
					l := []*RateLimiter{client.RateLimiter(shared[0].Name()), client.RateLimiter(shared[1].Name())}
					large.again(func() error { return asks.acquire(ctx, l) })
					for i := range 4 {
						small.again(func() error { return l[i%2].Acquire(ctx, 1) })
					}
				}
				large.wg.Wait()
				small.wg.Wait()
				t.Logf("%v granted, the longest waits %v", large.granted, large.longest)
				require.GreaterOrEqual(t, slices.Min(large.granted), 8, "in 30 intervals")
				require.LessOrEqual(t, slices.Max(large.longest), 8*rate.Interval)
			})
		})
	}
}

// TestReserve checks that reserved permits count as used for everybody, that a reservation moves to the present,
// and that its count stays exact after a release by others, a lost reply, a cool-down and an expiry.
func TestReserve(t *testing.T) {
	inWorld(t, overall(10, 10*time.Second), func(t *testing.T, w *world) {
		v := permit.Reservation{ID: redisson.RandomID().Run(0)}
		send := func(want int64, whole bool) error {
			v.Want, v.Whole = want, whole
			a, err := w.l.redis.Reserve(w.ctx, v)
			v.Held, v.Unsure = a.Held, false
			return err
		}
		sum := func() {
			t.Helper()
			used, _ := w.used()
			require.EqualValues(t, 10, w.value()+used)
		}
		takes := func(want, held int64, whole bool) {
			t.Helper()
			require.NoError(t, send(want, whole))
			require.Equal(t, held, v.Held)
			sum()
		}
		w.granted(5)
		takes(8, 0, true)
		takes(8, 5, false)
		w.available(0)
		w.at(9 * time.Second)
		takes(8, 5, false) // the reservation has moved to 9 s
		w.at(10 * time.Second)
		takes(8, 8, false) // 5 permits are free again
		w.available(2)
		w.at(19*time.Second + 999*time.Millisecond)
		w.available(2)
		v.Unsure, v.Held = true, 3 // as if the reply that granted 8 had been lost
		takes(8, 8, false)
		require.NoError(t, w.l.Release(w.ctx, 2)) // somebody else releases
		takes(8, 8, false)
		w.available(2)
		w.granted(2)
		w.at(40 * time.Second) // the reservation was not moved, so it has expired, but nobody has taken its permits
		takes(8, 8, false)
		require.NoError(t, w.l.CoolDown(w.ctx, time.Now().Add(time.Minute)))
		takes(8, 0, false)
		w.rejected(1, time.Minute)
		sum()
		w.at(101 * time.Second)
		takes(8, 8, true)
		takes(0, 0, false)
		w.available(10)
		takes(0, 0, false)
		must(w.rdb.Del(w.ctx, w.valueKey()).Result())(t)
		require.NoError(t, send(8, false))
		require.Zero(t, v.Held, "for acquire to rebuild")
		require.NoError(t, w.l.SetRate(w.ctx, overall(7, time.Second)))
		require.ErrorIs(t, send(8, false), ErrPermitsExceedRate)
	})
}

// onOneAndOnCluster runs f on one server, where one script decides, and on a cluster, where the limiters are on
// different nodes, both at the same time. Afterwards it checks that no goroutine is left. Each call of dial
// makes a redis client of another process.
func onOneAndOnCluster(t *testing.T, f func(t *testing.T, dial func() redis.UniversalClient)) {
	redistest.NeedReal(t)
	before := runtime.NumGoroutine()
	abreast(t, map[string]func(*testing.T){
		"one Redis": func(t *testing.T) {
			s := redistest.Start(t)
			f(t, func() redis.UniversalClient { return s.Client(t) })
		},
		"a cluster": func(t *testing.T) {
			c := redistest.StartCluster(t)
			f(t, func() redis.UniversalClient { return c.Client(t) })
		},
	})
	soon(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}

// Twenty callers in two processes want lists of two to four of six limiters, in any order. All of them are
// served. At any instant the permits left and those in use add up to the rate, and the window that ends with
// the newest grant holds no more than the rate.
func TestManyCallersOfOverlappingLists(t *testing.T) {
	const rate, interval, callers, lists = 12, 200 * time.Millisecond, 20, 4
	onOneAndOnCluster(t, func(t *testing.T, dial func() redis.UniversalClient) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // for one that never comes
		defer cancel()
		clients, name := []*Client{newClient(t, dial()), newClient(t, dial())}, redistest.Key(t)
		limiters := make([][6]*RateLimiter, len(clients))
		for i, c := range clients {
			for j := range limiters[i] {
				limiters[i][j] = c.RateLimiter(fmt.Sprint(name, j))
				require.NoError(t, limiters[i][j].SetRate(ctx, overall(rate, interval)))
			}
		}
		look := dial()
		var running, looking sync.WaitGroup
		var served, looks, fullest int64
		done := make(chan struct{})
		looking.Go(func() {
			for {
				for _, l := range limiters[0] {
					looks++
					n, err := newestWindow(look, l, rate, interval)
					if !assert.NoError(t, err) {
						cancel()
						return
					}
					fullest = max(fullest, n)
				}
				select {
				case <-done:
					return
				case <-time.After(time.Millisecond):
				}
			}
		})
		begin, counted := time.Now(), sync.Mutex{}
		for i := range callers {
			c, mine := clients[i%2], limiters[i%2]
			running.Go(func() {
				for range lists {
					var demands []Demand
					for _, j := range rand.Perm(len(mine))[:2+rand.IntN(3)] {
						demands = append(demands, Demand{mine[j], 1 + rand.Int64N(4)})
					}
					if !assert.NoError(t, errOf(c.AcquireAll(ctx, demands...)), "caller %d", i) {
						return
					}
					counted.Lock()
					served++
					counted.Unlock()
				}
			})
		}
		running.Wait()
		close(done)
		looking.Wait()
		t.Logf("%d lists in %v; in %d looks the fullest window had %d of %d", served, time.Since(begin).Round(time.Millisecond), looks, fullest, rate)
		require.EqualValues(t, callers*lists, served)
		require.Greater(t, fullest, int64(rate/2), "they compete")
		for i, c := range clients {
			for _, l := range limiters[i] {
				require.Zero(t, asleep(l))
			}
			require.NoError(t, c.Close())
		}
	})
}

// newestWindow returns how many permits are in use in the window that ends with the newest grant, and what is
// wrong with the limiter, both as of one instant.
func newestWindow(rdb redis.UniversalClient, l *RateLimiter, rate int64, interval time.Duration) (n int64, err error) {
	ctx := context.Background()
	var value *redis.StringCmd
	var set *redis.ZSliceCmd
	_, err = rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		value, set = p.Get(ctx, l.redis.Keys.Value[Overall]), p.ZRangeWithScores(ctx, l.redis.Keys.Permits[Overall], 0, -1)
		return nil
	})
	if errors.Is(err, redis.Nil) || err == nil && len(set.Val()) == 0 {
		return 0, nil // nobody has asked yet
	}
	if err != nil {
		return 0, err
	}
	left, err := value.Int64()
	used, grants := int64(0), set.Val()
	for _, z := range grants {
		m, bad := wire.ParseMember([]byte(z.Member.(string)))
		err = errors.Join(err, bad)
		used += int64(m.Permits)
		if z.Score > grants[len(grants)-1].Score-float64(interval.Milliseconds()) {
			n += int64(m.Permits)
		}
	}
	// A list that takes its permits ahead holds those that have yet to come back, too: they make left negative.
	n += min(0, left)
	if err == nil && (n > rate || left+used != rate) {
		err = fmt.Errorf("%s: %d in the window, left %d, in use %d, of %d", l.name, n, left, used, rate)
	}
	return n, err
}

// Callers give up at random moments. What is granted at such a moment goes back to every limiter.
func TestListsThatAreGivenUp(t *testing.T) {
	const rate, callers, lists = 1_000_000, 24, 60
	onOneAndOnCluster(t, func(t *testing.T, dial func() redis.UniversalClient) {
		rdb, ctx := dial(), context.Background()
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
						_, err = c.AcquireAll(giveUp, demands...)
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
					case errors.Is(err, context.Canceled), d > 0 && errors.Is(err, ErrUnavailable): // timed out first
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

		// A Client that is closed while lists wait, and while they are asked for.
		require.NoError(t, scarce.SetRate(ctx, overall(60, time.Hour)))
		require.NoError(t, scarce.Acquire(ctx, 50))
		var begun atomic.Int64
		for range callers {
			running.Go(func() {
				for {
					begun.Add(1)
					_, err := c.AcquireAll(ctx, Demand{a, 1}, Demand{scarce, 3}, Demand{b, 1})
					if err != nil {
						assert.ErrorIs(t, err, ErrClosed)
						return
					}
					told.Add(1)
				}
			})
		}
		soon(t, "they have asked", func() bool { return begun.Load() > callers })
		require.NoError(t, c.Close())
		running.Wait()
		for _, l := range []*RateLimiter{a, b} {
			soon(t, "nothing is kept", func() bool { return accounts(rdb, l, rate, told.Load()) == nil })
		}
	})
}

// To whoever finds it, a tripwire is a grant that has expired: no permit is lost or gained, and a caller of
// Redisson that is rejected removes it.
func TestTripwireIsNobodysPermit(t *testing.T) {
	for _, format := range []wire.Format{wire.FormatBc0I, wire.FormatLc0I} {
		inWorld(t, overall(3, 10*time.Second), func(t *testing.T, w *world) {
			w.granted(3)
			ctx, cancel := context.WithTimeout(w.ctx, 4500*time.Millisecond)
			defer cancel()
			var wg sync.WaitGroup
			wg.Go(func() { _ = w.l.Acquire(ctx, 1) })
			w.at(1500 * time.Millisecond)
			members := w.rdb.ZRangeWithScores(w.ctx, w.permitsKey(), 0, 0).Val()
			require.Zero(t, members[0].Score)
			m := must(wire.ParseMember([]byte(members[0].Member.(string))))(t)
			require.EqualValues(t, 1, m.Permits)
			require.Equal(t, format, m.Format)
			require.EqualValues(t, -1, w.value())
			w.available(0)
			_, wait, err := testworld.AskLikeRedisson(w.ctx, w.rdb, keysOf(w.l, Overall), 1)
			require.NoError(t, err)
			require.Equal(t, 8503*time.Millisecond, wait, "the wait is that of the oldest grant")
			require.Zero(t, w.value())
			used, _ := w.used()
			require.EqualValues(t, 3, used)
			w.at(2500 * time.Millisecond)
			require.EqualValues(t, -1, w.value(), "planted again")
			require.NoError(t, w.l.Release(w.ctx, 1))
			wg.Wait()
			w.rejected(1, 10*time.Second-w.elapsed())
			used, _ = w.used()
			require.EqualValues(t, 3, used)
			require.Zero(t, w.value())
		}, WithMemberFormat(format))
	}
}

// TestListSpendsNothingBesideAMalformedLimiter checks that a list takes no permits at all if one of its limiters is
// malformed.
func TestListSpendsNothingBesideAMalformedLimiter(t *testing.T) {
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		l := w.others(overall(100, time.Hour), overall(100, time.Hour))
		demands := []Demand{{l[0], 10}, {l[1], 10}}
		w.all(AllResult{Granted: true}, demands...)
		keys := keysOf(l[1], Overall)
		require.NoError(t, w.rdb.Set(w.ctx, keys[1], "099", 0).Err())
		w.all(AllResult{Granted: true}, demands...)
		w.holds(l[0], 100, 20)
		w.holds(l[1], 100, 20)
		require.NoError(t, w.rdb.HSet(w.ctx, keys[0], "keepAliveTime", "1.5").Err())
		_, err := w.client.TryAcquireAll(w.ctx, 0, demands...)
		require.ErrorIs(t, err, ErrMalformed)
		require.Equal(t, []any{"80", "80"}, w.rdb.MGet(w.ctx, keysOf(l[0], Overall)[1], keys[1]).Val())
	})
}
