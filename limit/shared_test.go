// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func shared(t *testing.T, rdb redis.UniversalClient, a Algorithm) *Shared {
	t.Helper()
	var opts []Option
	if !redistest.TTLsAreVirtual() {
		opts = append(opts, WithClientClock())
	}
	return redistest.Must(NewShared(rdb, redistest.Key(t), a, opts...))(t)
}

// onEach runs f for each of the algorithms, in a bubble of its own.
func onEach(t *testing.T, algorithms map[string]Algorithm, f func(t *testing.T, rdb *redis.Client, kind string, a Algorithm)) {
	t.Helper()
	for kind, a := range algorithms {
		redistest.Run(t, func(t *testing.T, rdb *redis.Client) { f(t, rdb, kind, a) })
	}
}

// exhaust asks for single permits until one is rejected, and returns the rejection.
func exhaust(t *testing.T, l Limiter) ratelimiter.Result {
	t.Helper()
	for {
		if r := redistest.Must(l.Allow(t.Context(), 1))(t); !r.Granted {
			return r
		}
	}
}

// roomy returns each algorithm but the quota with room for n permits, which come back in hours.
func roomy(n int64) map[string]Algorithm {
	day, hourly := per(n, 24*time.Hour), per(1, time.Hour)
	return map[string]Algorithm{
		"fixed window": FixedWindow{day}, "sliding log": SlidingLog{day}, "sliding counter": SlidingCounter{day},
		"interval bucket": IntervalBucket{hourly, n}, "token bucket": TokenBucket{hourly, n}, "debt bucket": DebtBucket{hourly, n / 2, n / 2},
		"gcra": GCRA{hourly, n}, "leaky queue": LeakyQueue{hourly, n}, "smooth bursty": SmoothBursty{0.01, calls.Longest},
		"smooth warming up": SmoothWarmingUp{PermitsPerSecond: 0.01, Warmup: calls.Longest},
	}
}

// twin returns what another process has for l.
func twin(t *testing.T, l *Shared, rdb redis.UniversalClient, opts ...Option) *Shared {
	t.Helper()
	opts = append(opts, func(c *config) { c.Clock = l.config.Clock })
	other := redistest.Must(NewShared(rdb, l.config.Name, l.Algorithm(), opts...))(t)
	return other.For(l.calls.Key)
}

// stateOf returns what Redis has stored of the permits of l, without the epoch and what it remembers of calls. Of a log that is the
// sum of all permits that it has granted.
func stateOf(t *testing.T, rdb redis.Cmdable, l *Shared) string {
	t.Helper()
	if len(l.Keys()) == 2 {
		newest := redistest.Must(rdb.ZRange(t.Context(), l.Keys()[0], -1, -1).Result())(t)
		sum, _, _ := strings.Cut(strings.Join(newest, " "), ":")
		return sum
	}
	value, err := rdb.Get(t.Context(), l.Keys()[0]).Result()
	if err != redis.Nil {
		require.NoError(t, err)
	}
	state, _, _ := strings.Cut(value, ";")
	state, _, _ = strings.Cut(state, "@")
	return state
}

// remembered returns of how many processes Redis remembers the last grant.
func remembered(t *testing.T, rdb redis.Cmdable, l *Shared) int {
	t.Helper()
	value, err := rdb.Get(t.Context(), l.Keys()[len(l.Keys())-1]).Result()
	if err != redis.Nil {
		require.NoError(t, err)
	}
	return strings.Count(value, ";")
}

// A saboteur is a hook that simulates what goes wrong between a script and its sender.
type saboteur struct {
	redistest.Passing
	left int   // calls that it spoils
	run  bool  // whether Redis runs them first
	err  error // what the sender gets
	then func()
	sent int
}

func (s *saboteur) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return next(ctx, cmd)
		}
		s.sent++
		if s.left <= 0 {
			return next(ctx, cmd)
		}
		if s.run {
			if err := next(ctx, cmd); redis.HasErrorPrefix(err, "NOSCRIPT") {
				return err
			}
		}
		s.left--
		if s.then != nil {
			s.then()
		}
		cmd.SetErr(s.err)
		return s.err
	}
}

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

// However many replies are lost, a call takes its permits once.
func TestLostReplies(t *testing.T) {
	for kind, a := range every() {
		for _, lost := range []int{1, 2, 3, 4} {
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
				s := &saboteur{left: lost, run: true, err: io.EOF}
				rdb.AddHook(s)
				l := shared(t, rdb, a)
				same := twin(t, l, redistest.Peer(t, rdb)).For("same")
				redistest.Must(same.Reserve(t.Context(), 2, 0))(t)
				r, err := l.Reserve(t.Context(), 2, 0)
				if lost == 4 {
					require.ErrorIs(t, err, ratelimiter.ErrUnavailable, kind)
					require.ErrorIs(t, err, io.EOF, kind)
				} else {
					require.NoError(t, err, kind)
					require.True(t, r.Granted, kind)
				}
				require.Equal(t, stateOf(t, rdb, same), stateOf(t, rdb, l), "%s, %d lost: one grant", kind, lost)
			})
		}
	}
}

