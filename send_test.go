package ratelimiter

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

// A fault is a hook that runs scripts or does not, and then returns err.
type fault struct {
	scriptHook
	left atomic.Int64
	run  bool
	err  error
	sent atomic.Int64
}

func (f *fault) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return next(ctx, cmd)
		}
		f.sent.Add(1)
		if f.left.Load() <= 0 {
			return next(ctx, cmd)
		}
		if f.run {
			if err := next(ctx, cmd); redis.HasErrorPrefix(err, "NOSCRIPT") {
				return err
			}
		}
		f.left.Add(-1)
		cmd.SetErr(f.err)
		return f.err
	}
}

func inject(rdb *redis.Client, run bool, err error) *fault {
	f := &fault{run: run, err: err}
	rdb.AddHook(f)
	return f
}

// After a lost reply the call is sent again, and what was granted once is taken once.
func TestLostReplyIsAskedForAgain(t *testing.T) {
	for _, lost := range []int64{1, 2, 3} {
		inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
			f := inject(w.rdb, true, io.EOF)
			f.left.Store(lost)
			w.granted(4)
			require.Zero(t, f.left.Load())
			require.EqualValues(t, 6, w.value())
			used, members := w.used()
			require.EqualValues(t, 4, used)
			require.Equal(t, 1, members)
		})
	}
	// Also with the last permits, when the call that is sent again finds none left but its own grant.
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		f := inject(w.rdb, true, io.EOF)
		f.left.Store(1)
		w.granted(10)
		require.Zero(t, w.value())
	})
}

func TestErrorsThatAreSentAgain(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		f := inject(w.rdb, false, redisError("LOADING Redis is loading the dataset in memory"))
		f.left.Store(retry.MaxAttempts - 1)
		w.granted(1)
		f.left.Store(retry.MaxAttempts)
		_, err := w.l.Allow(w.ctx, 1)
		require.ErrorContains(t, err, "LOADING")
		require.ErrorContains(t, err, w.l.Name())
		var re redis.Error
		require.ErrorAs(t, err, &re)
		require.Zero(t, f.left.Load())
		time.Sleep(1250 * time.Millisecond) // until the next probe
		w.available(10)
	})
}

func TestErrorsThatAreNotSentAgain(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.granted(5)
		require.NoError(t, w.l.Release(w.ctx, 1))
		// A release that may have been executed must not run twice, because it would give back what others
		// hold.
		f := inject(w.rdb, true, io.EOF)
		f.left.Store(1)
		require.ErrorIs(t, w.l.Release(w.ctx, 1), io.EOF)
		require.EqualValues(t, 1, f.sent.Load())
		w.available(7)

		require.NoError(t, w.rdb.Del(w.ctx, w.permitsKey()).Err())
		require.NoError(t, w.rdb.Set(w.ctx, w.permitsKey(), "a string", 0).Err())
		f.sent.Store(0)
		_, err := w.l.Allow(w.ctx, 1)
		require.ErrorContains(t, err, "WRONGTYPE")
		require.EqualValues(t, 1, f.sent.Load())
		require.EqualValues(t, 7, w.value(), "nothing half-done")
	})
}

// A context that is done between two attempts ends the call with its own error, and that of the last attempt.
func TestContextEndsTheAttempts(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		f := inject(w.rdb, false, redisError("LOADING"))
		f.left.Store(100)
		ctx, cancel := context.WithTimeout(w.ctx, time.Millisecond)
		defer cancel()
		_, err := w.l.Allow(ctx, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorContains(t, err, "LOADING")
		require.Equal(t, time.Millisecond, w.elapsed())
		require.EqualValues(t, 1, f.sent.Load())
	})
}
