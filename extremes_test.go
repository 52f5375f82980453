package ratelimiter

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestWaitsBeyondADuration checks intervals and cool-downs too long for a time.Duration, which Java can set. The
// waits reported are then as long as a Duration can be, and waiters send no more calls than usual.
func TestWaitsBeyondADuration(t *testing.T) {
	for _, ms := range []int64{9_000_000_000_000, 10_000_000_000_000, 1 << 52} {
		inWorld(t, overall(2, time.Second), func(t *testing.T, w *world) {
			require.NoError(t, w.rdb.HSet(w.ctx, w.l.redis.Keys.Hash, "interval", ms).Err())
			w.granted(1)
			w.granted(1)
			r := w.try(1)
			require.False(t, r.Granted)
			require.Greater(t, r.Wait, 200*365*24*time.Hour)
			require.Greater(t, r.Rate.Interval, 200*365*24*time.Hour)
			rate, err := w.l.Rate(w.ctx)
			require.NoError(t, err)
			require.Equal(t, rate, r.Rate, "Rate and Allow agree")

			sent := count(w.rdb)
			other := w.client.RateLimiter(w.l.Name() + "other")
			require.NoError(t, other.SetRate(w.ctx, overall(2, time.Second)))
			before := sent.sent.Load()
			ok, err := w.l.TryAcquire(w.ctx, 1, time.Minute)
			require.NoError(t, err)
			require.False(t, ok)
			require.LessOrEqual(t, sent.sent.Load()-before, int64(75), "once a second, and the looks for lost permits")
			before = sent.sent.Load()
			a, err := w.client.TryAcquireAll(w.ctx, time.Minute, Demand{w.l, 1}, Demand{other, 1})
			require.NoError(t, err)
			require.False(t, a.Granted)
			require.Positive(t, a.Wait)
			require.LessOrEqual(t, sent.sent.Load()-before, int64(600))
		})
	}
	inWorld(t, overall(2, time.Second), func(t *testing.T, w *world) {
		until := int64(math.MaxInt64 / 2)
		require.NoError(t, w.l.CoolDown(w.ctx, time.Now().Add(time.Hour)))
		require.NoError(t, w.rdb.HSet(w.ctx, w.l.redis.Keys.Hash, "coolDown", until).Err())
		sent := count(w.rdb)
		r := w.try(1)
		require.False(t, r.Granted)
		require.Positive(t, r.Wait)
		ok, err := w.l.TryAcquire(w.ctx, 1, time.Minute)
		require.NoError(t, err)
		require.False(t, ok)
		require.LessOrEqual(t, sent.sent.Load(), int64(80))
		_, err = w.l.CoolDownUntil(w.ctx)
		require.NoError(t, err)
	})
}

// TestRateAndTryAgreeOnWhatIsMalformed checks that all operations fail with the same error for the same malformed
// limiter, and that none of them returns a number for it.
func TestRateAndTryAgreeOnWhatIsMalformed(t *testing.T) {
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		values := []string{"2000", "", "0", "1", "-1", "+1", "01", "1.0", "1.5", "1e3", "0x10", " 1", "1 ", "x", "nan", "-nan", "inf", "-inf", "infinity", "1e999",
			"9007199254740992", "9007199254740993", "9223372036854775807", "9223372036854775808", "1e400", "10000000000000000", "\x00", "1\n",
			strconv.FormatInt(time.Now().Add(24*time.Hour).UnixMilli(), 10) + ".5", "4102444800000.25"}
		for _, field := range []string{"rate", "interval", "type", "keepAliveTime", "minGap", "coolDown", "reopenUntil"} {
			for _, v := range values {
				if (strings.ContainsAny(v, "einx") || len(v) > 18) && redistest.TTLsAreVirtual() {
					continue // the Lua of miniredis does not parse these
				}
				require.NoError(t, w.rdb.Del(w.ctx, w.l.redis.Keys.Hash, w.valueKey(), w.permitsKey()).Err())
				hash := map[string]any{"rate": "5", "interval": "1000", "keepAliveTime": "0", "type": "0"}
				hash[field] = v
				if field == "coolDown" || field == "reopenUntil" {
					hash["keepAliveTime"] = "5000" // which a cool-down makes longer
				}
				set := func() { // before each operation, because a keepAliveTime of 1 ms is soon over
					_, err := w.rdb.TxPipelined(w.ctx, func(p redis.Pipeliner) error {
						p.Del(w.ctx, w.l.redis.Keys.Hash)
						return p.HSet(w.ctx, w.l.redis.Keys.Hash, hash).Err()
					})
					require.NoError(t, err)
				}
				set()
				_, rateErr := w.l.Rate(w.ctx)
				set()
				r, tryErr := w.l.Allow(w.ctx, 1)
				what := func(err error) string {
					for _, e := range []error{ErrMalformed, ErrNotInitialized, ErrPermitsExceedRate} {
						if errors.Is(err, e) {
							return e.Error()
						}
					}
					if err != nil {
						return "another error: " + err.Error()
					}
					return "none"
				}
				require.Equal(t, what(rateErr), what(tryErr), "%s %q: Rate and Allow (%+v)", field, v, r)
				require.GreaterOrEqual(t, r.Rate.MinGap, time.Duration(0), "%s %q", field, v)
				require.LessOrEqual(t, r.Rate.MinGap, max(0, r.Rate.Interval), "%s %q", field, v)
				set()
				_, err := w.client.TryAcquireAll(w.ctx, 0, Demand{w.l, 1}) // one in a cool-down of centuries must not wait
				require.Equal(t, what(rateErr), what(err), "%s %q: TryAcquireAll", field, v)
				set()
				_, err = w.l.Peek(w.ctx, 1)
				require.Equal(t, what(rateErr), what(err), "%s %q: Peek", field, v)
				set()
				_, err = w.l.Inspect(w.ctx)
				require.Equal(t, what(rateErr), what(err), "%s %q: Inspect", field, v)
				set()
				require.Equal(t, what(rateErr), what(w.l.Release(w.ctx, 1)), "%s %q: Release", field, v)
				set()
				n, err := w.l.AvailablePermits(w.ctx)
				if field != "keepAliveTime" { // which it does not need, because it keeps nothing alive
					require.Equal(t, what(rateErr), what(err), "%s %q: AvailablePermits", field, v)
				}
				require.GreaterOrEqual(t, n, int64(0), "%s %q: AvailablePermits", field, v)
				if err != nil {
					require.Zero(t, n, "%s %q: AvailablePermits", field, v)
				}
			}
		}
	})
}