// Without replay a call whose reply is lost is sent once, one that certainly did not run is sent again, and no ids
// are stored.
func TestWithoutReplay(t *testing.T) {
	onEach(t, every(), func(t *testing.T, rdb *redis.Client, kind string, a Algorithm) {
		s := &saboteur{}
		rdb.AddHook(s)
		ctx, remembers := t.Context(), shared(t, rdb, a)
		l := twin(t, remembers, rdb, WithoutReplay(), WithoutCachedRejections())
		redistest.Must(l.Peek(ctx, 2))(t)

		s.left, s.run, s.err, s.sent = 1, true, io.EOF, 0
		_, err := l.Reserve(ctx, 2, 0)
		require.ErrorIs(t, err, ratelimiter.ErrUnavailable, kind)
		require.ErrorIs(t, err, io.EOF, kind)
		require.Equal(t, 1, s.sent, kind)
		after := redistest.Must(remembers.Peek(ctx, 1))(t)
		other := shared(t, rdb, a).For("other")
		redistest.Must(other.Reserve(ctx, 2, 0))(t)
		require.Equal(t, redistest.Must(other.Peek(ctx, 1))(t).Available, after.Available, "%s: spent once", kind)

		s.left, s.run, s.sent = 1, false, 0
		_, err = l.Peek(ctx, 1)
		require.NoError(t, err, "who takes nothing may ask again")
		require.Equal(t, 2, s.sent, kind)
		s.left, s.err, s.sent = 1, redisError("LOADING"), 0
		redistest.Must(l.Allow(ctx, 1))(t)
		require.Equal(t, 2, s.sent, kind)
		require.Zero(t, remembered(t, rdb, l), kind)

		// A peer with replay that shares the limiter has its calls remembered as ever.
		time.Sleep(time.Hour)
		s.left, s.run, s.err = 1, true, io.EOF
		require.True(t, redistest.Must(remembers.Allow(ctx, 1))(t).Granted, kind)
		require.Equal(t, 1, remembered(t, rdb, l), kind)
	})
}

// When there is no room for all processes that were granted permits meanwhile, the call is an error and takes nothing
// twice.
func TestForgottenGrantIsAnError(t *testing.T) {
	for _, others := range []int{300, 360} {
		redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
			l := shared(t, rdb, FixedWindow{per(1000, time.Hour)})
			peer := redistest.Peer(t, rdb)
			s := &saboteur{left: 1, run: true, err: io.EOF, then: func() {
				for range others {
					require.True(t, redistest.Must(twin(t, l, peer).Allow(t.Context(), 1))(t).Granted)
				}
			}}
			rdb.AddHook(s)
			r, err := l.Allow(t.Context(), 1)
			if others == 300 {
				require.NoError(t, err)
				require.True(t, r.Granted)
			} else {
				require.ErrorIs(t, err, ratelimiter.ErrUnavailable)
				require.ErrorContains(t, err, "can no longer be told")
			}
			require.EqualValues(t, 1000-1-others, redistest.Must(l.Peek(t.Context(), 1))(t).Available)
			require.Less(t, len(rdb.Get(t.Context(), l.Keys()[0]).Val()), 16384+100, "what is remembered is bounded")

			// Ten seconds later another grant drops all of it.
			time.Sleep(11 * time.Second)
			redistest.Must(l.Allow(t.Context(), 1))(t)
			require.Equal(t, 1, remembered(t, rdb, l))
		})
	}
}

// A process that is a copy of another, and so makes the same ids, is not granted what the other was.
func TestCopiesOfAProcess(t *testing.T) {
	onEach(t, every(), func(t *testing.T, rdb *redis.Client, kind string, a Algorithm) {
		l := shared(t, rdb, a)
		copied := twin(t, l, rdb)
		redistest.Must(l.Reserve(t.Context(), 1, calls.Longest))(t)
		copied.calls.Limiter().IDs.Random = l.calls.Limiter().IDs.Random
		require.True(t, redistest.Must(copied.Reserve(t.Context(), 1, calls.Longest))(t).Granted, kind)
		require.NotEqual(t, l.calls.Limiter().IDs.Random, copied.calls.Limiter().IDs.Random)
		same := twin(t, l, rdb).For("same")
		for range 2 {
			redistest.Must(same.Reserve(t.Context(), 1, calls.Longest))(t)
		}
		require.Equal(t, stateOf(t, rdb, same), stateOf(t, rdb, l), "%s: both were granted", kind)
	})
}

