package ratelimiter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestCancelReturnsAtOnce checks that callers return at once when they are cancelled or their time is up, even
// while Redis does not reply.
func TestCancelReturnsAtOnce(t *testing.T) {
	redistest.NeedReal(t)
	s := redistest.Start(t)
	rdb, ctx := s.Client(t), context.Background()
	c := newClient(t, rdb)
	defer c.Close()
	full, free := c.RateLimiter("full"), c.RateLimiter("free")
	require.NoError(t, full.SetRate(ctx, overall(1, time.Hour)))
	require.NoError(t, full.Acquire(ctx, 1))
	require.NoError(t, free.SetRate(ctx, overall(1_000_000, time.Hour)))

	const after = 20 * time.Millisecond
	var slow atomic.Int64 // calls to which Redis that answers has not replied in time
	calls := map[string]func(ctx context.Context, l *RateLimiter) error{
		"Acquire": func(ctx context.Context, l *RateLimiter) error { return l.Acquire(ctx, 1) },
		"TryAcquire": func(ctx context.Context, l *RateLimiter) error {
			_, err := l.TryAcquire(ctx, 1, time.Minute)
			return err
		},
		"Allow": func(ctx context.Context, l *RateLimiter) error { _, err := l.Allow(ctx, 1); return err },
	}
	for _, state := range []struct {
		name       string
		begin, end func()
	}{
		{"answers", func() {}, func() {}},
		{"stopped", s.Pause, s.Resume},
		{"paused", func() { require.NoError(t, rdb.Do(ctx, "CLIENT", "PAUSE", "60000", "WRITE").Err()) },
			func() { require.NoError(t, rdb.Do(ctx, "CLIENT", "UNPAUSE").Err()) }},
	} {
		if state.name == "paused" {
			redistest.Since(t, 6, 2, "CLIENT UNPAUSE")
		}
		state.begin()
		var late lags
		var left, unanswered atomic.Int64
		stop := late.control(t)
		var wg sync.WaitGroup
		for i := range 60 {
			if i%20 == 0 {
				wg.Wait() // so there are three rounds
			}
			for name, call := range calls {
				for _, l := range []*RateLimiter{full, free} {
					if state.name == "answers" && (name == "Allow" || l == free) {
						continue // the reply arrives first
					}
					wg.Go(func() {
						ends, cancel := context.WithTimeout(ctx, after)
						want := context.DeadlineExceeded
						defer cancel()
						if i%2 == 0 {
							ends, cancel = context.WithCancel(ctx)
							want = context.Canceled
							time.AfterFunc(after, cancel)
						}
						due := time.Now().Add(after)
						err := call(ends, l)
						late.add(due, time.Now())
						told := errors.Is(err, ErrUnavailable)
						if !errors.Is(err, want) {
							t.Error(state.name, name, l.Name(), err)
						}
						if told && state.name == "answers" {
							slow.Add(1)
						}
						left.Add(1)
						if told {
							unanswered.Add(1)
						}
					})
				}
			}
			if state.name == "answers" {
				continue
			}
			wg.Go(func() { // this caller runs into its timeout
				due := time.Now().Add(after + engine.Grace)
				ok, err := free.TryAcquire(ctx, 1, after)
				late.add(due, time.Now())
				if ok || !errors.Is(err, ErrUnavailable) {
					t.Error(state.name, ok, err)
				}
			})
		}
		wg.Wait()
		stop()
		if state.name != "answers" { // some calls begin late, on a busy machine
			require.Greater(t, 2*unanswered.Load(), left.Load(), "were told that Redis did not reply")
		}
		late.require(t, 20*time.Millisecond)
		state.end()
		// Otherwise permits granted to callers that left would be passed on to callers of the next state.
		soon(t, "nothing is in flight", func() bool { return idle(c) })
	}
	redistest.Measured(t, slow.Load() == 0, "%d calls were told that Redis did not reply, which answers", slow.Load())
}

