package ratelimiter

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// This measures how late callers that wait are served, in real time. The k-th permit is free one interval after
// the (k-rate)-th was granted, on the clock of Redis and in ms. Its lag is the time from then until its caller
// has returned, on the clock of this process, which is that of the same machine. It includes the rounding of
// the wait, the timer, the way to Redis and back, and the waking of the caller.
func TestWakeUpLag(t *testing.T) {
	redistest.NeedReal(t)
	const (
		limiters, callers, each = 8, 5, 12
		rate, interval          = 1, 30 * time.Millisecond
	)
	c := newClient(t, redistest.Client(t))
	defer c.Close()
	var late lags
	stop := late.control(t)
	var all sync.WaitGroup
	for range limiters {
		time.Sleep(interval / limiters) // if the machine stands still for a moment, that concerns few of them
		name := redistest.Key(t)
		all.Go(func() {
			type grant struct{ asked, at, back time.Time }
			var (
				mu     sync.Mutex
				grants []grant
				wg     sync.WaitGroup
				l      = c.RateLimiter(name)
				ctx    = context.Background()
			)
			if err := l.SetRate(ctx, overall(rate, interval)); err != nil {
				t.Error(err)
			}
			for range callers {
				wg.Go(func() {
					for range each {
						asked := time.Now()
						r, err := l.handle.Acquire(ctx, engine.Request{Permits: 1, Wait: true})
						back := time.Now()
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						grants = append(grants, grant{asked, r.Reply.Now, back})
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			slices.SortFunc(grants, func(a, b grant) int {
				return cmp.Or(a.at.Compare(b.at), a.back.Compare(b.back))
			})
			for k := rate; k < len(grants); k++ {
				free := grants[k-rate].at.Add(interval)
				if g := grants[k]; g.asked.Before(free) { // it waited
					late.add(free, g.back)
				}
			}
		})
	}
	all.Wait()
	stop()
	require.Greater(t, len(late.ours), limiters*callers*each/2)
	late.require(t, 5*time.Millisecond)
}

// A round of 500 callers that wait costs about one script call for each instant at which permits come back,
// whether they come back at once or one by one.
func TestScriptCallsOfManyWaiters(t *testing.T) {
	redistest.NeedReal(t)
	const callers = 500
	for _, r := range []Rate{overall(1, 4*time.Millisecond), overall(50, 50*time.Millisecond)} {
		rdb := redistest.Client(t)
		c, sent := newClient(t, rdb), watched(rdb)
		l, ctx := c.RateLimiter(redistest.Key(t)), context.Background()
		require.NoError(t, l.SetRate(ctx, r))
		require.NoError(t, l.Acquire(ctx, 1)) // the script is cached
		before, begin := sent.sent.Load(), time.Now()
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				if err := l.Acquire(ctx, 1); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		calls := float64(sent.sent.Load()-before) / callers
		t.Logf("%d in %v: %.3f script calls a grant, %v", r.Permits, r.Interval, calls, time.Since(begin))
		redistest.Measured(t, calls <= 1.2, "%.3f script calls a grant", calls)
		require.NoError(t, c.Close())
	}
}

// What another caller of this process does is noticed at once by those that wait; what another process does,
// within the bound of WithRecheck.
func TestChangesWakeWaiters(t *testing.T) {
	redistest.NeedReal(t)
	const recheck = 80 * time.Millisecond
	ctx := context.Background()
	changes := map[string]func(l *RateLimiter) error{
		"Release": func(l *RateLimiter) error { return l.Release(ctx, 1) },
		"SetRate": func(l *RateLimiter) error { return l.SetRate(ctx, overall(1, time.Hour)) },
		"UpdateRate": func(l *RateLimiter) error {
			_, err := l.UpdateRate(ctx, overall(2, time.Hour), KeepState())
			return err
		},
		"Delete": func(l *RateLimiter) error { _, err := l.Delete(ctx); return err },
	}
	here := newClient(t, redistest.Client(t), WithRecheck(time.Hour))
	defer here.Close()
	peer := newClient(t, redistest.Client(t))
	defer peer.Close()
	looks := newClient(t, redistest.Client(t), WithRecheck(recheck))
	defer looks.Close()

	for name, which := range map[string]struct {
		waits, changes *Client
		within         time.Duration
		times          int
	}{
		"of this process": {here, here, 0, 20},
		"of another":      {looks, peer, recheck, 4},
	} {
		t.Run(name, func(t *testing.T) {
			var late lags
			stop := late.control(t)
			for what, change := range changes {
				for range which.times {
					l := which.waits.RateLimiter(redistest.Key(t))
					require.NoError(t, l.SetRate(ctx, overall(1, time.Hour)))
					require.NoError(t, l.Acquire(ctx, 1))
					served := make(chan error, 1)
					go func() { served <- l.Acquire(ctx, 1) }()
					soon(t, "a waiter that has been rejected", func() bool { return asleep(l) == 1 })
					due := time.Now().Add(which.within)
					require.NoError(t, change(which.changes.RateLimiter(l.Name())))
					err := inTime(t, served)
					late.add(due, time.Now())
					if what == "Delete" {
						require.ErrorIs(t, err, ErrNotInitialized)
					} else {
						require.NoError(t, err, what)
					}
				}
			}
			stop()
			late.require(t, 10*time.Millisecond)
		})
	}
}
