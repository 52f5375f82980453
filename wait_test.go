package ratelimiter

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// everything returns every method that takes a context.
func everything(w *world, ctx context.Context) map[string]func() error {
	return map[string]func() error{
		"Try":              func() error { _, err := w.l.Allow(ctx, 1); return err },
		"TryAcquire":       func() error { _, err := w.l.TryAcquire(ctx, 1, time.Minute); return err },
		"Acquire":          func() error { return w.l.Acquire(ctx, 1) },
		"Acquire bad n":    func() error { return w.l.Acquire(ctx, -1) },
		"TrySetRate":       func() error { _, err := w.l.TrySetRate(ctx, Rate{}); return err },
		"SetRate":          func() error { return w.l.SetRate(ctx, overall(1, time.Second)) },
		"UpdateRate":       func() error { _, err := w.l.UpdateRate(ctx, overall(1, time.Second)); return err },
		"Rate":             func() error { _, err := w.l.Rate(ctx); return err },
		"AvailablePermits": func() error { _, err := w.l.AvailablePermits(ctx); return err },
		"Release":          func() error { return w.l.Release(ctx, 1) },
		"Expire":           func() error { _, err := w.l.Expire(ctx, time.Hour); return err },
		"ExpireAt":         func() error { _, err := w.l.ExpireAt(ctx, time.Now()); return err },
		"ClearExpire":      func() error { _, err := w.l.ClearExpire(ctx); return err },
		"TTL":              func() error { _, err := w.l.TTL(ctx); return err },
		"ExpireTime":       func() error { _, err := w.l.ExpireTime(ctx); return err },
		"Exists":           func() error { _, err := w.l.Exists(ctx); return err },
		"Delete":           func() error { _, err := w.l.Delete(ctx); return err },
		"Inspect":          func() error { _, err := w.l.Inspect(ctx); return err },
	}
}

// TestContextEndsEveryCall checks that every call returns when its context ends, even while Redis does not reply.
func TestContextEndsEveryCall(t *testing.T) {
	inWorld(t, overall(10, time.Hour), func(t *testing.T, w *world) {
		w.granted(1)
		w.rdb.AddHook(slow{by: time.Minute})
		ctx, cancel := context.WithTimeout(w.ctx, 700*time.Millisecond)
		defer cancel()
		calls := everything(w, ctx)
		delete(calls, "Acquire bad n")
		calls["TrySetRate"] = func() error { _, err := w.l.TrySetRate(ctx, overall(1, time.Second)); return err }
		var wg sync.WaitGroup
		for name, f := range calls {
			wg.Go(func() {
				err := f()
				require.ErrorIs(t, err, context.DeadlineExceeded, name)
				require.ErrorIs(t, err, ErrUnavailable, name)
				require.Equal(t, 700*time.Millisecond, w.elapsed(), name)
			})
		}
		wg.Wait()
		time.Sleep(time.Hour)
	})
}

// slow is a hook that delays every command.
type slow struct {
	scriptHook
	by time.Duration
}

func (s slow) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		time.Sleep(s.by)
		return next(ctx, cmd)
	}
}

// TestContextErrorsComeThroughUnchanged checks that every call looks at its context first and returns the context's
// error unwrapped.
func TestContextErrorsComeThroughUnchanged(t *testing.T) {
	inWorld(t, overall(1, time.Hour), func(t *testing.T, w *world) {
		canceled, cancel := context.WithCancel(w.ctx)
		cancel()
		sent := count(w.rdb)
		for name, f := range everything(w, canceled) {
			require.True(t, f() == context.Canceled, name)
		}
		require.Zero(t, sent.sent.Load())

		w.granted(1)
		for _, f := range []func(ctx context.Context) error{
			func(ctx context.Context) error { _, err := w.l.TryAcquire(ctx, 1, time.Minute); return err },
			func(ctx context.Context) error { return w.l.Acquire(ctx, 1) },
		} {
			begin := time.Now()
			ctx, cancel := context.WithTimeout(w.ctx, 2750*time.Millisecond)
			require.True(t, f(ctx) == context.DeadlineExceeded)
			require.Equal(t, 2750*time.Millisecond, time.Since(begin))
			cancel()
			begin = time.Now()
			ctx, cancel = context.WithCancel(w.ctx)
			time.AfterFunc(1300*time.Millisecond, cancel)
			require.True(t, f(ctx) == context.Canceled)
			require.Equal(t, 1300*time.Millisecond, time.Since(begin))
		}
		requireIdle(t, w.client)
	})
}

// requireIdle checks that no caller waits and that nothing is in flight. It works only inside a synctest bubble.
func requireIdle(t *testing.T, c *Client) {
	t.Helper()
	synctest.Wait()
	require.NoError(t, c.engine.CheckIdle())
}
