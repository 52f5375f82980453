package ratelimiter

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/wire"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A forger replies to scripts in place of Redis while it has replies.
type forger struct {
	scriptHook
	mu      sync.Mutex
	replies []any
	forever any // what it replies when it has none left
	err     error
}

func (f *forger) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.err != nil {
			cmd.SetErr(f.err)
			return f.err
		}
		if once, ok := cmd.(dispatch.OnceCmd); ok && len(f.replies) > 0 {
			once.SetVal(f.replies[0])
			f.replies = f.replies[1:]
			return nil
		} else if ok && f.forever != nil {
			once.SetVal(f.forever)
			return nil
		}
		return next(ctx, cmd)
	}
}

// A reply that no script gives, but perhaps a proxy or a replaced script on the server, is an error, and never
// a grant or a panic.
func TestForeignReplies(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		f := &forger{}
		w.rdb.AddHook(f)
		operations := map[string]func() error{
			"Allow":            func() error { r, err := w.l.Allow(w.ctx, 1); require.False(t, r.Granted); return err },
			"AvailablePermits": func() error { _, err := w.l.AvailablePermits(w.ctx); return err },
			"Release":          func() error { return w.l.Release(w.ctx, 1) },
			"SetRate":          func() error { return w.l.SetRate(w.ctx, overall(10, time.Second)) },
			"Inspect":          func() error { _, err := w.l.Inspect(w.ctx); return err },
			"Heal":             func() error { return w.l.redis.Heal(w.ctx, permit.Overall, permit.Checked) },
			"TrySetRate":       func() error { _, err := w.l.TrySetRate(w.ctx, overall(10, time.Second)); return err },
			"Expire":           func() error { _, err := w.l.Expire(w.ctx, time.Second); return err },
			"ClearExpire":      func() error { _, err := w.l.ClearExpire(w.ctx); return err },
			"ExpireTime":       func() error { _, err := w.l.ExpireTime(w.ctx); return err },
			"Delete":           func() error { _, err := w.l.Delete(w.ctx); return err },
		}
		for name, op := range operations {
			for _, reply := range []any{"OK", nil, 1.5, []any{}, []any{"x"}, []any{nil, int64(1)}, []any{int64(0), "x", "y"}} {
				f.replies = []any{reply}
				require.Error(t, op(), "%s answered %v", name, reply)
			}
		}
		for _, name := range []string{"Allow", "AvailablePermits", "Inspect", "Heal"} {
			for _, reply := range []any{[]any{int64(0)}, []any{int64(0), int64(1)}, []any{int64(77)}, []any{int64(4)}, []any{int64(3)}} {
				f.replies = []any{reply}
				require.Error(t, operations[name](), "%s answered %v", name, reply)
			}
		}
		// An operation ends even if the type changes forever.
		flip := func(n int) (r []any) {
			for i := range n {
				r = append(r, []any{int64(2), int64((i + 1) % 2)})
			}
			return r
		}
		for _, name := range []string{"Allow", "AvailablePermits", "Release", "Inspect"} {
			f.replies = flip(8)
			require.ErrorContains(t, operations[name](), w.l.Name(), name)
			f.replies = nil
		}
		f.replies = flip(1)
		require.NoError(t, operations["Heal"](), "the next call will be told")
		// So it does if the set changes during every look.
		f.replies = []any{[]any{int64(5)}, []any{int64(5)}, []any{int64(5)}, []any{int64(5)}}
		require.ErrorContains(t, operations["AvailablePermits"](), "faster")
		f.replies = []any{[]any{int64(5)}, []any{int64(5)}, []any{int64(5)}}
		require.NoError(t, operations["Heal"]())
		require.Empty(t, f.replies)
		f.replies = []any{[]any{int64(5)}}
		w.available(10)
	})
}

// Errors of plain commands have the name of the limiter, and the error of a context is unchanged.
func TestPlainCommandErrors(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		cause := errors.New("out of order")
		f := &forger{err: cause}
		w.rdb.AddHook(f)
		ctx, cancel := context.WithCancel(w.ctx)
		for _, op := range []func() error{
			func() error { _, err := w.l.Rate(ctx); return err },
			func() error { _, err := w.l.TTL(ctx); return err },
			func() error { _, err := w.l.Exists(ctx); return err },
		} {
			require.ErrorIs(t, op(), cause)
			require.ErrorContains(t, op(), w.l.Name())
		}
		f.err = context.Canceled
		cancel()
		_, err := w.l.Rate(ctx)
		require.True(t, err == context.Canceled)
	})
}

func TestNamesOfValues(t *testing.T) {
	for f, want := range map[wire.Format]string{wire.FormatUnknown: "unknown", wire.FormatFI: "fI", wire.FormatLc0I: "Lc0I", wire.FormatBc0I: "Bc0I"} {
		require.Equal(t, want, f.String())
	}
	require.Equal(t, "ratelimiter: the limiter is PER_CLIENT", (&permit.WrongTypeError{Type: permit.PerClient}).Error())
}
