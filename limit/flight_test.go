// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"runtime"
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
	"github.com/stretchr/testify/require"
)

// A holder is a hook that holds a script back until it is released.
type holder struct {
	redistest.Passing
	mu      sync.Mutex
	hold    bool
	release chan struct{}
	scripts []string // the requests of those that were sent
	before  func(n int)
	fail    func(n int) error
}

func (h *holder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "evalsha" {
			return next(ctx, cmd)
		}
		args := cmd.Args()
		h.mu.Lock()
		h.scripts = append(h.scripts, args[3+args[2].(int)].(string))
		n, hold, release := len(h.scripts), h.hold, h.release
		h.hold = false
		h.mu.Unlock()
		if hold {
			<-release
			ctx = context.WithoutCancel(ctx) // it was on its way already
		}
		if h.before != nil {
			h.before(n)
		}
		err := next(ctx, cmd)
		if h.fail != nil && !redis.HasErrorPrefix(err, "NOSCRIPT") {
			if lost := h.fail(n); lost != nil {
				cmd.SetErr(lost)
				return lost
			}
		}
		return err
	}
}

// ready makes Redis have the script of l, and h hold back the next one.
func (h *holder) ready(t *testing.T, rdb *redis.Client, l *Shared) {
	t.Helper()
	require.NoError(t, rdb.ScriptLoad(t.Context(), l.calls.Limiter().Now().Script.Src).Err())
	h.hold, h.release, h.scripts = true, make(chan struct{}), nil
}

// calls returns how many calls were made.
func (h *holder) calls() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.scripts)
}

// Requests that come while a call is in flight go as one call. Others do not wait for them, nor they for others.
func TestBatching(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		h := &holder{}
		rdb.AddHook(h)
		l := shared(t, rdb, TokenBucket{per(1, time.Hour), 10})
		h.ready(t, rdb, l)
		var all sync.WaitGroup
		var granted atomic.Int64
		ask := func(l *Shared, n int64) {
			all.Go(func() {
				r := redistest.Must(l.Allow(t.Context(), n))(t)
				if r.Granted {
					granted.Add(n)
				}
			})
			synctest.Wait()
		}
		ask(l, 1)
		for range 5 {
			ask(l, 1)
			ask(l, 2)
		}
		ask(l.For("another"), 1)
		require.EqualValues(t, 1, granted.Load(), "only the other key")
		require.Equal(t, []string{"1", "1"}, h.scripts)
		close(h.release)
		all.Wait()
		require.Equal(t, []string{"1", "1", "1:5 2:5"}, h.scripts)
		require.EqualValues(t, 1+1+5+4, granted.Load())
		synctest.Wait()
		requireIdle(t, l) // a line ends with its flight
	})
}

// requireIdle requires that nobody waits, and that no call of any key is in flight.
func requireIdle(t *testing.T, l *Shared) {
	t.Helper()
	c := reflect.ValueOf(l.calls.Limiter()).Elem()
	require.Zero(t, c.FieldByName("queues").FieldByName("queues").Len())
	shards := c.FieldByName("lines").FieldByName("shards")
	for i := range shards.Len() {
		require.Zero(t, shards.Index(i).FieldByName("lines").Len())
	}
}

// TestTimeoutsDoNotTellRequestsApart tests that reservations go as equal requests, however long their callers would wait, if the
// algorithm grants nothing in advance. A call has no more than 64 requests that differ.
func TestTimeoutsDoNotTellRequestsApart(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		h := &holder{}
		rdb.AddHook(h)
		l := shared(t, rdb, TokenBucket{per(1, time.Hour), 10})
		h.ready(t, rdb, l)
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				require.True(t, redistest.Must(l.Reserve(t.Context(), 1, time.Duration(i)*time.Second))(t).Granted)
			})
			synctest.Wait()
		}
		close(h.release)
		all.Wait()
		require.Equal(t, []string{"1", "1:5"}, h.scripts)
	})
}

// A caller that leaves takes nobody with it, neither the one that makes the call nor one that waits for it.
func TestCallersThatLeave(t *testing.T) {
	for _, who := range []int{0, 1, 2} {
		redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
			h := &holder{}
			rdb.AddHook(h)
			l := shared(t, rdb, GCRA{per(1, time.Hour), 10})
			h.ready(t, rdb, l)
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			for i := range 4 {
				all.Go(func() {
					if i == who {
						_, err := l.Allow(ctx, 1)
						require.True(t, err == context.Canceled, "%v", err)
						return
					}
					require.True(t, redistest.Must(l.Allow(t.Context(), 1))(t).Granted)
				})
				synctest.Wait()
			}
			cancel()
			synctest.Wait()
			close(h.release)
			all.Wait()
			synctest.Wait()
			want := []string{"1", "1:2"} // who left before the flight is not in it
			if who == 0 {
				want = []string{"1", "1:3"}
			}
			require.Equal(t, want, h.scripts)
		})
	}
}

