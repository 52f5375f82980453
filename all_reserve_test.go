package ratelimiter

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// A contest is a scenario with three parties: a process whose callers take everything that a limiter has, a list of
// limiters, and a peer in another process.
type contest struct {
	*world
	stop    context.Context
	wg      sync.WaitGroup
	singles atomic.Int64 // permits granted to callers of one limiter
	paused  atomic.Int64 // the longest time in which no caller of one limiter was granted a permit, in ns
}

// newContest returns a contest and a function that ends it.
func newContest(w *world) (*contest, func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	c := &contest{world: w, stop: ctx}
	return c, func() {
		cancel()
		c.wg.Wait()
	}
}

// saturate starts n callers that wait for permits of l and, if tries is set, n more that try every few
// milliseconds.
func (c *contest) saturate(l *RateLimiter, n int, tries bool) {
	var last atomic.Int64
	last.Store(int64(c.elapsed()))
	for i := range n {
		c.wg.Go(func() {
			for l.Acquire(c.stop, 1) == nil {
				c.singles.Add(1)
				now := int64(c.elapsed())
				c.paused.Store(max(c.paused.Load(), now-last.Swap(now)))
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

// otherProcess returns a Client of another process.
func (w *world) otherProcess() *Client {
	return newWorld(w.t, redistest.Peer(w.t, w.rdb)).client
}

// perSecond returns the rate of n events in d, per second.
func perSecond(n int64, d time.Duration) float64 { return float64(n) / d.Seconds() }

func reserving(l *RateLimiter) bool {
	return l.handle.Snapshot().HeldUp
}

// reserved has list wait for permits of two limiters of 10 a minute, of which a faster process takes those of the second, and
// returns at 99 s, when the list has reserved what there is. peer is the second limiter, of that process. The channel
// receives the error of the list.
func reserved(w *world, list func(demands ...Demand) error) (l []*RateLimiter, peer *RateLimiter, done <-chan error) {
	l = w.others(overall(10, time.Minute), overall(10, time.Minute))
	other := w.otherProcess()
	w.t.Cleanup(func() { _ = other.Close() })
	peer = other.RateLimiter(l[1].Name())
	takes(w, peer, 6)
	w.at(30 * time.Second)
	takes(w, peer, 4)
	ended := make(chan error, 1)
	go func() { ended <- list(Demand{l[0], 3}, Demand{l[1], 9}) }()
	// The peer is a little faster at 60 s, so the list is refused for longer than an interval.
	w.at(time.Minute - time.Millisecond)
	for range 40 {
		if ok, err := peer.TryAcquire(w.ctx, 2, 0); err == nil && ok {
			break
		}
		time.Sleep(100 * time.Microsecond)
	}
	w.at(99 * time.Second)
	require.True(w.t, reserving(l[1]))
	return l, peer, ended
}

// takes takes n permits of l, which are free.
func takes(w *world, l *RateLimiter, n int64) {
	ok, err := l.TryAcquire(w.ctx, n, 0)
	require.True(w.t, ok && err == nil)
}

// TestAReservationGoesBack checks that the reservations of a list are refunded at once, however its wait ends.
func TestAReservationGoesBack(t *testing.T) {
	for name, end := range map[string]func(w *world, cancel func()){
		"ctx is done": func(_ *world, cancel func()) { cancel() },
		"time is up":  func(*world, func()) { time.Sleep(time.Second) },
		"Close":       func(w *world, _ func()) { require.NoError(w.t, w.client.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			inBothWays(t, func(t *testing.T, w *world) {
				ctx, cancel := context.WithCancel(w.ctx)
				defer cancel()
				l, peer, done := reserved(w, func(demands ...Demand) error {
					_, err := w.client.TryAcquireAll(ctx, 70*time.Second, demands...)
					return err
				})
				n, err := peer.AvailablePermits(w.ctx)
				require.NoError(t, err)
				require.Zero(t, n, "reserved")
				end(w, cancel)
				<-done
				time.Sleep(time.Millisecond)
				require.False(t, reserving(l[0]) || reserving(l[1]))
				n, err = peer.AvailablePermits(w.ctx)
				require.NoError(t, err)
				require.NotZero(t, n, "given back")
				used, err := peer.client.RateLimiter(l[0].Name()).AvailablePermits(w.ctx)
				require.NoError(t, err)
				require.EqualValues(t, 10, used)
			})
		})
	}
}

// TestAReservationWhoseStateIsGone checks that a list that takes permits ahead is granted although Redisson sets the
// rate, which deletes the permits left and those in use, or one of the two is evicted.
func TestAReservationWhoseStateIsGone(t *testing.T) {
	for name, gone := range map[string]func(keys []string) []string{
		"setRate of Redisson":            func(keys []string) []string { return keys[1:] },
		"the permits left are evicted":   func(keys []string) []string { return keys[1:2] },
		"the permits in use are evicted": func(keys []string) []string { return keys[2:] },
	} {
		t.Run(name, func(t *testing.T) {
			inBothWays(t, func(t *testing.T, w *world) {
				ctx, cancel := context.WithDeadline(w.ctx, time.Now().Add(30*time.Second+4*time.Minute))
				defer cancel()
				l, peer, done := reserved(w, func(demands ...Demand) error { return w.client.AcquireAll(ctx, demands...) })
				require.NoError(t, w.rdb.Del(w.ctx, gone(keysOf(l[1], Overall))...).Err())
				require.NoError(t, <-done)
				time.Sleep(time.Minute + time.Millisecond)
				takes(w, peer, 10)
			})
		})
	}
}

// TestListsThatReserveDoNotStarveEachOther runs lists over (A, B), (B, A) and (A, B, C) beside callers of each
// limiter. It checks that all of them are served and that none waits for long.
func TestListsThatReserveDoNotStarveEachOther(t *testing.T) {
	redistest.Repeats(t)
	inBothWays(t, func(t *testing.T, w *world) {
		const d = 2 * time.Minute
		r := overall(10, 500*time.Millisecond)
		l := w.others(r, r, r)
		c, stop := newContest(w)
		defer stop()
		for _, l := range l {
			c.saturate(l, 4, false)
		}
		var served [3]atomic.Int64
		for i, demands := range [][]Demand{{{l[0], 3}, {l[1], 4}}, {{l[1], 5}, {l[0], 2}}, {{l[0], 2}, {l[1], 2}, {l[2], 9}}} {
			c.wg.Go(func() {
				for w.client.AcquireAll(c.stop, demands...) == nil {
					served[i].Add(1)
				}
			})
		}
		time.Sleep(d)
		var used int64
		for i, n := range []int64{7, 7, 13} {
			used += n * served[i].Load()
			require.Greater(t, served[i].Load(), int64(d/r.Interval/60), "list %d", i)
		}
		used += c.singles.Load()
		paused := time.Duration(c.paused.Load())
		t.Logf("lists were served %d, %d, %d times; %.1f of 60 permits a second were used; singles paused %v at most",
			served[0].Load(), served[1].Load(), served[2].Load(), perSecond(used, d), paused)
		require.LessOrEqual(t, paused, 3*r.Interval)
		require.GreaterOrEqual(t, perSecond(used, d), 56.0, "at most a tenth may lie idle")
	})
}

// TestReserve checks that reserved permits count as used for everybody, that a reservation moves to the present,
// and that its count stays exact after a release by others, a lost reply, a cool-down and an expiry.
func TestReserve(t *testing.T) {
	inWorld(t, overall(10, 10*time.Second), func(t *testing.T, w *world) {
		v := permit.Reservation{ID: redisson.RandomID().Run(0)}
		send := func(want int64, whole bool) error {
			v.Want, v.Whole = want, whole
			a, err := w.l.redis.Reserve(w.ctx, v)
			v.Held, v.Unsure = a.Held, false
			return err
		}
		sum := func() {
			t.Helper()
			used, _ := w.used()
			require.EqualValues(t, 10, w.value()+used)
		}
		takes := func(want, held int64, whole bool) {
			t.Helper()
			require.NoError(t, send(want, whole))
			require.Equal(t, held, v.Held)
			sum()
		}
		w.granted(5)
		takes(8, 0, true)
		takes(8, 5, false)
		w.available(0)
		w.at(9 * time.Second)
		takes(8, 5, false) // the reservation has moved to 9 s
		w.at(10 * time.Second)
		takes(8, 8, false) // 5 permits are free again
		w.available(2)
		w.at(19*time.Second + 999*time.Millisecond)
		w.available(2)
		v.Unsure, v.Held = true, 3 // as if the reply that granted 8 had been lost
		takes(8, 8, false)
		require.NoError(t, w.l.Release(w.ctx, 2)) // somebody else releases
		takes(8, 8, false)
		w.available(2)
		w.granted(2)
		w.at(40 * time.Second) // the reservation was not moved, so it has expired, but nobody has taken its permits
		takes(8, 8, false)
		require.NoError(t, w.l.CoolDown(w.ctx, time.Now().Add(time.Minute)))
		takes(8, 0, false)
		w.refused(1, time.Minute)
		sum()
		w.at(101 * time.Second)
		takes(8, 8, true)
		takes(0, 0, false)
		w.available(10)
		takes(0, 0, false)
		_, err := w.rdb.Del(w.ctx, w.valueKey()).Result()
		require.NoError(t, err)
		require.NoError(t, send(8, false))
		require.Zero(t, v.Held, "for acquire to rebuild")
		require.NoError(t, w.l.SetRate(w.ctx, overall(7, time.Second)))
		require.ErrorIs(t, send(8, false), ErrPermitsExceedRate)
	})
}
