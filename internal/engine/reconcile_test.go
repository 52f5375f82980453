// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/engine/list"
	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/goredisson/ratelimiter/internal/testworld"
	"github.com/stretchr/testify/require"
)

// TestLocalGrantsAreTold checks that grants made without Redis are reconciled at the instants at which they were
// made: right after the outage they count in the window, and they expire when they would have expired anyway.
func TestLocalGrantsAreTold(t *testing.T) {
	inWorld(t, overall(10, 4*time.Second), func(t *testing.T, w *world) {
		l := w.l.on(localQuota(overall(10, 4*time.Second), 2))
		w.granted(1)
		begun := w.goesAway()
		at := func(d time.Duration) { time.Sleep(time.Until(begun.Add(d))) }
		for i, permits := range []int64{2, 1, 2} { // at 4, 5 and 6 s
			at(time.Duration(4+i) * time.Second)
			l.lent(permits)
		}
		at(6500 * time.Millisecond)
		w.p.Fix()
		require.NoError(t, l.Acquire(w.ctx, 5))
		require.False(t, w.l.Health().Down())
		ended := time.Since(begun)
		require.Less(t, ended, 7750*time.Millisecond)
		w.used(10)
		grants := w.server.Grants(w.l.key)
		require.Len(t, grants, 4)
		for i, at := range []time.Duration{4 * time.Second, 5 * time.Second, 6 * time.Second, ended} {
			require.Equal(t, []int64{2, 1, 2, 5}[i], grants[i].Permits)
			early := begun.Add(at).Sub(grants[i].At)
			require.True(t, 0 <= early && early < 2*time.Millisecond, "%v", early)
		}
		told := 0
		for _, c := range w.p.Calls() {
			if !c.Batch.At.IsZero() {
				told++
			}
		}
		require.Equal(t, 3, told, "each once")
		at(9500 * time.Millisecond)
		w.granted(3)
		require.Zero(t, l.Snapshot().Pending)
	})
}

// TestTellingWithoutRoom checks grants for which the server has too little room when they are reconciled. The rest
// is reconciled as room appears, before anything else is granted.
func TestTellingWithoutRoom(t *testing.T) {
	inWorld(t, overall(10, 4*time.Second), func(t *testing.T, w *world) {
		peer := newWorld(t, w.server)
		defer peer.close()
		l := w.l.on(localQuota(overall(10, 4*time.Second), 2))
		w.granted(1)
		begun := w.goesAway()
		at := func(d time.Duration) { time.Sleep(time.Until(begun.Add(d))) }
		at(5 * time.Second)
		r := l.try(5)
		require.True(t, r.Granted)
		at(6 * time.Second)
		w.p.Fix()
		peer.granted(8) // the peer is the first to reach the server again
		w.over = true
		require.NoError(t, l.Acquire(w.ctx, 1))
		ended := time.Since(begun)
		require.Greater(t, ended, 9*time.Second-2*time.Millisecond, "2 were told, for 3 there was no room until they had expired")
		require.LessOrEqual(t, ended, 9*time.Second+20*time.Millisecond)
		w.used(8 + 1)
		at(14 * time.Second)
		w.granted(10)
	})
}

// TestTellingWhoseReplyIsLost checks that a lost reply neither doubles nor drops a grant, whether it is the reply
// to the question for the time, to one of the reconciling calls, or to the acquire itself.
func TestTellingWhoseReplyIsLost(t *testing.T) {
	for after := range 4 {
		for lost := 1; lost <= retry.MaxAttempts; lost++ {
			inWorld(t, overall(10, 6*time.Second), func(t *testing.T, w *world) {
				l := w.l.on(localQuota(overall(10, 6*time.Second), 2))
				w.granted(1)
				begun := w.goesAway()
				for _, at := range []time.Duration{7, 8} {
					time.Sleep(time.Until(begun.Add(at * time.Second)))
					l.lent(2)
				}
				w.p.Fix()
				w.p.Next(slices.Repeat([]testworld.Fault{{}}, after)...)
				w.p.Next(slices.Repeat([]testworld.Fault{testworld.LostReply}, lost)...)
				require.NoError(t, l.Acquire(w.ctx, 5))
				require.Less(t, time.Since(begun), 16*time.Second)
				if lost > 1 {
					return // the time that the retries took decides what has expired
				}
				w.granted(1)
				w.used(10)
				require.Len(t, w.server.Grants(w.l.key), 4)
			})
		}
	}
}