// TestCallThatIsLongOnItsWay checks that a call whose caller has left takes nothing from the next one of its process: that one is
// told whether it was granted, though its own reply is lost and Redis has no room to remember it for long, and takes its permits once.
func TestCallThatIsLongOnItsWay(t *testing.T) {
	for kind, a := range roomy(1000) {
		if a.model().Reserves { // tells nobody what it has left
			continue
		}
		redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
			plain := shared(t, rdb, a)
			mine, h := redistest.Peer(t, rdb), &holder{}
			mine.AddHook(h)
			l := twin(t, plain, mine)
			h.ready(t, mine, l)
			arrive := sync.OnceFunc(func() { close(h.release) })
			h.fail = func(n int) error {
				if n == 2 {
					return io.EOF
				}
				return nil
			}
			h.before = func(n int) {
				if n != 3 { // the second attempt at the second call
					return
				}
				key := l.Keys()[len(l.Keys())-1]
				value := redistest.Must(rdb.Get(t.Context(), key).Result())(t)
				its := value[strings.Index(value, ";"):][15:] // when that was
				for i := range 400 {                          // other processes, which leave no room for the grant of the second call
					value += fmt.Sprintf(";aaaaaaaa%06d%s", i, its)
				}
				require.NoError(t, rdb.Set(t.Context(), key, value, redis.KeepTTL).Err())
				require.True(t, redistest.Must(plain.Allow(t.Context(), 1))(t).Granted)
				arrive()
				time.Sleep(time.Second)
			}
			ctx, leave := context.WithCancel(t.Context())
			var all sync.WaitGroup
			all.Go(func() {
				_, err := l.Allow(ctx, 1)
				require.ErrorIs(t, err, context.Canceled)
			})
			synctest.Wait()
			leave()
			all.Wait()
			told := int64(1) // of others
			all.Go(func() {
				r, err := l.Allow(t.Context(), 1)
				if err == nil {
					require.True(t, r.Granted)
				} else {
					require.ErrorIs(t, err, ratelimiter.ErrUnavailable)
				}
			})
			synctest.Wait()
			if h.calls() == 1 {
				arrive()
			}
			all.Wait()
			spent := a.model().Largest - redistest.Must(plain.Peek(t.Context(), 1))(t).Available
			require.LessOrEqual(t, spent, told+1+1, "%s: %v", kind, h.scripts)
		})
	}
}

// TestSettledWhileOnItsWay checks that a settlement whose caller has left, and which is long on its way, is made, and can be made
// sure of, whatever the process asks for meanwhile.
func TestSettledWhileOnItsWay(t *testing.T) {
	for kind, a := range roomy(1000) {
		if checkSettles(newSetting(a)) != nil {
			continue
		}
		redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
			h := &holder{}
			rdb.AddHook(h)
			l := shared(t, rdb, a)
			g := grantOf(t, l, 5)
			h.ready(t, rdb, l)
			ctx, leave := context.WithCancel(t.Context())
			var all sync.WaitGroup
			all.Go(func() { require.ErrorIs(t, g.Settle(ctx, 2), context.Canceled) })
			synctest.Wait()
			leave()
			synctest.Wait()
			all.Go(func() { require.True(t, redistest.Must(l.Allow(t.Context(), 1))(t).Granted) })
			synctest.Wait()
			close(h.release)
			all.Wait()
			require.NoError(t, g.Settle(t.Context(), 2), kind)
			require.Equal(t, a.model().Largest-3, redistest.Must(l.Peek(t.Context(), 1))(t).Available, kind)
			require.Len(t, h.scripts, 3, "%s: its call was not made again", kind)
		})
	}
}

// TestWhyThereIsNoReply checks that callers whose contexts end learn why the last attempt at the call failed: the one whose request
// began it, one whose request waits for it to end, and one that has waited for permits.
func TestWhyThereIsNoReply(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		s := &saboteur{err: noDial}
		rdb.AddHook(s)
		l := shared(t, rdb, TokenBucket{per(1, time.Second), 2})
		require.NoError(t, Wait(t.Context(), l, 2))
		why := func(after time.Duration, ask func(ctx context.Context) error) {
			ctx, leave := context.WithTimeout(t.Context(), after)
			defer leave()
			err := ask(ctx)
			require.ErrorIs(t, err, ratelimiter.ErrUnavailable)
			require.ErrorIs(t, err, noDial)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "; the last attempt failed: ")
		}
		allow := func(ctx context.Context) error {
			_, err := l.Allow(ctx, 1)
			return err
		}
		s.left = 1000
		why(1020*time.Millisecond, func(ctx context.Context) error { return Wait(ctx, l, 1) })
		time.Sleep(time.Second) // the call has failed
		var all sync.WaitGroup
		all.Go(func() { why(40*time.Millisecond, allow) })
		synctest.Wait()
		all.Go(func() { why(20*time.Millisecond, allow) })
		all.Wait()
		synctest.Wait()
	})
}

