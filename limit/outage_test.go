// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
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

var (
	noDial   = &net.OpError{Op: "dial", Net: "tcp", Err: io.EOF}
	readOnly = redisError("READONLY You can't write against a read only replica.")
)

// A cut is a hook that stands between a limiter and Redis.
type cut struct {
	redistest.Passing
	err    atomic.Pointer[error] // what every command that is not a peek gets
	delay  atomic.Int64          // of each reply
	sent   atomic.Int64
	mu     sync.Mutex
	events []ratelimiter.Event
}

func (c *cut) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		time.Sleep(time.Duration(c.delay.Load()))
		return err
	}
}
func (c *cut) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if ctx.Err() != nil {
			return next(ctx, cmd)
		}
		c.sent.Add(1)
		if err := c.err.Load(); err != nil {
			cmd.SetErr(*err)
			return *err
		}
		err := next(ctx, cmd)
		time.Sleep(time.Duration(c.delay.Load()))
		return err
	}
}

func (c *cut) fail(err error) { c.err.Store(&err) }
func (c *cut) mend()          { c.err.Store(nil) }

func (c *cut) told() (kinds []ratelimiter.EventKind, last ratelimiter.Event) {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, last = range c.events {
		kinds = append(kinds, last.Kind)
	}
	return kinds, last
}

// A slowConn is a connection whose replies take longer.
type slowConn struct {
	net.Conn
	delay *atomic.Int64
}

func (c slowConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	time.Sleep(time.Duration(c.delay.Load()))
	return n, err
}

// withPolicy returns a limiter that follows p, and the cut between it and Redis.
func withPolicy(t *testing.T, rdb *redis.Client, a Algorithm, p ratelimiter.OutagePolicy) (*Shared, *cut) {
	c := &cut{}
	mine := redistest.Peer(t, rdb)
	mine.AddHook(c)
	o := mine.Options()
	dial := o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if err := c.err.Load(); err != nil {
			return nil, *err
		}
		conn, err := dial(ctx, network, addr)
		return slowConn{conn, &c.delay}, err
	}
	hook := ratelimiter.Hook{Event: func(e ratelimiter.Event) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.events = append(c.events, e)
	}}
	return twin(t, shared(t, rdb, a), mine, WithOutagePolicy(p), WithHook(hook)), c
}

func tenOf(nodes int) ratelimiter.OutagePolicy {
	return ratelimiter.LocalQuota(ratelimiter.Rate{Permits: 10, Interval: 10 * time.Second}, nodes)
}

// TestOutagePolicies checks what each policy decides, at once, while Redis is known to be down; how often Redis is asked
// meanwhile; that Redis decides again a moment after it is back; and what the Hooks are told.
func TestOutagePolicies(t *testing.T) {
	for name, p := range map[string]struct {
		policy  ratelimiter.OutagePolicy
		granted int64 // in 20 s
	}{"closed": {ratelimiter.FailClosed(), 0}, "open": {ratelimiter.FailOpen(), 200}, "quota": {tenOf(3), 3}} {
		for cause, err := range map[string]error{"refused": noDial, "read-only": readOnly, "lost": io.EOF} {
			for kind, a := range every() {
				t.Run(name+", "+cause+", "+kind, func(t *testing.T) {
					redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
						ctx := t.Context()
						l, c := withPolicy(t, rdb, a, p.policy)
						r, failed := l.Allow(ctx, 1)
						require.NoError(t, failed)
						require.True(t, r.Granted && !r.Degraded)
						time.Sleep(10 * time.Second) // until nothing is rejected without a call
						c.fail(err)
						_, failed = l.Allow(ctx, 1)
						if p.granted == 0 {
							require.ErrorIs(t, failed, ratelimiter.ErrUnavailable)
							require.ErrorIs(t, failed, err)
						}
						kinds, e := c.told()
						require.Equal(t, []ratelimiter.EventKind{ratelimiter.OutageBegan}, kinds)
						require.Equal(t, l.config.Name, e.Limiter)

						granted, asked, before := int64(0), time.Now(), c.sent.Load()
						for range 200 {
							r, failed := l.Allow(ctx, 1)
							require.Equal(t, p.granted == 0, failed != nil)
							require.Equal(t, failed == nil, r.Degraded)
							if r.Granted {
								granted++
							}
							time.Sleep(100 * time.Millisecond)
						}
						require.Equal(t, 20*time.Second, time.Since(asked), "no call waits")
						require.InDelta(t, p.granted, granted, 3, "the quota: 3 after 10 s, and one may come back in the 20th second")
						require.Equal(t, before, c.sent.Load(), "only the witness asks")
						c.mend()
						mended := time.Now()
						for r, failed = l.Peek(ctx, 1); failed != nil || r.Degraded; r, failed = l.Peek(ctx, 1) {
							time.Sleep(10 * time.Millisecond)
						}
						require.LessOrEqual(t, time.Since(mended), 1300*time.Millisecond)
						kinds, e = c.told()
						require.Equal(t, []ratelimiter.EventKind{ratelimiter.OutageBegan, ratelimiter.OutageEnded}, kinds)
						require.GreaterOrEqual(t, e.Degraded, granted)
					})
				})
			}
		}
	}
}

