// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A delayer is a hook that loses the reply of the first script that Redis runs, and calls underway while each later
// script is on its way.
type delayer struct {
	lost     bool
	underway func(resent int)
	resent   int
}

func (*delayer) DialHook(next redis.DialHook) redis.DialHook { return next }
func (*delayer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
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

// A call that is sent again and is long on its way takes nothing twice, however many grants others get meanwhile and
// however late it arrives.
func TestReplayThatIsLongOnItsWay(t *testing.T) {
	for kind, a := range map[string]Algorithm{
		"fixed window": FixedWindow{per(1000, time.Hour)}, "sliding log": SlidingLog{per(1000, time.Hour)},
		"sliding counter": SlidingCounter{per(1000, time.Hour)}, "interval bucket": IntervalBucket{per(1, time.Hour), 1000},
		"token bucket": TokenBucket{per(1, time.Hour), 1000}, "debt bucket": DebtBucket{per(1, time.Hour), 500, 500},
		"gcra": GCRA{per(1, time.Hour), 1000}, "leaky queue": LeakyQueue{per(1, time.Hour), 1000},
		"smooth bursty":     SmoothBursty{0.01, longest},
		"smooth warming up": SmoothWarmingUp{PermitsPerSecond: 0.01, Warmup: longest},
	} {
		for _, c := range []struct {
			others  int           // grants of others while the call is on its way
			on      int           // the first or the second time that it is sent again
			pass    time.Duration // how long it is on its way
			granted bool
		}{
			{0, 1, time.Second, true},
			{130, 1, time.Second, true}, // as many as there are of one process
			{300, 1, 9 * time.Second, true},
			{0, 1, 12 * time.Second, true}, // nobody has dropped it
			{1, 1, 12 * time.Second, false},
			{1, 1, 50 * time.Second, false},
		} {
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
				ctx, l := t.Context(), shared(t, rdb, a)
				peer := twin(t, l, redistest.Peer(t, rdb))
				reserve := func(l *Shared) (Result, error) { return l.Reserve(ctx, 1, longest) }
				after := ""
				d := &delayer{underway: func(resent int) {
					if resent == c.on {
						time.Sleep(c.pass)
						for range c.others {
							require.True(t, redistest.Must(reserve(peer))(t).Granted)
						}
						after = stateOf(t, rdb, l)
					}
				}}
				rdb.AddHook(d)
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
					key := l.keys[len(l.keys)-1]
					require.NoError(t, rdb.Append(ctx, key, strings.Repeat(rdb.Get(ctx, key).Val()[strings.Index(rdb.Get(ctx, key).Val(), ";"):], before-1)).Err())
				}
				r, err := l.Peek(ctx, 1)
				require.NoError(t, err)
				time.Sleep(r.Wait + time.Second)
				s := &saboteur{left: 2, err: io.EOF}
				rdb.AddHook(s)
				r, err = l.Allow(ctx, 1)
				require.NoError(t, err, kind)
				require.True(t, r.Granted, kind)
				require.Equal(t, 4, s.sent, "lost twice, told the time, run")
				*s = saboteur{left: 2, err: io.EOF}
				r, err = l.Reserve(ctx, 1, longest)
				require.NoError(t, err, kind)
				require.Equal(t, 3, s.sent, "that its last grant was another is enough")
			})
		}
	}
}

