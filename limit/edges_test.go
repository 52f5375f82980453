// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestSlowestRatesAreReadAgain checks that what a limiter of one permit in up to 50 years writes, after the largest grant and the
// largest settlement, is what it reads: no state is malformed, and none becomes one with time.
func TestSlowestRatesAreReadAgain(t *testing.T) {
	ctx, rdb, checked := t.Context(), redistest.Client(t), 0
	for _, years := range []time.Duration{1, 20, 50} {
		r := per(1, years*calls.Longest)
		largest := func(of func(n int64) Algorithm) (a Algorithm) { // the largest capacity that is counted exactly
			for n := int64(1); of(n).check() == nil; n++ {
				a = of(n)
			}
			return a
		}
		for kind, a := range map[string]Algorithm{
			"debt bucket, little debt": DebtBucket{r, 1, 1},
			"debt bucket":              largest(func(n int64) Algorithm { return DebtBucket{r, 1, n} }),
			"gcra":                     largest(func(n int64) Algorithm { return GCRA{r, n} }),
			"interval bucket":          largest(func(n int64) Algorithm { return IntervalBucket{r, n} }),
			"leaky queue":              largest(func(n int64) Algorithm { return LeakyQueue{r, n} }),
			"fixed window":             FixedWindow{r},
			"sliding counter":          SlidingCounter{r},
			"sliding log":              SlidingLog{r},
		} {
			if a == nil || a.check() != nil {
				continue
			}
			checked++
			now := time.UnixMicro(1_790_000_000_000_000)
			l := redistest.Must(NewShared(rdb, redistest.Key(t), a, WithoutCachedRejections(), func(c *config) { c.Clock = func() time.Time { return now } }))(t)
			for _, pass := range []time.Duration{0, time.Hour, longestInterval} {
				now = now.Add(pass)
				r, err := l.Reserve(ctx, a.model().Largest, 0)
				require.NoError(t, err, "%s of a permit in %d years, after %v", kind, years, pass)
				if pass == 0 {
					require.True(t, r.Granted, kind)
				}
			}
			if checkSettles(newSetting(a)) != nil {
				continue
			}
			l = l.For("that owes")
			g, _, err := l.AllowGrant(ctx, 1)
			require.NoError(t, err, kind)
			require.NoError(t, g.Settle(ctx, calls.MaxPermits), kind)
			for range 3 {
				_, err := l.Peek(ctx, 1)
				require.NoError(t, err, "%s of a permit in %d years, which owes as much as it can", kind, years)
				_, err = l.Allow(ctx, 1)
				require.NoError(t, err, kind)
				now = now.Add(longestInterval / 10) // up to 2091: a state has room for 142 years more
			}
		}
	}
	require.Greater(t, checked, 18)
}

// TestWaitIsGrantedToTheMicrosecond checks that a caller of WaitTimeout whose turn is d after the farthest that is reserved in
// advance is granted at its turn when it has exactly as long, and is rejected at once when it has a microsecond less.
func TestWaitIsGrantedToTheMicrosecond(t *testing.T) {
	us := time.Microsecond
	for kind, a := range map[string]Algorithm{
		"leaky queue": LeakyQueue{per(1, time.Second), 1000}, "smooth bursty": SmoothBursty{1, time.Second},
		"smooth warming up": SmoothWarmingUp{PermitsPerSecond: 1, Warmup: time.Second},
	} {
		run := func(t *testing.T, l Limiter) {
			for _, d := range []time.Duration{-1001 * us, -1000 * us, -999 * us, -us, 0, us, 2 * us, 499 * us, 999 * us, 1000 * us, 1001 * us, 50 * time.Millisecond} {
				for _, left := range []time.Duration{0, -us, us, 300 * us} {
					require.NoError(t, Wait(t.Context(), l, 5))
					turn := redistest.Must(l.Peek(t.Context(), 1))(t).Wait
					require.Greater(t, turn, calls.BookAhead+d)
					time.Sleep(turn - calls.BookAhead - d)
					begin := time.Now()
					ok := redistest.Must(WaitTimeout(t.Context(), l, 1, calls.BookAhead+d+left))(t)
					require.Equal(t, left >= 0, ok, "%s: a turn at %v, with %v", kind, calls.BookAhead+d, calls.BookAhead+d+left)
					if ok {
						require.Equal(t, calls.BookAhead+d, time.Since(begin), kind)
					} else {
						require.Zero(t, time.Since(begin), kind)
					}
				}
			}
		}
		redistest.Run(t, func(t *testing.T, rdb *redis.Client) { run(t, shared(t, rdb, a)) })
		t.Run("local", func(t *testing.T) {
			redistest.NoServer(t)
			synctest.Test(t, func(t *testing.T) { run(t, redistest.Must(NewLocal(a))(t)) })
		})
	}
}

