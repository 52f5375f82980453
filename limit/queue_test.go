// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A crowd are callers that wait.
type crowd struct {
	t      *testing.T
	begin  time.Time
	all    sync.WaitGroup
	mu     sync.Mutex
	served []served
}

type served struct {
	who   int
	after time.Duration
	ok    bool
}

// join adds a caller and returns when it waits.
func (c *crowd) join(who int, l Limiter, n int64, timeout time.Duration) {
	c.all.Go(func() {
		ok := redistest.Must(WaitTimeout(c.t.Context(), l, n, timeout))(c.t)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.served = append(c.served, served{who, time.Since(c.begin), ok})
	})
	synctest.Wait()
}

// Of 200 callers that wait for single permits each is served in its turn, at the very instant, and a grant takes one
// call.
func TestQueueIsInOrder(t *testing.T) {
	for kind, a := range map[string]Algorithm{
		"token bucket": TokenBucket{per(50, time.Second), 50}, "gcra": GCRA{per(50, time.Second), 50},
		"leaky queue": LeakyQueue{per(50, time.Second), 50}, "sliding log": SlidingLog{per(50, time.Second)},
		"fixed window": FixedWindow{per(50, time.Second)}, "smooth bursty": SmoothBursty{50, time.Second},
	} {
		redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
			h := &holder{}
			l := shared(t, rdb, a)
			require.NoError(t, rdb.ScriptLoad(t.Context(), a.model().Script.Src).Err())
			rdb.AddHook(h)
			const callers = 200
			c := &crowd{t: t, begin: time.Now()}
			for i := range callers {
				c.join(i, l, 1, time.Minute)
			}
			c.all.Wait()
			require.Len(t, c.served, callers)
			for i, s := range c.served {
				want := max(0, time.Duration(i-49)*20*time.Millisecond)
				switch kind {
				case "leaky queue":
					want = time.Duration(i) * 20 * time.Millisecond
				case "sliding log", "fixed window":
					want = time.Duration(i/50) * time.Second
				case "smooth bursty":
					want = max(0, time.Duration(i-50)*20*time.Millisecond)
				}
				require.Equal(t, want, s.after, "%s: the %d. that was served", kind, i)
				require.True(t, s.ok)
				if kind != "sliding log" && kind != "fixed window" || i == 0 {
					require.Equal(t, i, s.who, "%s: first come, first served", kind)
				}
			}
			require.LessOrEqual(t, len(h.scripts), callers*12/10, kind)
			synctest.Wait()
			requireIdle(t, l)
			t.Logf("%s: %d calls for %d grants", kind, len(h.scripts), callers)
		})
	}
}

// TestWaitersOfOneCallAreInOrder has callers come one after another while a call takes long, so that many are rejected in one call. They
// are served in the order in which they came, and not in that in which they are woken.
func TestWaitersOfOneCallAreInOrder(t *testing.T) {
	for range redistest.Cases(5, 100) {
		redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
			h := &holder{before: func(int) { time.Sleep(30 * time.Millisecond) }}
			a := GCRA{per(1, time.Minute), 3}
			l := shared(t, rdb, a)
			require.NoError(t, rdb.ScriptLoad(t.Context(), a.model().Script.Src).Err())
			rdb.AddHook(h)
			const callers = 12
			var all sync.WaitGroup
			var at [callers]time.Duration
			begin := time.Now()
			for i := range callers {
				all.Go(func() {
					require.NoError(t, Wait(t.Context(), l, 1))
					at[i] = time.Since(begin).Round(time.Minute)
				})
				synctest.Wait()
				time.Sleep(time.Millisecond)
			}
			all.Wait()
			for i, after := range at {
				require.Equal(t, max(0, time.Duration(i-2)*time.Minute), after, "%d of %v", i, at)
			}
		})
	}
}