// An ender is a hook that ends the goroutine of the next script.
type ender struct {
	redistest.Passing
	end bool
}

func (e *ender) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" && e.end {
			e.end = false
			runtime.Goexit()
		}
		return next(ctx, cmd)
	}
}

// TestHookThatEndsItsGoroutine checks that a hook of the redis client that ends the goroutine of a call, as t.FailNow does, does not
// end the calls of its key: a caller that can leave gets an error, and the next one is served.
func TestHookThatEndsItsGoroutine(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		e := &ender{}
		rdb.AddHook(e)
		l := shared(t, rdb, GCRA{per(1, time.Hour), 10})
		for _, ctx := range []context.Context{t.Context(), context.WithoutCancel(t.Context())} {
			e.end = true
			var all sync.WaitGroup
			all.Go(func() {
				r, err := l.Allow(ctx, 1)
				require.NoError(t, err)
				require.True(t, r.Granted)
			})
			all.Wait()
			require.False(t, e.end)
			require.True(t, redistest.Must(l.Allow(ctx, 1))(t).Granted)
		}
	})
}

// An error is that of all who share the call, and of nobody else.
func TestErrorOfABatch(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		h := &holder{fail: func(n int) error {
			if n == 2 {
				return redisError("ERR broken")
			}
			return nil
		}}
		rdb.AddHook(h)
		l := shared(t, rdb, GCRA{per(1, time.Hour), 100})
		h.ready(t, rdb, l)
		var all sync.WaitGroup
		var failed atomic.Int64
		for range 8 {
			all.Go(func() {
				if _, err := l.Allow(t.Context(), 1); err != nil {
					require.ErrorContains(t, err, "ERR broken")
					require.NotErrorIs(t, err, ratelimiter.ErrUnavailable)
					failed.Add(1)
				}
			})
			synctest.Wait()
		}
		close(h.release)
		all.Wait()
		require.EqualValues(t, 7, failed.Load())
		require.True(t, redistest.Must(l.Allow(t.Context(), 1))(t).Granted)
	})
}

// Of a batch whose reply is lost, those who were granted permits get them, once, with the turns that they had.
// The others are asked again.
func TestLostReplyOfABatch(t *testing.T) {
	onEach(t, every(), func(t *testing.T, rdb *redis.Client, kind string, a Algorithm) {
		s := &saboteur{}
		rdb.AddHook(s)
		l := shared(t, rdb, a)
		same := twin(t, l, rdb).For("same")
		require.NoError(t, rdb.ScriptLoad(t.Context(), a.model().Script.Src).Err())
		batch := func() *calls.Flight {
			f := &calls.Flight{}
			for _, n := range []int64{1, 2, 1, 3, 1, 1, 2, 8} {
				q := calls.Demand{N: min(n, a.model().Largest), Spend: n != 2}
				if a.model().Reserves {
					q.AtMost = 500_000 * n
				}
				f.Add(&calls.Request{Demand: q, Setting: l.calls.Limiter().Now()}, a.model().Reserves)
			}
			return f
		}
		f, want := batch(), batch()
		begin := time.Now()
		require.NoError(t, same.calls.Make(t.Context(), want))
		s.left, s.run, s.err = 2, true, io.EOF
		require.NoError(t, l.calls.Make(t.Context(), f))
		passed := time.Since(begin)
		require.NotZero(t, passed)
		granted := 0
		for i := range f.Runs {
			for j, r := range f.Runs[i].Calls {
				result := want.Runs[i].Calls[j].Result
				require.Equal(t, !result.Granted || !r.Spend, r.Again, "%s: the %d. of run %d", kind, j, i)
				if !r.Again {
					granted++
					require.True(t, r.Result.Granted)
					require.InDelta(t, max(0, result.Wait-passed), r.Result.Wait, float64(time.Microsecond), "%s: it keeps its turn", kind)
				}
			}
		}
		require.NotZero(t, granted, kind)
		require.Equal(t, stateOf(t, rdb, same), stateOf(t, rdb, l), "%s: it has run once", kind)
	})
}
