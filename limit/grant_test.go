// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// granter is what both forms of a limiter have in common.
type granter interface {
	Limiter
	AllowGrant(ctx context.Context, n int64) (*Grant, ratelimiter.Result, error)
	WaitGrant(ctx context.Context, n int64) (*Grant, error)
}

func grantOf(t *testing.T, l granter, n int64) *Grant {
	t.Helper()
	g, r, err := l.AllowGrant(t.Context(), n)
	require.NoError(t, err)
	require.True(t, r.Granted)
	require.Equal(t, n, g.Permits())
	return g
}

// TestSettle checks what is left after a grant was settled, at once and later, with permits that were taken in between.
func TestSettle(t *testing.T) {
	window, counter := FixedWindow{per(10, time.Second)}, SlidingCounter{per(10, time.Second)}
	step, bucket := IntervalBucket{per(3, time.Second), 8}, TokenBucket{per(2, time.Second), 10}
	debt, quota := DebtBucket{per(2, time.Second), 4, 6}, CalendarQuota{Permits: 10, Per: Day, Location: time.UTC}
	for _, c := range []struct {
		a                    Algorithm
		grant                int64
		wait                 time.Duration
		others, actual, left int64
		owed                 time.Duration // until a permit is granted
	}{
		{window, 5, 0, 3, 2, 5, 0},
		{window, 5, 900 * time.Millisecond, 3, 0, 7, 0},
		{window, 5, time.Second, 3, 0, 7, 0}, // the window has ended
		{window, 5, time.Second, 3, 8, 4, 0}, // the next one pays
		{window, 5, 0, 3, 7, 0, time.Second},
		{window, 5, 0, 3, 1 << 30, 0, time.Second},
		{quota, 5, 0, 3, 2, 5, 0},
		{quota, 5, 24 * time.Hour, 3, 0, 7, 0}, // of yesterday
		{quota, 5, 24 * time.Hour, 3, 8, 4, 0},
		{quota, 5, 0, 3, 7, 0, 24 * time.Hour},
		{counter, 8, 0, 1, 5, 4, 0},
		{counter, 8, 1500 * time.Millisecond, 3, 2, 6, 0}, // of the previous window a half counts
		{counter, 8, 2 * time.Second, 3, 0, 7, 0},
		{counter, 8, 0, 1, 19, 0, 1500*time.Millisecond + time.Microsecond},
		{step, 6, 0, 1, 2, 5, 0},
		{step, 6, time.Second, 5, 0, 3, 0}, // three have come back by themselves
		{step, 6, 2 * time.Second, 8, 0, 0, time.Second},
		{step, 6, 0, 2, 12, 0, 3 * time.Second},
		{bucket, 10, time.Second, 2, 0, 8, 0},
		{bucket, 10, 5 * time.Second, 10, 0, 0, 500 * time.Millisecond},
		{bucket, 10, time.Second, 2, 13, 0, 2 * time.Second},
		{bucket, 10, time.Minute, 10, 20, 0, 5500 * time.Millisecond},
		{debt, 10, 0, 0, 1, 9, 0},
		{debt, 10, 0, 0, 12, 0, 4 * time.Second},
		{GCRA(bucket), 10, time.Second, 2, 0, 8, 0},
		{GCRA(bucket), 10, 5 * time.Second, 10, 0, 0, 500 * time.Millisecond},
		{GCRA(bucket), 10, time.Minute, 10, 20, 0, 5500 * time.Millisecond},
	} {
		name := fmt.Sprintf("%T of %d, after %v and %d, to %d", c.a, c.grant, c.wait, c.others, c.actual)
		steps := func(t *testing.T, l granter) {
			g := grantOf(t, l, c.grant)
			time.Sleep(c.wait)
			if c.others > 0 {
				grantOf(t, l, c.others)
			}
			require.NoError(t, g.Settle(t.Context(), c.actual))
			require.ErrorIs(t, g.Settle(t.Context(), c.actual), ratelimiter.ErrSettled)
			require.ErrorIs(t, g.Cancel(t.Context()), ratelimiter.ErrSettled)
			r := redistest.Must(l.Allow(t.Context(), max(1, c.left)))(t)
			require.Equal(t, c.left > 0, r.Granted)
			require.Zero(t, r.Available)
			require.Equal(t, c.owed, r.Wait*time.Duration(1-min(c.left, 1)))
		}
		t.Run("shared "+name, func(t *testing.T) {
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) { steps(t, shared(t, rdb, c.a)) })
		})
		t.Run("local "+name, func(t *testing.T) {
			redistest.NoServer(t)
			synctest.Test(t, func(t *testing.T) {
				l := redistest.Must(NewLocal(c.a))(t)
				steps(t, l)
			})
		})
	}
}