// TestHundredThousandCancels makes a hundred thousand calls that end at random: before they begin, in flight, while
// they wait, or not at all. It checks that no goroutine, timer or permit is leaked.
func TestHundredThousandCancels(t *testing.T) {
	redistest.NeedReal(t)
	const callers, each, rate = 200, 500, 300_000
	s := redistest.Start(t)
	rdb, ctx := s.Client(t), context.Background()
	c := newClient(t, rdb)
	wide, narrow := c.RateLimiter("wide"), c.RateLimiter("narrow")
	require.NoError(t, wide.SetRate(ctx, overall(rate, time.Hour)))
	require.NoError(t, narrow.SetRate(ctx, overall(1, time.Hour)))
	before := runtime.NumGoroutine()

	var got [2]atomic.Int64
	var cancelled, rejected atomic.Int64
	var storm, feed sync.WaitGroup
	for range callers {
		storm.Go(func() {
			for range each {
				which := rand.N(2)
				l := [2]*RateLimiter{wide, narrow}[which]
				ends, cancel := context.WithCancel(ctx)
				switch at := rand.N(3*time.Millisecond) - 300*time.Microsecond; {
				case at <= 0:
					cancel()
				case rand.N(2) == 0:
					ends, cancel = context.WithTimeout(ctx, at)
				default:
					time.AfterFunc(at, cancel)
				}
				permits := 1 + rand.N(int64(3))
				var ok bool
				var err error
				switch rand.N(3) {
				case 0:
					var r Result
					r, err = l.Allow(ends, permits)
					ok = r.Granted
				case 1:
					ok, err = l.TryAcquire(ends, permits, rand.N(3*time.Millisecond))
				default:
					err = l.Acquire(ends, permits)
					ok = err == nil
				}
				switch {
				case ok:
					got[which].Add(permits)
				case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
					cancelled.Add(1)
				case err == nil, errors.Is(err, ErrPermitsExceedRate), errors.Is(err, ErrUnavailable):
					rejected.Add(1) // unavailable because no reply came within its few milliseconds
				default:
					t.Error(err)
				}
				cancel()
			}
		})
	}
	// The rate of the narrow limiter grows by a few permits at a time, so that waiters race for them while they are
	// cancelled.
	feeding, stop := context.WithCancel(ctx)
	wider := int64(1)
	feed.Go(func() {
		for feeding.Err() == nil {
			wider += 4
			if _, err := narrow.UpdateRate(ctx, overall(wider, time.Hour), KeepState()); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Millisecond)
		}
	})
	storm.Wait()
	stop()
	feed.Wait()

	soon(t, "nothing is in flight, a return of permits neither", func() bool { return idle(c) })
	for i, l := range []*RateLimiter{wide, narrow} {
		require.NoError(t, accounts(rdb, l, []int64{rate, wider}[i], got[i].Load()))
	}
	require.NoError(t, c.engine.CheckIdle())
	soon(t, fmt.Sprint("no more goroutines than ", before), func() bool { return runtime.NumGoroutine() <= before })
	require.Greater(t, cancelled.Load(), int64(callers*each/4))
	require.Positive(t, got[1].Load())
	t.Logf("%d cancelled, %d rejected, %d and %d permits granted", cancelled.Load(), rejected.Load(), got[0].Load(), got[1].Load())
	require.NoError(t, c.Close())
}

func idle(c *Client) bool { return c.engine.Idle() }

// TestCloseInFlight checks that Close fails the callers in flight at once, and that permits granted to them
// afterwards are refunded.
func TestCloseInFlight(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Since(t, 6, 2, "CLIENT UNPAUSE")
	s := redistest.Start(t)
	// Without a read timeout nothing but Close ends the callers while the server is paused.
	rdb, ctx := s.Client(t, func(o *redis.Options) { o.ReadTimeout = -1 }), context.Background()
	admin := s.Client(t)
	ends, cancel := context.WithCancel(ctx) // with a context that can be cancelled, no caller flies its own request
	defer cancel()
	before := runtime.NumGoroutine()
	for range 5 {
		c := newClient(t, rdb)
		l, full := c.RateLimiter("closed"), c.RateLimiter("full")
		require.NoError(t, l.SetRate(ctx, overall(1000, time.Hour)))
		require.NoError(t, full.SetRate(ctx, overall(1, time.Hour)))
		require.NoError(t, full.Acquire(ctx, 1))
		require.NoError(t, l.Acquire(ctx, 7))
		require.NoError(t, admin.Do(ctx, "CLIENT", "PAUSE", "60000", "WRITE").Err())

		errs := make(chan error)
		for range 20 {
			go func() { errs <- l.Acquire(ends, 2) }()
			go func() { _, err := l.Allow(ends, 3); errs <- err }()
			go func() { _, err := l.TryAcquire(ends, 5, time.Minute); errs <- err }()
			go func() { errs <- full.Acquire(ends, 1) }()
		}
		soon(t, "everybody is on the way", func() bool { return callers(l)+callers(full) == 80 && blocked(admin) >= 3 })
		closed := make(chan error)
		go func() { closed <- c.Close() }()
		for range 80 {
			require.ErrorIs(t, inTime(t, errs), ErrClosed)
		}
		require.NotZero(t, blocked(admin), "they did not wait for the server")
		require.NoError(t, admin.Do(ctx, "CLIENT", "UNPAUSE").Err())
		require.NoError(t, inTime(t, closed))
		soon(t, "what was granted in flight is back", func() bool { return accounts(admin, l, 1000, 7) == nil })
		require.NoError(t, accounts(admin, full, 1, 1))
		require.NoError(t, c.engine.CheckIdle())
		soon(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
	}
}

// callers returns the number of callers of l.
func callers(l *RateLimiter) (n int) {
	s := l.handle.Snapshot()
	return s.Waiting + s.Trying
}

// blocked returns the number of clients that a paused Redis has blocked.
func blocked(admin *redis.Client) (n int) {
	_, info, _ := strings.Cut(admin.Info(context.Background(), "clients").Val(), "blocked_clients:")
	_, _ = fmt.Sscan(info, &n)
	return n
}

// TestIdleLimitersHoldNothing checks that thousands of limiters, each used once in every way, hold no resources.
func TestIdleLimitersHoldNothing(t *testing.T) {
	redistest.NeedReal(t)
	rdb, ctx, name := redistest.Client(t), context.Background(), redistest.Key(t)
	before := runtime.NumGoroutine()
	c := newClient(t, rdb)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 250 {
				l := c.RateLimiter(fmt.Sprint(name, g, ".", i))
				_, err := l.TrySetRate(ctx, overall(1, time.Hour))
				if err == nil {
					err = l.Acquire(ctx, 1)
				}
				if err != nil {
					t.Error(err)
				}
				if ok, err := l.TryAcquire(ctx, 1, time.Millisecond); ok || err != nil && !errors.Is(err, ErrUnavailable) {
					t.Error(ok, err)
				}
				ends, cancel := context.WithTimeout(ctx, time.Millisecond)
				if err := l.Acquire(ends, 1); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	soon(t, "nothing is in flight", func() bool { return idle(c) })
	require.NoError(t, c.engine.CheckIdle())
	soon(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}
