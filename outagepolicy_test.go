package ratelimiter

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A grantLog records what was granted and when, so that sliding windows can be checked.
type grantLog struct {
	mu     sync.Mutex
	grants []granted
}

type granted struct {
	at      time.Duration
	permits int64
}

func (g *grantLog) add(at time.Duration, permits int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.grants = append(g.grants, granted{at, permits})
}

// worst returns the largest number of permits in any window (at-interval, at], and that at.
func (g *grantLog) worst(interval time.Duration) (most int64, at time.Duration) {
	slices.SortFunc(g.grants, func(a, b granted) int { return int(a.at - b.at) })
	sum, oldest := int64(0), 0
	for _, x := range g.grants {
		for sum += x.permits; g.grants[oldest].at <= x.at-interval; oldest++ {
			sum -= g.grants[oldest].permits
		}
		if sum > most {
			most, at = sum, x.at
		}
	}
	return most, at
}

func (g *grantLog) total() (n int64) {
	for _, x := range g.grants {
		n += x.permits
	}
	return n
}

// goesAway makes the process of w notice that Redis is down.
func goesAway(w *world, c *cut) {
	c.down.Store(true)
	_, err := w.l.OnOutage(FailClosed()).Allow(w.ctx, 1)
	require.ErrorIs(w.t, err, ErrUnavailable)
	require.True(w.t, w.l.handle.Health().Down())
}

func TestOutagePolicyArguments(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		for _, p := range []OutagePolicy{
			LocalQuota(overall(10, time.Second), 0),
			LocalQuota(overall(10, time.Second), -1),
			LocalQuota(overall(0, time.Second), 1),
			LocalQuota(overall(10, time.Microsecond), 1),
			LocalQuota(Rate{}, 1),
		} {
			l := w.l.OnOutage(p)
			_, err := l.Allow(w.ctx, 1)
			require.ErrorIs(t, err, ErrInvalidArgument, "%v", p)
			_, err = l.Exists(w.ctx)
			require.ErrorIs(t, err, ErrInvalidArgument)
			_, err = New(w.rdb, WithOutagePolicy(p))
			require.ErrorIs(t, err, ErrInvalidArgument)
		}
		for _, p := range []OutagePolicy{{}, FailClosed(), FailOpen(), LocalQuota(overall(10, time.Second), 11)} {
			l := w.l.OnOutage(p)
			require.NoError(t, l.err)
			require.Equal(t, w.l.Name(), l.Name())
			require.NotEmpty(t, p.String())
			_, err := l.Allow(w.ctx, 1)
			require.NoError(t, err, "Redis is there")
		}
		w.available(6) // one limiter
		bad := w.client.RateLimiter("").OnOutage(LocalQuota(Rate{}, 0))
		_, err := bad.Allow(w.ctx, 1)
		require.ErrorContains(t, err, "name", "the first fault is told")
	})
}

// TestPoliciesLeaveOtherErrorsAlone checks that an outage policy does not hide errors of scripts that Redis
// executed, or errors of the request itself.
func TestPoliciesLeaveOtherErrorsAlone(t *testing.T) {
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		for _, p := range []OutagePolicy{FailOpen(), LocalQuota(overall(10, time.Second), 1)} {
			l := w.l.OnOutage(p)
			_, err := l.Allow(w.ctx, 1)
			require.ErrorIs(t, err, ErrNotInitialized)
			require.NoError(t, l.SetRate(w.ctx, overall(10, time.Second)))
			_, err = l.Allow(w.ctx, 11)
			require.ErrorIs(t, err, ErrPermitsExceedRate)
			_, err = l.Allow(w.ctx, 0)
			require.ErrorIs(t, err, ErrInvalidArgument)
			for _, text := range []string{"WRONGTYPE Operation against a key", "NOPERM this user has no permissions", "ERR unknown command"} {
				f := inject(w.rdb, false, redisError(text))
				f.left.Store(1)
				_, err = l.Allow(w.ctx, 1)
				require.ErrorContains(t, err, text)
				require.NotErrorIs(t, err, ErrUnavailable)
			}
			c := cutOff(w, refusedDial)
			goesAway(w, c)
			_, err = l.Rate(w.ctx)
			require.Error(t, err)
			require.Error(t, l.Release(w.ctx, 1))
			require.Error(t, l.SetRate(w.ctx, overall(3, time.Second)))
			gone, cancel := context.WithCancel(w.ctx)
			cancel()
			_, err = l.Allow(gone, 1)
			require.Equal(t, context.Canceled, err)
			require.ErrorIs(t, l.Acquire(gone, 1), context.Canceled)
			time.Sleep(1250 * time.Millisecond)
			c.err = redisError("NOPERM no more")
			_, err = l.OnOutage(FailClosed()).Allow(w.ctx, 1) // this request is the probe
			require.ErrorContains(t, err, "NOPERM")
			require.False(t, l.handle.Health().Down(), "Redis is there, and says no")
			c.down.Store(false)
			_, err = l.Delete(w.ctx)
			require.NoError(t, err)
		}
	})
}

// TestObserver checks that the observer is told of the beginning and the end of an outage exactly once each, with
// the details of the outage.
func TestObserver(t *testing.T) {
	var mu sync.Mutex
	var events []Event
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.granted(1)
		require.Empty(t, events)
		c := cutOff(w, refusedDial)
		goesAway(w, c)
		begun := time.Now()
		open := w.l.OnOutage(FailOpen())
		for range 50 {
			_, err := open.Allow(w.ctx, 1)
			require.NoError(t, err)
			_, err = w.l.Allow(w.ctx, 1)
			require.Error(t, err)
			time.Sleep(100 * time.Millisecond)
		}
		c.down.Store(false)
		require.NoError(t, w.l.Acquire(w.ctx, 1))
		w.granted(1)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, events, 2)
		require.Equal(t, Event{Kind: OutageBegan, Limiter: w.l.Name(), Time: begun, Err: refusedDial}, events[0])
		require.Equal(t, OutageEnded, events[1].Kind)
		require.Equal(t, w.l.Name(), events[1].Limiter)
		require.EqualValues(t, 50, events[1].Degraded)
		require.Equal(t, events[1].Time.Sub(begun), events[1].Duration)
		require.InDelta(t, 5500*time.Millisecond, events[1].Duration, float64(750*time.Millisecond))
		require.NoError(t, events[1].Err)
	}, WithHook(Hook{Event: func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
	}}),
	)
}

// TestOutagePolicyOfTheClient checks that a Client returns the policy that its limiters follow.
func TestOutagePolicyOfTheClient(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // nothing is ever sent
	defer rdb.Close()
	require.Equal(t, FailClosed(), newClient(t, rdb).OutagePolicy())
	for _, p := range []OutagePolicy{FailClosed(), FailOpen(), LocalQuota(overall(5, time.Second), 3)} {
		require.Equal(t, p, newClient(t, rdb, WithOutagePolicy(p)).OutagePolicy())
	}
}
