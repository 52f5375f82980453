// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A delayer is a hook that loses the reply of the first script that Redis runs, and calls underway while each later
// script is on its way.
type delayer struct {
	redistest.Passing
	lost     bool
	underway func(resent int)
	resent   int
}

func (d *delayer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return next(ctx, cmd)
		}
		if d.lost {
			d.resent++
			d.underway(d.resent)
			return next(ctx, cmd)
		}
		err := next(ctx, cmd)
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			return err
		}
		d.lost = true
		cmd.SetErr(io.EOF)
		return io.EOF
	}
}

// withoutWitness leaves the witness without a descriptor for its connections, so that no attempt at a call is written off.
func withoutWitness(rdb *redis.Client) {
	dial := rdb.Options().Dialer
	rdb.Options().Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if httptrace.ContextClientTrace(ctx) != nil {
			return nil, syscall.EMFILE
		}
		return dial(ctx, network, addr)
	}
}

// patient returns a client for a test of arithmetic, about which a machine that is too busy for Redis to reply within seconds tells nothing.
func patient(t *testing.T) *redis.Client {
	rdb := redistest.Client(t)
	withoutWitness(rdb)
	rdb.Options().ReadTimeout = time.Minute
	return rdb
}

// A call that is sent again and is long on its way takes nothing twice, however many grants others get meanwhile and
// however late it arrives.
func TestReplayThatIsLongOnItsWay(t *testing.T) {
	for kind, a := range roomy(1000) {
		for _, c := range []struct {
			others  int           // grants of others while the call is on its way
			on      int           // the first or the second time that it is sent again
			pass    time.Duration // how long it is on its way
			granted bool
		}{
			{0, 1, time.Second, true},
			{130, 1, time.Second, true}, // as many as there are of one process
			{300, 1, 9 * time.Second, true},
			{0, 1, 11 * time.Second, true}, // nobody has dropped it
			{1, 1, 11 * time.Second, false},
			{1, 1, 50 * time.Second, false},
		} {
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
				ctx, l := t.Context(), shared(t, rdb, a)
				peers := redistest.Peer(t, rdb)
				peer := twin(t, l, peers)
				reserve := func(l *Shared) (ratelimiter.Result, error) { return l.Reserve(ctx, 1, calls.Longest) }
				after := ""
				d := &delayer{underway: func(resent int) {
					if resent == c.on {
						time.Sleep(c.pass)
						for range c.others {
							require.True(t, redistest.Must(reserve(peer))(t).Granted)
						}
						after = stateOf(t, peers, l)
					}
				}}
				rdb.AddHook(d)
				withoutWitness(rdb)
				r, err := reserve(l)
				if c.on > d.resent { // it was sent again once
					require.True(t, r.Granted)
					return
				}
				if c.granted {
					require.NoError(t, err, "%s: %+v", kind, c)
					require.True(t, r.Granted, "%s: %+v", kind, c)
				} else {
					require.ErrorIs(t, err, ratelimiter.ErrUnavailable, "%s: %+v", kind, c)
				}
				time.Sleep(c.pass) // until it has arrived
				require.Equal(t, after, stateOf(t, rdb, l), "%s: %+v: it spent twice", kind, c)
			})
		}
	}
}

// A call that did not run is sent again and runs, also when others are remembered and not its process, and when there
// is room for no more: that was before.
func TestReplayOfACallThatDidNotRun(t *testing.T) {
	for kind, a := range every() {
		for _, before := range []int{0, 1, 500} {
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
				ctx, l := t.Context(), shared(t, rdb, a)
				if before > 0 {
					redistest.Must(twin(t, l, rdb).Allow(ctx, 1))(t)
					key := l.Keys()[len(l.Keys())-1]
					require.NoError(t, rdb.Append(ctx, key, strings.Repeat(rdb.Get(ctx, key).Val()[strings.Index(rdb.Get(ctx, key).Val(), ";"):], before-1)).Err())
				}
				r := redistest.Must(l.Peek(ctx, 1))(t)
				time.Sleep(r.Wait + time.Second)
				s := &saboteur{left: 2, err: io.EOF}
				rdb.AddHook(s)
				r, err := l.Allow(ctx, 1)
				require.NoError(t, err, kind)
				require.True(t, r.Granted, kind)
				require.Equal(t, 4, s.sent, "lost twice, told the time, run")
				*s = saboteur{left: 2, err: io.EOF}
				r, err = l.Reserve(ctx, 1, calls.Longest)
				require.NoError(t, err, kind)
				require.Equal(t, 3, s.sent, "that its last grant was another is enough")
			})
		}
	}
}

// TestAttemptWrittenOffArrives checks that an attempt which was written off, because its connection seemed to have vanished, takes and gives
// back nothing when it arrives after all, whatever others were granted meanwhile.
func TestAttemptWrittenOffArrives(t *testing.T) {
	for kind, a := range roomy(1000) {
		for _, settles := range []bool{false, true} {
			for _, late := range []time.Duration{700 * time.Millisecond, 5 * time.Second} {
				if settles && checkSettles(newSetting(a)) != nil {
					continue
				}
				redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
					what := fmt.Sprintf("%s, settles %v, %v late", kind, settles, late)
					ctx, l := t.Context(), shared(t, rdb, a)
					peers := redistest.Peer(t, rdb)
					peer := twin(t, l, peers)
					g := (*Grant)(nil)
					if settles {
						g = grantOf(t, l, 3)
					}
					var before, after string
					var sent atomic.Bool
					arrived := make(chan struct{})
					rdb.AddHook(redistest.OnCommand(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
						if strings.HasPrefix(cmd.Name(), "eval") && sent.CompareAndSwap(false, true) {
							defer close(arrived)
							time.Sleep(late)
							before = stateOf(t, peers, l)
							err := next(ctx, cmd)
							after = stateOf(t, peers, l)
							return err
						}
						return next(ctx, cmd)
					}))
					begin := time.Now()
					if settles {
						require.NoError(t, g.Settle(ctx, 1), what)
					} else {
						require.True(t, redistest.Must(l.Reserve(ctx, 1, calls.Longest))(t).Granted, what)
					}
					require.Less(t, time.Since(begin), 700*time.Millisecond, what)
					require.True(t, redistest.Must(peer.Reserve(ctx, 1, calls.Longest))(t).Granted)
					<-arrived
					require.NotEmpty(t, before, what)
					require.Equal(t, before, after, what)
				})
			}
		}
	}
}