// TestAllowAtMostInAnOutage checks that what the policy decides of a call without a reply stays what it is when the reply comes.
func TestAllowAtMostInAnOutage(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		l, c := withPolicy(t, rdb, GCRA{per(1, time.Hour), 3}, ratelimiter.FailOpen())
		redistest.Must(l.Peek(t.Context(), 1))(t)
		c.delay.Store(int64(time.Minute))
		for i := range 10 {
			go func() { _, _ = l.For(string(rune('a'+i))).Allow(context.Background(), 1) }()
		}
		permits, r, err := l.AllowAtMost(t.Context(), 10)
		require.NoError(t, err)
		require.True(t, r.Granted && r.Degraded)
		require.EqualValues(t, 10, permits)
		c.delay.Store(0)
		time.Sleep(3 * time.Minute)
		require.EqualValues(t, 10, permits, "the limiter itself had three")
	})
}

// TestLocalQuotaIsTaken checks that what a local quota granted is taken from the limiter when Redis is back, once.
func TestLocalQuotaIsTaken(t *testing.T) {
	for kind, a := range roomy(100) {
		if a.model().Reserves {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
				ctx := t.Context()
				l, c := withPolicy(t, rdb, a, tenOf(1))
				grantOf := func(n int64, degraded bool) {
					t.Helper()
					r := redistest.Must(l.Allow(ctx, n))(t)
					require.True(t, r.Granted)
					require.Equal(t, degraded, r.Degraded)
				}
				grantOf(1, false)
				c.fail(noDial)
				redistest.Must(l.Allow(ctx, 1))(t)
				_, err := l.Allow(ctx, 11)
				require.ErrorIs(t, err, ratelimiter.ErrUnavailable, "more than the quota")
				time.Sleep(10 * time.Second)
				grantOf(2, true)
				time.Sleep(2 * time.Second)
				grantOf(4, true)
				synctest.Wait()
				c.mend()
				grantOf(1, true)
				time.Sleep(1300 * time.Millisecond)
				synctest.Wait()
				grantOf(3, false)
				grantOf(5, false)
				left := int64(100 - 1 - (2 + 4 + 1) - 3 - 5)
				if kind == "sliding log" { // is not told
					left += 2 + 4 + 1
				}
				r := redistest.Must(l.Peek(ctx, 1))(t)
				require.Equal(t, left, r.Available)
			})
		})
	}
}