// TestWhatCannotBeSettled checks the errors of calls that make no sense, which take nothing.
func TestWhatCannotBeSettled(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		ctx, s := t.Context(), &saboteur{}
		rdb.AddHook(s)
		for kind, a := range every() {
			local := redistest.Must(NewLocal(a))(t)
			for _, l := range []granter{shared(t, rdb, a), local} {
				if kind == "sliding log" || a.model().Reserves {
					_, _, err := l.AllowGrant(ctx, 1)
					require.ErrorIs(t, err, ErrCannotSettle, kind)
					_, err = l.WaitGrant(ctx, 1)
					require.ErrorIs(t, err, ErrCannotSettle, kind)
					continue
				}
				g, _, err := l.AllowGrant(ctx, a.model().Largest+1)
				require.ErrorIs(t, err, ratelimiter.ErrPermitsExceedRate)
				require.ErrorIs(t, g.Cancel(ctx), ratelimiter.ErrInvalidArgument, "nil")
				require.ErrorIs(t, new(Grant).Cancel(ctx), ratelimiter.ErrInvalidArgument)
				var none context.Context
				_, err = l.WaitGrant(none, 1)
				require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
				g = grantOf(t, l, 2)
				sent := s.sent
				for _, actual := range []int64{-1, calls.MaxPermits + 1} {
					require.ErrorIs(t, g.Settle(ctx, actual), ratelimiter.ErrInvalidArgument)
				}
				gone, cancel := context.WithCancel(ctx)
				cancel()
				require.Equal(t, context.Canceled, g.Settle(gone, 1))
				require.NoError(t, g.Settle(ctx, 2), "another number, as granted")
				require.ErrorIs(t, g.Cancel(ctx), ratelimiter.ErrSettled)
				require.Equal(t, sent, s.sent)
			}
		}
	})
}

// TestWaitersGetWhatIsGivenBack checks that callers who wait are served when a grant is settled to less: those of the
// process at once, and those of another one within a second.
func TestWaitersGetWhatIsGivenBack(t *testing.T) {
	for kind, c := range map[string]struct {
		other bool
		late  time.Duration
	}{"same process": {false, 0}, "another process": {true, time.Second}} {
		t.Run(kind, func(t *testing.T) {
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
				l := shared(t, rdb, FixedWindow{per(10, time.Hour)})
				waits := l
				if c.other {
					waits = twin(t, l, redistest.Peer(t, rdb))
				}
				g := grantOf(t, l, 10)
				begin := time.Now()
				var got *Grant
				var all sync.WaitGroup
				all.Go(func() {
					var err error
					if got, err = waits.WaitGrant(t.Context(), 4); err != nil {
						panic(err)
					}
				})
				time.Sleep(5500 * time.Millisecond)
				require.NoError(t, g.Settle(t.Context(), 6))
				all.Wait()
				require.LessOrEqual(t, time.Since(begin), 5500*time.Millisecond+c.late)
				require.NoError(t, got.Cancel(t.Context()))
				r := redistest.Must(l.Allow(t.Context(), 4))(t)
				require.True(t, r.Granted)
			})
		})
	}
}

// TestSettleIsLost checks that a settlement is made once whatever becomes of its calls, and what the same one returns when
// it is made again.
func TestSettleIsLost(t *testing.T) {
	again := func(t *testing.T, g *Grant, _ *Shared) error { return g.Cancel(t.Context()) }
	busy := func(t *testing.T, g *Grant, l *Shared) error {
		grantOf(t, l, 1)
		return g.Cancel(t.Context())
	}
	for name, c := range map[string]struct {
		lost, unsent int // calls whose reply, or which themselves, are lost
		opts         []Option
		fails        bool // Cancel returns ErrUnavailable
		then         func(t *testing.T, g *Grant, l *Shared) error
		want         error
		left         int64
	}{
		"a reply":                          {lost: 1, then: again, want: ratelimiter.ErrSettled, left: 10},
		"three replies":                    {lost: 3, then: again, want: ratelimiter.ErrSettled, left: 10},
		"all replies":                      {lost: 4, fails: true, then: again, left: 10},
		"all calls":                        {unsent: 4, fails: true, then: again, left: 10},
		"a call":                           {unsent: 1, then: again, want: ratelimiter.ErrSettled, left: 10},
		"all replies, others granted":      {lost: 4, fails: true, then: busy, want: ratelimiter.ErrUnavailable, left: 9},
		"a reply that is not remembered":   {lost: 1, fails: true, opts: []Option{WithoutReplay()}, then: again, want: ratelimiter.ErrUnavailable, left: 10},
		"all replies, then another number": {lost: 4, fails: true, left: 10, want: ratelimiter.ErrSettled, then: func(t *testing.T, g *Grant, _ *Shared) error { return g.Settle(t.Context(), 1) }},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
				l := shared(t, rdb, FixedWindow{per(10, time.Hour)})
				l = twin(t, l, rdb, c.opts...)
				g := grantOf(t, l, 6)
				s := &saboteur{left: c.lost + c.unsent, run: c.lost > 0, err: io.EOF}
				rdb.AddHook(s)
				err := g.Cancel(t.Context())
				if c.fails {
					require.ErrorIs(t, err, ratelimiter.ErrUnavailable)
				} else {
					require.NoError(t, err)
				}
				require.ErrorIs(t, c.then(t, g, l), c.want)
				r := redistest.Must(l.Peek(t.Context(), 1))(t)
				require.Equal(t, c.left, r.Available)
			})
		})
	}
}