// TestReplyToATellingIsNoOutage checks that whatever the server replies when local grants are reconciled, the reply
// ends the outage and starts no new one. Callers of the limiter get the error of the reply, and callers of other
// limiters are not affected.
func TestReplyToATellingIsNoOutage(t *testing.T) {
	perClient := permit.Rate{Type: permit.PerClient, Permits: 10, Interval: 4 * time.Second}
	for name, test := range map[string]struct {
		change  func(w *world)
		forget  bool // other limiters of the shard are used in the meantime
		err     error
		charged bool
	}{
		"it came back without its data": {func(w *world) { w.server.Delete(w.l.key) }, false, permit.ErrNotInitialized, false},
		"it is spoilt":                  {func(w *world) { w.server.Spoil(w.l.key) }, false, permit.ErrMalformed, false},
		"a type that is none": {func(w *world) {
			require.NoError(w.t, w.server.Redis.HSet(w.ctx, w.server.Keys(w.l.key).Hash, "type", "7").Err())
		}, false, permit.ErrMalformed, false},
		"it is no limiter": {func(w *world) {
			w.server.Delete(w.l.key)
			require.NoError(w.t, w.server.Redis.Set(w.ctx, w.server.Keys(w.l.key).Hash, "no limiter", 0).Err())
		}, false, errors.New("WRONGTYPE"), false},
		"a smaller rate":                    {func(w *world) { w.server.SetRate(w.l.key, overall(3, 4*time.Second)) }, false, nil, false},
		"another type":                      {func(w *world) { w.server.SetRate(w.l.key, perClient) }, false, nil, true},
		"another type, and it is forgotten": {func(w *world) { w.server.SetRate(w.l.key, perClient) }, true, nil, true},
		"nothing":                           {func(w *world) {}, false, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			var ended, began atomic.Int64
			inWorld(t, overall(10, 4*time.Second), func(t *testing.T, w *world) {
				l := w.l.on(localQuota(overall(10, 4*time.Second), 2))
				other := w.limiter(w.l.key + "other")
				w.server.SetRate(other.key, overall(1_000_000, time.Hour))
				w.granted(1)
				w.goesAway()
				time.Sleep(4500 * time.Millisecond)
				l.lent(5)
				test.change(w)
				if test.forget {
					for i := range 2 {
						_, _ = w.beside(l, fmt.Sprint(w.l.key, i)).Allow(w.ctx, 1)
					}
				}
				w.back()
				for range 170 { // 1.7 s, in which the pending grant still counts
					a := other.try(1)
					require.True(t, a.Granted && !a.Degraded)
					a, err := l.Allow(w.ctx, 1)
					require.NotErrorIs(t, err, permit.ErrUnavailable)
					require.False(t, a.Degraded)
					if test.err != nil {
						require.ErrorContains(t, err, test.err.Error())
					}
					time.Sleep(10 * time.Millisecond)
				}
				require.EqualValues(t, 1, began.Load())
				require.EqualValues(t, 1, ended.Load())
				if test.charged {
					w.used(10)
				}
			}, func(c *engine.Config) {
				c.Observe = func(e link.Event) {
					if e.Kind == link.OutageEnded {
						ended.Add(1)
					} else {
						began.Add(1)
					}
				}
			})
		})
	}
}

// TestPendingGrantsOfALimiterWithoutARate checks that grants that cannot be reconciled because the limiter has no
// rate stay pending until it has one again, or until they no longer count.
func TestPendingGrantsOfALimiterWithoutARate(t *testing.T) {
	for _, again := range []bool{true, false} {
		inWorld(t, overall(10, 4*time.Second), func(t *testing.T, w *world) {
			l := w.l.on(localQuota(overall(10, 4*time.Second), 2))
			w.granted(1)
			w.goesAway()
			time.Sleep(4500 * time.Millisecond)
			l.lent(5)
			granted := time.Now()
			w.server.Delete(w.l.key)
			w.back()
			for time.Since(granted) < 2*time.Second {
				_, _ = l.Allow(w.ctx, 1)
				time.Sleep(100 * time.Millisecond)
			}
			l.fails(1, permit.ErrNotInitialized)
			if again {
				w.server.SetRate(w.l.key, overall(10, 4*time.Second))
				w.granted(5)
				w.rejected(1, waitUntil(granted.Add(4*time.Second)))
				require.Zero(t, l.Snapshot().Pending)
				return
			}
			time.Sleep(time.Until(granted.Add(4 * time.Second)))
			before := w.p.Sent()
			for range 10 {
				l.fails(1, permit.ErrNotInitialized)
			}
			require.EqualValues(t, 10, w.p.Sent()-before, "nothing counts any more, nothing is told")
			w.server.SetRate(w.l.key, overall(10, 4*time.Second))
			w.granted(10)
		})
	}
}