// A large request is served when it is due, however many small ones come after it, and these do not pass it, whether it is the head
// of the queue or not.
func TestSmallRequestsPassNobody(t *testing.T) {
	second := time.Second
	for name, c := range map[string]struct {
		a     Algorithm // ten permits
		asks  []int64
		pause time.Duration // between them
		want  []time.Duration
	}{
		"bucket": {TokenBucket{per(1, second), 10}, []int64{2, 8, 1, 1, 1, 1}, second / 4, []time.Duration{2 * second, 10 * second, 11 * second, 12 * second, 13 * second, 14 * second}},
		"window": {FixedWindow{per(10, second)}, []int64{8, 8, 2}, 0, []time.Duration{second, 2 * second, 2 * second}},
	} {
		redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
			l := shared(t, rdb, c.a)
			require.NoError(t, Wait(t.Context(), l, 10))
			q := &crowd{t: t, begin: time.Now()}
			for i, n := range c.asks {
				q.join(i, l, n, time.Minute)
				time.Sleep(c.pause)
			}
			q.all.Wait()
			slices.SortFunc(q.served, func(a, b served) int { return a.who - b.who }) // two may be served at one instant
			for i, s := range q.served {
				require.Equal(t, served{i, c.want[i], true}, s, name)
			}
			require.Len(t, q.served, len(c.want))
		})
	}
}

// While another process takes the permits for which a large request waits, the small ones behind it go on.
func TestSmallRequestsBehindALargeOne(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		l := shared(t, rdb, TokenBucket{per(10, time.Second), 10})
		peer := twin(t, l, redistest.Peer(t, rdb))
		require.NoError(t, Wait(t.Context(), l, 10))
		c := &crowd{t: t, begin: time.Now()}
		c.join(0, l, 8, 20*time.Second)
		for i := range 5 {
			c.join(1+i, l, 1, 20*time.Second)
		}
		stop := make(chan struct{})
		c.all.Go(func() { // takes all that come in, so that never eight are there
			time.Sleep(50 * time.Millisecond)
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Second / 2):
					redistest.Must(peer.Allow(t.Context(), 5))(t)
				}
			}
		})
		time.Sleep(10 * time.Second)
		c.mu.Lock()
		var small []time.Duration
		for _, s := range c.served {
			require.NotZero(t, s.who, "there are never enough for the large one")
			small = append(small, s.after)
		}
		c.mu.Unlock()
		// It was rejected at 0.8 s, when it was told to come; at 1.3 s there are three permits, and so on.
		ms := time.Millisecond
		require.Equal(t, []time.Duration{1300 * ms, 1300 * ms, 1300 * ms, 2100 * ms, 2100 * ms}, small)
		close(stop)
		c.all.Wait()
	})
}

// Who leaves makes room for those behind it, who are served as if it had never come.
func TestLeavingAQueue(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		l := shared(t, rdb, TokenBucket{per(1, time.Second), 10})
		require.NoError(t, Wait(t.Context(), l, 10))
		c := &crowd{t: t, begin: time.Now()}
		ctx, cancel := context.WithCancel(t.Context())
		c.all.Go(func() {
			require.True(t, Wait(ctx, l, 9) == context.Canceled)
			require.Equal(t, 3*time.Second, time.Since(c.begin))
		})
		synctest.Wait()
		c.join(1, l, 1, 20*time.Second)
		c.join(2, l, 1, 4*time.Second)
		c.join(3, l, 5, 4*time.Second)  // known at once to be in vain
		c.join(4, l, 1, 20*time.Second) // behind two
		c.join(5, l, 1, 2*time.Second)  // whose time is over before that of the first
		time.Sleep(3 * time.Second)
		cancel()
		c.all.Wait()
		second := time.Second
		require.Equal(t, served{3, 0, false}, c.served[0])
		require.Equal(t, served{5, 2 * second, false}, c.served[1])
		rest := c.served[2:]
		slices.SortStableFunc(rest, func(a, b served) int { return int(a.after - b.after) })
		require.Len(t, rest, 3)
		for i, s := range rest {
			require.True(t, s.ok)
			require.Equal(t, max(3*second, time.Duration(i)*second), s.after, "three permits are there")
		}
		synctest.Wait()
		requireIdle(t, l)
	})
}

// An error of Redis is that of those for whom it was asked, and ends no other wait.
func TestErrorInAQueue(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		s := &saboteur{left: 4, err: redisError("LOADING")}
		l := shared(t, rdb, TokenBucket{per(1, time.Second), 2})
		require.NoError(t, Wait(t.Context(), l, 2))
		rdb.AddHook(s)
		begin := time.Now()
		var all sync.WaitGroup
		for i, n := range []int64{1, 1, 2} {
			all.Go(func() {
				err := Wait(t.Context(), l, n)
				if i < 2 {
					require.ErrorIs(t, err, ratelimiter.ErrUnavailable)
					return
				}
				require.NoError(t, err)
				require.InDelta(t, 2*time.Second, time.Since(begin), float64(time.Microsecond))
			})
			synctest.Wait()
		}
		all.Wait()
	})
}