// A counter is a hook that counts the scripts of each key that are in flight, and loses some of them or their replies.
type counter struct {
	redistest.Passing
	mu   sync.Mutex
	air  map[string]int
	most int
	sent int
}

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) (err error) {
		if cmd.Name() != "evalsha" && cmd.Name() != "eval" {
			return next(ctx, cmd)
		}
		key := cmd.Args()[3].(string)
		c.mu.Lock()
		c.sent++
		fate := rand.IntN(8)
		c.air[key]++
		c.most = max(c.most, c.air[key])
		c.mu.Unlock()
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.air[key]--
		}()
		time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
		if fate != 0 {
			err = next(ctx, cmd)
		}
		if fate < 2 && !redis.HasErrorPrefix(err, "NOSCRIPT") {
			err = io.EOF
			cmd.SetErr(err)
		}
		time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
		return err
	}
}

// TestOneCallOfAKeyAtATime checks that a process has one call of a key in flight at a time, whatever its callers do and whichever
// calls and replies are lost, since Redis remembers the last call of each process only: so a key has the permits that its callers
// were told, and no more.
func TestOneCallOfAKeyAtATime(t *testing.T) {
	for kind, a := range map[string]Algorithm{
		"gcra": GCRA{per(1, time.Hour), 1_000_000}, "sliding log": SlidingLog{per(1_000_000, 24*time.Hour)}, "fixed window": FixedWindow{per(1_000_000, 24*time.Hour)},
	} {
		redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
			plain := shared(t, rdb, a)
			mine, c := redistest.Peer(t, rdb), &counter{air: map[string]int{}}
			mine.AddHook(c)
			l := twin(t, plain, mine)
			var told, unknown atomic.Int64
			var all sync.WaitGroup
			for i := range 24 {
				all.Go(func() {
					for range 40 {
						n, err, granted := 1+rand.Int64N(4), error(nil), true
						switch i % 4 {
						case 0:
							err = Wait(t.Context(), l, n)
						case 1:
							ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(4000))*time.Microsecond)
							err = Wait(ctx, l, n)
							cancel()
						default:
							var r ratelimiter.Result
							r, err = l.Allow(t.Context(), n)
							granted = r.Granted
						}
						switch {
						case err == nil && granted:
							told.Add(n)
						case err != nil: // also the end of a context, while the call went on
							unknown.Add(n)
							if !errors.Is(err, ratelimiter.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
								t.Error(err)
							}
						}
					}
				})
			}
			all.Wait()
			synctest.Wait()
			time.Sleep(time.Minute)
			spent := a.model().Largest - redistest.Must(plain.Peek(t.Context(), 1))(t).Available
			t.Logf("%s: %d told, %d perhaps, %d spent, %d calls", kind, told.Load(), unknown.Load(), spent, c.sent)
			require.Equal(t, 1, c.most, "%s: calls of a key in flight", kind)
			require.GreaterOrEqual(t, spent, told.Load(), kind)
			require.LessOrEqual(t, spent, told.Load()+unknown.Load(), kind)
			require.Positive(t, told.Load())
		})
	}
}

// TestAPeekSeesThatTheClockWasPutBack has the clock of Redis be put back where no permit is left. Who asks with Peek from then on is told
// that there are permits when Allow would get them, as one who takes what it needs only then.
func TestAPeekSeesThatTheClockWasPutBack(t *testing.T) {
	onEach(t, every(), func(t *testing.T, rdb *redis.Client, kind string, a Algorithm) {
		now := time.UnixMicro(1_790_000_000_000_000)
		back, step := 10*time.Minute, 100*time.Millisecond
		if _, ok := a.(CalendarQuota); ok {
			back, step = 300*24*time.Hour, time.Hour
		}
		l := redistest.Must(NewShared(rdb, redistest.Key(t), a, func(c *config) { c.Clock = func() time.Time { return now } }))(t)
		ask := map[string]func(ctx context.Context, n int64) (ratelimiter.Result, error){"Peek": l.For("Peek").Peek, "Allow": l.For("Allow").Allow}
		for key := range ask {
			for redistest.Must(l.For(key).Allow(t.Context(), 1))(t).Granted {
			}
		}
		now = now.Add(-back)
		free := map[string]time.Duration{}
		for waited := time.Duration(0); len(free) < len(ask); waited += step {
			require.Less(t, waited, back, "%s: %v", kind, free)
			for key, ask := range ask {
				if _, ok := free[key]; !ok && redistest.Must(ask(t.Context(), 1))(t).Granted {
					free[key] = waited
				}
			}
			now = now.Add(step)
		}
		require.Equal(t, free["Allow"], free["Peek"], kind)
	})
}