// TestTellingAPerClientLimiterNeverSeen checks a process that was started during the outage and does not know the
// limiter's type. It reconciles its grants all the same.
func TestTellingAPerClientLimiterNeverSeen(t *testing.T) {
	perClient := permit.Rate{Type: permit.PerClient, Permits: 10, Interval: 4 * time.Second}
	inWorld(t, perClient, func(t *testing.T, w *world) {
		l := w.l.on(localQuota(perClient, 1))
		w.goesAway()
		time.Sleep(4500 * time.Millisecond)
		l.lent(7)
		granted, served := time.Now(), make(chan time.Duration)
		go func() {
			require.NoError(t, w.l.Acquire(w.ctx, 4)) // the first request after Redis is back
			served <- time.Since(granted)
		}()
		time.Sleep(500 * time.Millisecond)
		w.p.Fix()
		require.Equal(t, 4*time.Second, (<-served).Round(2*time.Millisecond), "the pending grant was told before")
		require.False(t, w.l.Health().Down())
	})
}

// TestListsOfLimitersWithPendingGrants checks that the pending grants of all limiters of a list are reconciled
// before the list is decided. If one of the limiters has been deleted, the list gets that error; if the server
// fails again meanwhile, an outage begins.
func TestListsOfLimitersWithPendingGrants(t *testing.T) {
	inWorld(t, overall(10, 4*time.Second), func(t *testing.T, w *world) {
		policy := localQuota(overall(10, 4*time.Second), 2)
		gone := w.limiter(w.l.key + "gone").on(policy)
		other := w.limiter(w.l.key + "other").on(policy)
		l := w.l.on(policy)
		for _, x := range []*limiter{gone, other} {
			w.server.SetRate(x.key, overall(10, 4*time.Second))
		}
		w.goesAway()
		time.Sleep(4500 * time.Millisecond)
		all := []list.Demand{gone.of(5), other.of(5)}
		a := redistest.Must(w.all(w.ctx, -1, all...))(t)
		require.True(t, a.Granted && a.Degraded)
		granted := time.Now()
		w.server.Delete(gone.key)
		w.back()

		_, err := w.all(w.ctx, -1, all...)
		require.ErrorIs(t, err, permit.ErrNotInitialized)
		require.ErrorContains(t, err, gone.key)
		require.NotErrorIs(t, err, permit.ErrUnavailable)
		require.False(t, w.l.Health().Down())
		a = redistest.Must(w.all(w.ctx, -1, other.of(6), l.of(1)))(t)
		require.False(t, a.Granted)
		require.Zero(t, a.Bound)
		require.Equal(t, waitUntil(granted.Add(4*time.Second)), a.Wait)

		w.p.Cut(testworld.Rejected)
		_, err = w.all(w.ctx, -1, append(all, w.l.of(1))...) // one policy fails closed
		require.ErrorIs(t, err, permit.ErrUnavailable)
		require.ErrorContains(t, err, gone.key, "whose it was")
		require.True(t, w.l.Health().Down())
		sent := w.p.Sent()
		for range 100 {
			_, err = w.all(w.ctx, -1, append(all, w.l.of(1))...)
			require.ErrorIs(t, err, permit.ErrUnavailable)
		}
		require.Equal(t, sent, w.p.Sent())
	})
}

// waitUntil returns the wait that a limiter reports now for a reconciled grant that expires at due. Both instants
// are rounded down to milliseconds.
func waitUntil(due time.Time) time.Duration {
	return time.Duration(due.UnixMilli()-time.Now().UnixMilli()) * time.Millisecond
}

// TestAnOutageThatBeginsWhileReconciling checks that a Redis which is gone again before it has been told of the grants
// of an outage is known to be down: the policy decides, and an observer would be told.
func TestAnOutageThatBeginsWhileReconciling(t *testing.T) {
	inWorld(t, overall(10, 10*time.Second), func(t *testing.T, w *world) {
		l, other := w.l.on(localQuota(overall(10, 10*time.Second), 2)), w.others(overall(10, time.Second))[0]
		w.granted(1)
		begun := w.goesAway()
		time.Sleep(time.Until(begun.Add(11 * time.Second)))
		l.lent(1)
		w.back()
		require.NoError(t, other.Acquire(w.ctx, 1))
		w.p.Cut(testworld.Rejected)
		require.True(t, l.try(1).Degraded)
		require.True(t, w.l.Health().Down())
		w.p.Fix()
		w.over = true
	})
}