// TestRepliesLostOnARealServer tests that calls take at most what they ask for when one reply in ten is lost, on
// limiters that others use at the same time.
func TestRepliesLostOnARealServer(t *testing.T) {
	redistest.NeedReal(t)
	server := redistest.Start(t)
	direct := server.Client(t)
	t.Run("one in ten", func(t *testing.T) {
		const clients, calls = 4, 250
		proxy := redistest.StartProxy(t, server.Addr())
		var scripts atomic.Int64
		proxy.Judge(func(words []string) redistest.Fault {
			if strings.HasPrefix(strings.ToLower(words[0]), "eval") && scripts.Add(1)%10 == 0 {
				return redistest.Fault{Lose: redistest.LoseReply}
			}
			return redistest.Fault{}
		})
		for kind, a := range map[string]Algorithm{
			"fixed window": FixedWindow{per(1_000_000, 24*time.Hour)}, "sliding log": SlidingLog{per(1_000_000, 24*time.Hour)},
			"token bucket": TokenBucket{per(1, time.Hour), 1_000_000}, "gcra": GCRA{per(1, time.Hour), 1_000_000},
		} {
			busy := redistest.Must(NewShared(direct, redistest.Key(t), a))(t)
			before := redistest.Must(busy.Peek(t.Context(), 1))(t)
			stop := make(chan struct{})
			var others, asked sync.WaitGroup
			var took, granted, unknown atomic.Int64
			others.Go(func() { // they push ids out
				for {
					select {
					case <-stop:
						return
					default:
					}
					r, err := busy.Allow(t.Context(), 1)
					if err != nil || !r.Granted {
						panic(fmt.Sprint(r, err))
					}
					took.Add(1)
				}
			})
			for range clients {
				rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), DisableIdentity: true, MaxRetries: -1})
				t.Cleanup(func() { rdb.Close() })
				l := redistest.Must(NewShared(rdb, busy.config.name, a))(t)
				asked.Go(func() {
					for range calls {
						r, err := l.Allow(t.Context(), 1)
						switch {
						case err == nil && r.Granted:
							granted.Add(1)
						case errors.Is(err, ratelimiter.ErrUnavailable):
							unknown.Add(1)
						default:
							panic(fmt.Sprint(r, err))
						}
					}
				})
			}
			asked.Wait()
			close(stop)
			others.Wait()
			after := redistest.Must(busy.Peek(t.Context(), 1))(t)
			spent := before.Available - after.Available - took.Load()
			t.Logf("%s: %d calls, %d granted, %d unknown, %d spent; %d grants of others; %d replies lost",
				kind, clients*calls, granted.Load(), unknown.Load(), spent, took.Load(), proxy.Counts().LostReplies)
			require.LessOrEqual(t, spent, int64(clients*calls), kind)
			require.LessOrEqual(t, spent, granted.Load()+unknown.Load(), kind)
			require.GreaterOrEqual(t, spent, granted.Load(), kind)
		}
	})
	t.Run("130 grants in between", func(t *testing.T) {
		for run := range 14 {
			proxy := redistest.StartProxy(t, server.Addr())
			rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), DisableIdentity: true, MaxRetries: -1})
			t.Cleanup(func() { rdb.Close() })
			a := TokenBucket{per(1, time.Hour), 1_000}
			l := redistest.Must(NewShared(rdb, redistest.Key(t), a))(t)
			others := redistest.Must(NewShared(direct, l.config.name, a))(t)
			redistest.Must(l.Peek(t.Context(), 1))(t)
			scripts := 0
			proxy.Judge(func(words []string) redistest.Fault {
				if strings.HasPrefix(strings.ToLower(words[0]), "eval") {
					if scripts++; scripts == 1 {
						return redistest.Fault{Lose: redistest.LoseReply}
					}
					for range 130 * (3 - min(scripts, 3)) { // while it is sent again the first time
						r, err := others.Allow(context.Background(), 1)
						if err != nil || !r.Granted {
							panic(fmt.Sprint(r, err))
						}
					}
					time.Sleep(50 * time.Millisecond)
				}
				return redistest.Fault{}
			})
			r, err := l.Allow(t.Context(), 10)
			proxy.Judge(nil)
			after := redistest.Must(others.Peek(t.Context(), 1))(t)
			assert.EqualValues(t, 10, 1000-130-after.Available, "run %d: spent for 10; the result was %+v, %v", run, r, err)
			assert.NoError(t, err)
			assert.True(t, r.Granted)
		}
	})
}

// TestRepliesLostInFlights cuts connections in the middle of pipelines that the calls of many keys share. Redis
// runs what is behind the cut, too, and nobody is told; nothing is granted twice or lost.
func TestRepliesLostInFlights(t *testing.T) {
	redistest.NeedReal(t)
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	rdb := server.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() })
	require.Equal(t, 3, rdb.Options().MaxRetries, "go-redis would send a pipeline again")
	const keys, burst = 200, 100_000
	a := GCRA{per(1, time.Hour), burst}
	all := redistest.Must(NewShared(rdb, redistest.Key(t), a))(t)
	plain := redistest.Must(NewShared(server.Client(t), all.config.name, a))(t)
	var scripts, lost atomic.Int64
	proxy.Judge(func(words []string) (f redistest.Fault) {
		if strings.HasPrefix(words[0], "eval") && scripts.Add(1)%200 == 0 {
			f.Lose, f.Reset = redistest.LoseReply, scripts.Load()%400 == 0
		}
		return f
	})
	rdb.AddHook(lostReplies{&lost})
	lose := int64(redistest.Cases(2000, 10_000))
	var granted, unknown [keys]atomic.Int64
	var callers sync.WaitGroup
	for range 128 {
		callers.Go(func() {
			for end := time.Now().Add(3 * time.Minute); lost.Load() < lose && time.Now().Before(end); {
				i := rand.IntN(keys)
				r, err := all.For(strconv.Itoa(i)).Allow(context.Background(), 1)
				switch {
				case err == nil && r.Granted:
					granted[i].Add(1)
				case errors.Is(err, ratelimiter.ErrUnavailable):
					unknown[i].Add(1)
				default:
					t.Error(r, err)
				}
			}
		})
	}
	callers.Wait()
	var told, doubts, spent int64
	for i := range keys {
		r := redistest.Must(plain.For(strconv.Itoa(i)).Peek(t.Context(), 1))(t)
		n := burst - r.Available
		require.GreaterOrEqual(t, n, granted[i].Load(), i)
		require.LessOrEqual(t, n, granted[i].Load()+unknown[i].Load(), i)
		told, doubts, spent = told+granted[i].Load(), doubts+unknown[i].Load(), spent+n
	}
	t.Logf("%d granted, %d unknown, %d spent, no reply to %d; %+v", told, doubts, spent, lost.Load(), proxy.Counts())
	require.GreaterOrEqual(t, lost.Load(), lose)
}

// lostReplies is a hook that counts the commands of pipelines that get no reply.
type lostReplies struct{ n *atomic.Int64 }

func (lostReplies) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (lostReplies) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (l lostReplies) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			var reply redis.Error
			if c, ok := cmd.(dispatch.OnceCmd); ok && c.Val() == nil && c.Err() != nil && !errors.As(c.Err(), &reply) {
				l.n.Add(1)
			}
		}
		return err
	}
}