// TestErrorsThatAreNotSentAgain: what others have written to the key is told as it is, and neither it nor the key of the limiter is in
// the error: either may be a token or a person, and a megabyte long.
func TestErrorsThatAreNotSentAgain(t *testing.T) {
	for _, key := range []string{"", "tok-12345678", strings.Repeat("\x00tok-", 200_000)} {
		onEach(t, every(), func(t *testing.T, rdb *redis.Client, kind string, a Algorithm) {
			s := &saboteur{}
			rdb.AddHook(s)
			l := shared(t, rdb, a).For(key)
			for _, ask := range []func(context.Context, int64) (ratelimiter.Result, error){l.Allow, l.Peek} {
				require.NoError(t, rdb.LPush(t.Context(), l.Keys()[0], "tok-12345678").Err())
				s.sent = 0
				_, err := ask(t.Context(), 1)
				require.ErrorContains(t, err, "WRONGTYPE", kind)
				require.NotErrorIs(t, err, ratelimiter.ErrUnavailable)
				require.NotContains(t, err.Error(), "tok-", kind)
				require.Less(t, len(err.Error()), 400, kind)
				require.LessOrEqual(t, s.sent, 2, "EVALSHA, and EVAL where it was not there")

				require.NoError(t, rdb.Del(t.Context(), l.Keys()...).Err())
				require.NoError(t, rdb.Set(t.Context(), l.Keys()[0], "tok-12345678", 0).Err())
				r, err := ask(t.Context(), 1)
				require.False(t, r.Granted)
				require.NotContains(t, err.Error(), "tok-", kind)
				require.Less(t, len(err.Error()), 400, kind)
				if kind != "sliding log" { // for which it is of another type
					require.ErrorIs(t, err, ratelimiter.ErrMalformed, kind)
				}
				require.NoError(t, rdb.Del(t.Context(), l.Keys()...).Err())
			}
			*s = saboteur{left: 100, err: errors.New("broken")}
			_, err := l.Allow(t.Context(), 1)
			require.ErrorIs(t, err, ratelimiter.ErrUnavailable)
			require.NotContains(t, err.Error(), "tok-")
			require.Less(t, len(err.Error()), 400)
		})
	}
}

// A reply that no script gives is an error, and neither a grant nor a panic.
func TestForeignReplies(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		h := &replacer{}
		rdb.AddHook(h)
		for _, h.reply = range []any{nil, "OK", int64(1), []any{}, []any{"x"}, []any{int64(1)}, []any{int64(-1)}, []any{int64(1), int64(1)}, []any{int64(1), int64(0), int64(0)},
			[]any{int64(2), int64(0), int64(0), int64(0)}, []any{int64(1), int64(-1), int64(0), int64(0)},
			[]any{int64(1), int64(0), 1.5, int64(0)}, []any{int64(1), int64(0), int64(0), nil}, []any{int64(1), ""}, []any{int64(1), "x", int64(1)},
			[]any{int64(1), "", int64(2)}, []any{int64(1), "", int64(-1)}, []any{int64(1), "", int64(1), int64(1)}, []any{int64(1), "", "x"}} {
			for kind, ask := range map[string]func(*Shared) (ratelimiter.Result, error){
				"all":        func(l *Shared) (ratelimiter.Result, error) { return l.Allow(t.Context(), 3) },
				"up to that": func(l *Shared) (ratelimiter.Result, error) { _, r, err := l.AllowAtMost(t.Context(), 1); return r, err },
			} {
				r, err := ask(shared(t, rdb, GCRA{per(1, time.Second), 5}))
				require.Error(t, err, "%s: %v", kind, h.reply)
				require.Zero(t, r)
			}
		}
	})
}

// A replacer is a hook that replies to each script.
type replacer struct {
	redistest.Passing
	reply any
}

func (r *replacer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if c, ok := cmd.(interface{ SetVal(any) }); ok && cmd.Name() == "evalsha" {
			c.SetVal(r.reply)
			return nil
		}
		return next(ctx, cmd)
	}
}

func TestContexts(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		s := &saboteur{}
		rdb.AddHook(s)
		l := shared(t, rdb, GCRA{per(3, time.Second), 8})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := l.Allow(ctx, 1)
		require.True(t, err == context.Canceled, "%v", err)
		require.Zero(t, s.sent)

		ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		var sent atomic.Int64 // the call goes on when its caller has left
		*s = saboteur{left: 100, err: redisError("LOADING"), then: func() { sent.Add(1) }}
		begin := time.Now()
		_, err = l.Allow(ctx, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, ratelimiter.ErrUnavailable)
		require.Equal(t, time.Millisecond, time.Since(begin))
		require.EqualValues(t, 1, sent.Load())
	})
}