// TestWaitersInAnOutage checks what becomes of callers that wait when an outage begins, under each policy, and that they
// are served when Redis is back.
func TestWaitersInAnOutage(t *testing.T) {
	for name, c := range map[string]struct {
		policy  ratelimiter.OutagePolicy
		timeout time.Duration
		back    time.Duration // when Redis is back; 0 for never
		granted bool
		err     error
		after   time.Duration // since the outage began
	}{
		"closed":               {ratelimiter.FailClosed(), time.Minute, 0, false, ratelimiter.ErrUnavailable, 0},
		"open":                 {ratelimiter.FailOpen(), time.Minute, 0, true, nil, 0},
		"quota":                {tenOf(2), time.Minute, 0, true, nil, 10 * time.Second},
		"quota, too late":      {tenOf(2), 5 * time.Second, 0, false, nil, 5 * time.Second},
		"quota, Redis in time": {tenOf(2), 9 * time.Second, 3 * time.Second, true, nil, 5500 * time.Millisecond},
		"quota of nobody":      {tenOf(11), time.Minute, 0, false, ratelimiter.ErrUnavailable, 0},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
				ctx := t.Context()
				l, cut := withPolicy(t, rdb, TokenBucket{per(10, time.Second), 10}, c.policy)
				require.NoError(t, Wait(ctx, l, 10))
				cut.fail(noDial)
				begin := time.Now()
				if c.back > 0 {
					time.AfterFunc(c.back, cut.mend)
				}
				granted, err := WaitTimeout(ctx, l, 1, c.timeout)
				require.ErrorIs(t, err, c.err)
				require.Equal(t, c.granted, granted)
				if c.back > 0 {
					require.Less(t, time.Since(begin), c.after)
				} else {
					require.InDelta(t, (c.after + 300*time.Millisecond).Seconds(), time.Since(begin).Seconds(), 0.3)
				}
			})
		})
	}
}

// TestSlowRedis checks that replies that take too long are an outage, which decides the calls that are on their way, too.
func TestSlowRedis(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		l, c := withPolicy(t, rdb, TokenBucket{per(10, time.Second), 10}, ratelimiter.FailOpen())
		redistest.Must(l.Allow(t.Context(), 1))(t)
		c.delay.Store(int64(5 * time.Second))
		begin := time.Now()
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				r, err := l.For(string(rune('a'+i/2))).Allow(context.Background(), 1)
				if err != nil || !r.Degraded {
					t.Error(r, err)
				}
			})
		}
		all.Wait()
		require.LessOrEqual(t, time.Since(begin), 2*time.Second)
		redistest.Must(l.Allow(t.Context(), 1))(t)
		require.LessOrEqual(t, time.Since(begin), 2*time.Second)
		c.delay.Store(0)
		time.Sleep(12 * time.Second)
		redistest.Must(l.Allow(t.Context(), 1))(t)
		time.Sleep(time.Second)
		r := redistest.Must(l.Allow(t.Context(), 1))(t)
		require.False(t, r.Degraded)
		kinds, _ := c.told()
		require.Equal(t, []ratelimiter.EventKind{ratelimiter.OutageBegan, ratelimiter.OutageEnded}, kinds)
	})
}

// TestOutageLeavesErrorsAlone checks that a policy decides nothing that Redis has decided, and that it is checked.
func TestOutageLeavesErrorsAlone(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		l, c := withPolicy(t, rdb, GCRA{per(10, time.Second), 10}, ratelimiter.FailOpen())
		for _, text := range []string{"WRONGTYPE Operation against a key", "NOPERM no permissions", "ERR unknown command"} {
			c.fail(redisError(text))
			_, err := l.Allow(t.Context(), 1)
			require.ErrorContains(t, err, text)
			require.NotErrorIs(t, err, ratelimiter.ErrUnavailable)
			require.Equal(t, text[:4] == "NOPE", errors.Is(err, ratelimiter.ErrDenied))
			require.Equal(t, text[:4] == "WRON", strings.Contains(err.Error(), "choose another one"), "what to do about it")
		}
		_, err := l.Allow(t.Context(), 11)
		require.ErrorIs(t, err, ratelimiter.ErrPermitsExceedRate)
		_, err = NewShared(rdb, "x", GCRA{per(10, time.Second), 10}, WithOutagePolicy(tenOf(0)))
		require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
	})
}

