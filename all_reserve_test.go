package ratelimiter

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// A contest is what takes part in the scenarios of this file: one process whose callers take all that a
// limiter has, a list, and a peer in another process.
type contest struct {
	*world
	stop    context.Context
	wg      sync.WaitGroup
	singles atomic.Int64 // permits that callers of one limiter got
	lists   atomic.Int64 // lists that were served
	longest atomic.Int64 // the longest that a list took, in ns
	peers   atomic.Int64 // permits that the peer got
}

// newContest returns a contest that ends with the function that it returns too.
func newContest(w *world) (*contest, func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	c := &contest{world: w, stop: ctx}
	return c, func() {
		cancel()
		c.wg.Wait()
	}
}

// saturate has n callers that wait, and as many that try every few milliseconds, take permits of l.
func (c *contest) saturate(l *RateLimiter, n int, tries bool) {
	for i := range n {
		c.wg.Go(func() {
			for l.Acquire(c.stop, 1) == nil {
				c.singles.Add(1)
			}
		})
		if tries {
			c.wg.Go(func() {
				for c.stop.Err() == nil {
					if r, err := l.Try(c.stop, 1); err == nil && r.Granted {
						c.singles.Add(1)
					}
					time.Sleep(time.Duration(7+i) * time.Millisecond)
				}
			})
		}
	}
}

// peer takes a permit of l, in another process, whenever pause is over and it gets one.
func (c *contest) peer(l *RateLimiter, pause func() time.Duration) {
	opts := []Option{}
	if !redistest.TTLsAreVirtual() {
		opts = append(opts, WithClientClock(), func(c *config) { c.trusted = true })
	}
	other := New(redistest.Peer(c.t, c.rdb), opts...)
	l = other.RateLimiter(l.Name())
	c.wg.Go(func() {
		defer other.Close()
		for c.stop.Err() == nil {
			if r, err := l.Try(c.stop, 1); err == nil && r.Granted {
				c.peers.Add(1)
			}
			time.Sleep(pause())
		}
	})
}

// want has a caller acquire the list again and again.
func (c *contest) want(demands ...Demand) {
	c.wg.Go(func() {
		for {
			begin := time.Now()
			if err := c.client.AcquireAll(c.stop, demands...); err != nil {
				if !errors.Is(err, context.Canceled) {
					c.t.Error(err)
				}
				return
			}
			c.lists.Add(1)
			c.longest.Store(max(c.longest.Load(), int64(time.Since(begin))))
		}
	})
}

// A list waits for a limiter that a peer takes steadily; this process' callers of the other limiter go on.
func TestAListLeavesTheOtherLimiterToItsCallers(t *testing.T) {
	const d = 20 * time.Second
	for name, pause := range map[string]func() time.Duration{
		"every 40 ms": func() time.Duration { return 40 * time.Millisecond },
		"every 37 ms": func() time.Duration { return 37 * time.Millisecond },
		"at random":   func() time.Duration { return time.Duration(rand.ExpFloat64() * float64(40*time.Millisecond)) },
	} {
		for rname, ra := range map[string]Rate{"10 in 200 ms": overall(10, 200*time.Millisecond), "50 in 1 s": overall(50, time.Second)} {
			t.Run(name+", "+rname, func(t *testing.T) {
				inBothWays(t, func(t *testing.T, w *world) {
					l := w.others(ra, overall(10, 200*time.Millisecond))
					c, stop := newContest(w)
					c.saturate(l[0], 4, true)
					c.peer(l[1], pause)
					w.at(2 * time.Second)
					c.singles.Store(0)
					c.peers.Store(0)
					c.want(Demand{l[0], 3}, Demand{l[1], 9})
					time.Sleep(d)
					singles, lists, longest, peers := c.singles.Load(), c.lists.Load(), time.Duration(c.longest.Load()), c.peers.Load()
					t.Logf("callers of A got %.1f/s, lists were served %.2f/s, the longest took %v, the peer got %.1f/s of B",
						float64(singles)/d.Seconds(), float64(lists)/d.Seconds(), longest, float64(peers)/d.Seconds())
					stop()
					require.GreaterOrEqual(t, float64(singles+3*lists)/d.Seconds(), 45.0)
					require.NotZero(t, lists)
				})
			})
		}
	}
}