// TestSettleThatIsLeft checks that a settlement whose caller leaves while it is on its way is made once, also when it is
// made again before it has arrived.
func TestSettleThatIsLeft(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		l, c := withPolicy(t, rdb, FixedWindow{per(10, time.Hour)}, ratelimiter.FailClosed())
		g := grantOf(t, l, 6)
		c.delay.Store(int64(500 * time.Millisecond))
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, g.Settle(short, 2), context.DeadlineExceeded)
		require.NoError(t, g.Settle(ctx, 2))
		r := redistest.Must(l.Peek(ctx, 1))(t)
		require.EqualValues(t, 8, r.Available)
	})
}

// TestSettleThatArrivesLate checks that a settlement that is sent again and arrives when Redis has forgotten it, and others
// were granted permits, changes nothing.
func TestSettleThatArrivesLate(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		l := shared(t, rdb, FixedWindow{per(10, time.Hour)})
		peer := twin(t, l, redistest.Peer(t, rdb))
		g := grantOf(t, l, 6)
		others := int64(0)
		rdb.AddHook(&delayer{underway: func(int) {
			time.Sleep(11 * time.Second)
			grantOf(t, peer, 1)
			others++
		}})
		withoutWitness(rdb)
		require.ErrorIs(t, g.Cancel(t.Context()), ratelimiter.ErrUnavailable)
		before := redistest.Must(peer.Peek(t.Context(), 1))(t)
		others = 0
		require.ErrorIs(t, g.Cancel(t.Context()), ratelimiter.ErrUnavailable)
		after := redistest.Must(peer.Peek(t.Context(), 1))(t)
		require.Equal(t, before.Available-others, after.Available, "the other's, while the calls that ask and settle were on their way")
	})
}

// TestGrantWhoseReplyWasLost checks that such a grant can be settled, too, and gives back no more than it took.
func TestGrantWhoseReplyWasLost(t *testing.T) {
	for kind, a := range every() {
		if checkSettles(newSetting(a)) != nil {
			continue
		}
		redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
			l := shared(t, rdb, a)
			grantOf(t, l, 1)
			time.Sleep(time.Millisecond)
			before := redistest.Must(l.Peek(t.Context(), 1))(t)
			rdb.AddHook(&saboteur{left: 2, run: true, err: io.EOF})
			g := grantOf(t, l, 3)
			require.NoError(t, g.Cancel(t.Context()))
			after := redistest.Must(l.Peek(t.Context(), 1))(t)
			require.LessOrEqual(t, after.Available, before.Available, kind)
			require.GreaterOrEqual(t, after.Available, before.Available-1, "%s: what may have come in meanwhile", kind)
		})
	}
}

// TestGrantOfALostReplyGoesBack checks that all of what such a grant has not used goes back, although the limiter began with it, or a moment
// before it, and whatever others do with the key in between. What is lost is the reply to a call of one grant or of several.
func TestGrantOfALostReplyGoesBack(t *testing.T) {
	rate := per(100, time.Hour)
	for kind, a := range map[string]Algorithm{
		"fixed window":    FixedWindow{rate},
		"sliding counter": SlidingCounter{rate},
		"calendar quota":  CalendarQuota{Permits: 100, Per: Month, Location: time.UTC},
		"interval bucket": IntervalBucket{rate, 100},
		"token bucket":    TokenBucket{rate, 100},
		"debt bucket":     DebtBucket{rate, 99, 1},
		"gcra":            GCRA{rate, 100},
	} {
		for _, before := range []int64{0, 10} {
			for _, between := range []int64{0, 20} {
				for _, callers := range []int64{1, 3} {
					redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
						l := shared(t, rdb, a)
						other := twin(t, l, redistest.Peer(t, rdb))
						if before > 0 {
							grantOf(t, other, before)
						}
						s := &saboteur{left: 1, run: true, err: io.EOF}
						s.then = func() {
							if between > 0 {
								grantOf(t, other, between)
							}
						}
						rdb.AddHook(s)
						var together sync.WaitGroup
						for range callers {
							together.Go(func() {
								g, r, err := l.AllowGrant(t.Context(), 5)
								if assert.NoError(t, err) && assert.True(t, r.Granted) {
									assert.NoError(t, g.Settle(t.Context(), 2))
								}
							})
						}
						together.Wait()
						left := redistest.Must(other.Peek(t.Context(), 1))(t).Available
						require.Equal(t, 100-before-between-2*callers, left, "%s after %d, and %d in between, of %d", kind, before, between, callers)
					})
				}
			}
		}
	}
}