// TestGrantOfAPolicy checks that a grant that an outage policy made is settled without Redis, to less or to more, during the outage and
// after it, and that this changes nothing.
func TestGrantOfAPolicy(t *testing.T) {
	for name, p := range map[string]ratelimiter.OutagePolicy{"open": ratelimiter.FailOpen(), "quota": tenOf(1)} {
		for kind, a := range every() {
			if checkSettles(newSetting(a)) != nil {
				continue
			}
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
				ctx, what := t.Context(), name+", "+kind
				l, c := withPolicy(t, rdb, a, p)
				require.True(t, redistest.Must(l.Allow(ctx, 1))(t).Granted)
				c.fail(noDial)
				_, err := l.Peek(ctx, 1) // the outage becomes known
				if err != nil {
					require.ErrorIs(t, err, ratelimiter.ErrUnavailable, what)
				}
				time.Sleep(11 * time.Second) // until the quota has begun
				now, r, err := l.AllowGrant(ctx, 2)
				require.NoError(t, err, what)
				require.True(t, r.Granted && r.Degraded, what)
				waited := redistest.Must(l.WaitGrant(ctx, 2))(t)
				more := grantOf(t, l, 1)
				later := grantOf(t, l, 1)
				c.told() // the probe has been sent
				sent := c.sent.Load()
				require.NoError(t, now.Cancel(ctx), what)
				require.ErrorIs(t, now.Cancel(ctx), ratelimiter.ErrSettled, what)
				require.NoError(t, waited.Settle(ctx, 1), what)
				require.NoError(t, more.Settle(ctx, calls.MaxPermits), what)
				require.Equal(t, sent, c.sent.Load(), "%s: nothing is asked of Redis", what)
				c.mend()
				for r.Degraded {
					time.Sleep(time.Second)
					r, err = l.Peek(ctx, 1)
					require.NoError(t, err, what)
				}
				r = redistest.Must(l.Peek(ctx, 1))(t)
				c.told()
				sent = c.sent.Load()
				require.NoError(t, later.Settle(ctx, 3), what)
				require.Equal(t, sent, c.sent.Load(), what)
				require.Equal(t, r.Available, redistest.Must(l.Peek(ctx, 1))(t).Available, what)
			})
		}
	}
}

// TestCallsWithoutDeadlineEndWithTheOutage checks that calls of context.Background() on their way are decided when an outage begins, under
// every policy, and that Reset ends then.
func TestCallsWithoutDeadlineEndWithTheOutage(t *testing.T) {
	for _, p := range []ratelimiter.OutagePolicy{ratelimiter.FailClosed(), ratelimiter.FailOpen(), tenOf(1)} {
		redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
			l, c := withPolicy(t, rdb, GCRA{per(10, time.Minute), 10}, p)
			_, err := l.Allow(context.Background(), 1)
			require.NoError(t, err)
			c.delay.Store(int64(10 * time.Second))
			ended := map[string]error{}
			var all sync.WaitGroup
			for name, call := range map[string]func() error{
				"Allow": func() error { _, err := l.Allow(context.Background(), 1); return err },
				"Peek":  func() error { _, err := l.Peek(context.Background(), 1); return err },
				"Reset": func() error { return l.Reset(context.Background()) },
			} {
				all.Go(func() {
					begin := time.Now()
					err := call()
					assert.Less(t, time.Since(begin), 1600*time.Millisecond, name)
					c.mu.Lock()
					defer c.mu.Unlock()
					ended[name] = err
				})
			}
			all.Wait()
			require.ErrorIs(t, ended["Reset"], ratelimiter.ErrUnavailable)
			for _, name := range []string{"Allow", "Peek"} {
				if p == ratelimiter.FailClosed() {
					require.ErrorIs(t, ended[name], ratelimiter.ErrUnavailable, name)
				} else {
					require.NoError(t, ended[name], name)
				}
			}
			c.delay.Store(0)
			time.Sleep(30 * time.Second)
		})
	}
}
