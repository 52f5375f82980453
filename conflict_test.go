package ratelimiter

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/redistest"
)

// A flipper gives a limiter another type than a client expects before each of its script calls.
type flipper struct {
	scriptHook
	peer *redis.Client
	l    *RateLimiter
	on   bool
}

func (f *flipper) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if f.on && strings.HasPrefix(cmd.Name(), "eval") {
			f.peer.HSet(ctx, f.l.redis.Keys.Hash, "type", int(f.l.handle.Type().Other()))
		}
		return next(ctx, cmd)
	}
}

// TestTypeThatKeepsChanging checks that every call which depends on the type of a limiter returns ErrConflict when
// others change the type again and again, that no such call takes anything, and that the next one works.
func TestTypeThatKeepsChanging(t *testing.T) {
	inWorld(t, overall(10, time.Hour), func(t *testing.T, w *world) {
		other := w.client.RateLimiter(w.l.Name() + "{" + w.l.Name() + "}")
		require.NoError(t, other.SetRate(w.ctx, overall(10, time.Hour)))
		f := &flipper{peer: redistest.Peer(t, w.rdb), l: w.l}
		w.rdb.AddHook(f)
		for name, call := range map[string]func() error{
			"Try":              func() error { _, err := w.l.Allow(w.ctx, 1); return err },
			"TryAcquire":       func() error { _, err := w.l.TryAcquire(w.ctx, 1, time.Second); return err },
			"Acquire":          func() error { return w.l.Acquire(w.ctx, 1) },
			"Peek":             func() error { _, err := w.l.Peek(w.ctx, 1); return err },
			"AvailablePermits": func() error { _, err := w.l.AvailablePermits(w.ctx); return err },
			"Release":          func() error { return w.l.Release(w.ctx, 1) },
			"Inspect":          func() error { _, err := w.l.Inspect(w.ctx); return err },
			"CoolDown":         func() error { return w.l.CoolDown(w.ctx, time.Now().Add(time.Minute)) },
			"LiftCoolDown":     func() error { _, err := w.l.LiftCoolDown(w.ctx); return err },
			"TryAcquireAll": func() error {
				_, err := w.client.TryAcquireAll(w.ctx, 0, Demand{Limiter: w.l, Permits: 1}, Demand{Limiter: other, Permits: 1})
				return err
			},
		} {
			f.on = true
			err := call()
			f.on = false
			require.ErrorIs(t, err, ErrConflict, name)
			require.NotErrorIs(t, err, ErrUnavailable, name)
			require.ErrorContains(t, err, w.l.Name(), name)
			n, err := w.l.AvailablePermits(w.ctx)
			require.NoError(t, err, name)
			require.Equal(t, int64(10), n, name)
		}
	})
}
