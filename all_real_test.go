package ratelimiter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/wire"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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

// On real servers the callers of A, those that wait and those that try, keep at least eight tenths of its rate
// while a list waits for B, of which a peer in another process takes half. What A's rate is on this machine is told
// by the callers of a limiter that no list wants.
func TestAListOnARealServerLeavesTheOtherLimiterToItsCallers(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Repeats(t)
	const d = 8 * time.Second
	onOneAndOnCluster(t, func(t *testing.T, dial func() redis.UniversalClient) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		client, other, name := newClient(t, dial()), newClient(t, dial()), redistest.Key(t)
		defer client.Close()
		defer other.Close()
		a, b, alone := client.RateLimiter(name+"a"), client.RateLimiter(name+"b"), client.RateLimiter(name+"alone")
		for _, l := range []*RateLimiter{a, b, alone} {
			require.NoError(t, l.SetRate(ctx, overall(10, 200*time.Millisecond)))
		}
		var singles, control, lists, peers atomic.Int64
		var longest time.Duration
		var running sync.WaitGroup
		for l, granted := range map[*RateLimiter]*atomic.Int64{a: &singles, alone: &control} {
			for range 4 {
				running.Go(func() {
					for l.Acquire(ctx, 1) == nil {
						granted.Add(1)
					}
				})
				running.Go(func() {
					for ctx.Err() == nil {
						if r, err := l.Allow(ctx, 1); err == nil && r.Granted {
							granted.Add(1)
						}
						time.Sleep(10 * time.Millisecond)
					}
				})
			}
		}
		running.Go(func() {
			for tick := time.NewTicker(40 * time.Millisecond); ctx.Err() == nil; <-tick.C {
				if r, err := other.RateLimiter(b.Name()).Allow(ctx, 1); err == nil && r.Granted {
					peers.Add(1)
				}
			}
		})
		time.Sleep(time.Second)
		singles.Store(0)
		control.Store(0)
		running.Go(func() {
			for begin := time.Now(); errOf(client.AcquireAll(ctx, Demand{a, 3}, Demand{b, 9})) == nil; begin = time.Now() {
				lists.Add(1)
				longest = max(longest, time.Since(begin))
			}
		})
		time.Sleep(d)
		got, whole, served := singles.Load(), control.Load(), lists.Load()
		soon(t, "a list is served", func() bool { return lists.Load() > 0 })
		cancel()
		running.Wait()
		t.Logf("callers of A got %.1f/s, those of the other %.1f/s, lists were served %.2f/s, the longest took %v, the peer got %.1f/s of B",
			float64(got)/d.Seconds(), float64(whole)/d.Seconds(), float64(served)/d.Seconds(), longest, float64(peers.Load())/(d+time.Second).Seconds())
		redistest.Measured(t, float64(got+3*served) >= .8*float64(whole), "%d permits and %d lists, beside %d permits", got, served, whole)
	})
}