// TestContextThatEndsInAnOutage checks that a caller whose context ends during an outage gets an error that wraps
// both the context's error and the outage.
func TestContextThatEndsInAnOutage(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.granted(1)
		goesAway(w, cutOff(w, refusedDial))
		for name, acquire := range map[string]func(ctx context.Context) error{
			"Acquire":    func(ctx context.Context) error { return w.l.Acquire(ctx, 1) },
			"TryAcquire": func(ctx context.Context) error { _, err := w.l.TryAcquire(ctx, 1, time.Minute); return err },
			"AcquireAll": func(ctx context.Context) error {
				return errOf(w.client.AcquireAll(ctx, Demand{w.l, 1}, Demand{w.client.RateLimiter(w.l.Name() + "2"), 1}))
			},
		} {
			ctx, cancel := context.WithTimeout(w.ctx, 3*time.Second)
			err := acquire(ctx)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			require.ErrorIs(t, err, ErrUnavailable, name)
			require.ErrorContains(t, err, "refused", name)
			require.ErrorContains(t, err, strconv.Quote(w.l.Name())[:10], name)
		}
	})
	inWorld(t, overall(1, time.Minute), func(t *testing.T, w *world) {
		w.granted(1)
		ctx, cancel := context.WithTimeout(w.ctx, 3*time.Second)
		defer cancel()
		err := w.l.Acquire(ctx, 1)
		require.True(t, err == context.DeadlineExceeded, "Redis is there: %v", err)
	})
}

// TestPanicsAreContained checks that a panic in a hook or in the observer fails the request and stops nothing else.
func TestPanicsAreContained(t *testing.T) {
	for _, name := range []string{"hook", "observer"} {
		t.Run(name, func(t *testing.T) {
			observed := make(chan Event, 1000)
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
				h := &panicker{}
				w := newWorld(t, rdb, WithHook(Hook{Event: func(e Event) {
					observed <- e
					if name == "observer" {
						panic("observer")
					}
				}}))
				require.NoError(t, w.l.SetRate(w.ctx, overall(5, time.Second)))
				w.granted(1)
				rdb.AddHook(h)
				h.on.Store(name == "hook")
				if name == "observer" {
					c := cutOff(w, refusedDial)
					c.down.Store(true)
					defer c.down.Store(false)
				}
				fails := func(err error) {
					t.Helper()
					require.ErrorIs(t, err, ErrUnavailable)
				}
				_, err := w.l.Allow(w.ctx, 1)
				fails(err)
				_, err = w.l.TryAcquire(w.ctx, 1, time.Second)
				fails(err)
				fails(w.l.Acquire(w.ctx, 1)) // fails once the outage limit has passed
				ctx, cancel := context.WithTimeout(w.ctx, time.Second)
				defer cancel()
				fails(errOf(w.client.AcquireAll(ctx, Demand{w.l, 1}, Demand{w.client.RateLimiter(w.l.Name() + "2"), 1})))
				if name == "hook" {
					err = w.l.SetRate(w.ctx, overall(5, time.Second))
					fails(err)
					require.ErrorContains(t, err, "panicked: hook")
					_, err = w.l.Rate(w.ctx)
					fails(err)
					h.on.Store(false)
					time.Sleep(10 * time.Second)
					w.granted(5)
					e := <-observed
					require.Equal(t, Panicked, e.Kind)
					require.ErrorContains(t, e.Err, "hook")
					require.Equal(t, w.l.Name(), e.Limiter)
				}
				begin := time.Now()
				require.NoError(t, w.client.Close())
				require.Zero(t, time.Since(begin))
			})
		})
	}
}

// A panicker is a hook that panics instead of sending a command.
type panicker struct {
	scriptHook
	on atomic.Bool
}

func (p *panicker) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if p.on.Load() {
			panic("hook")
		}
		return next(ctx, cmd)
	}
}
