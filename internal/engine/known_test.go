// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/test/proptest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/test/testworld"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// knows asks for permits, by a request that a rejection no older than bound may decide.
func (w *world) knows(l *limiter, permits int64, bound time.Duration) engine.Outcome {
	got, err := l.Handle.Acquire(w.ctx, engine.Request{Permits: permits, TellWait: true, CachedFor: bound, Policy: l.policy})
	require.NoError(w.t, err)
	return got
}

func TestCachedRejections(t *testing.T) {
	const bound, ms = 500 * time.Millisecond, time.Millisecond
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		before := 0
		sent := func(want int) { // calls since the last look
			t.Helper()
			require.Equal(t, want, w.p.Sent()-before)
			before = w.p.Sent()
		}
		rejected := func(permits int64, wait time.Duration, available int64) {
			t.Helper()
			got := w.knows(w.l, permits, bound)
			require.False(t, got.Granted)
			require.Equal(t, wait, got.Wait)
			require.Equal(t, available, got.Available)
			require.WithinDuration(t, time.Now(), got.Reply.Now, ms)
		}
		require.True(t, w.knows(w.l, 6, bound).Granted)
		w.at(700 * ms)
		require.True(t, w.knows(w.l, 2, bound).Granted)
		rejected(5, 300*ms, 2)
		sent(2 + 2) // a rejection is looked into, now and then
		w.at(800 * ms)
		rejected(5, 200*ms, 2)
		rejected(10, 900*ms, 2) // it has to wait longer, and is told how long
		sent(1)
		rejected(10, 900*ms, 2)
		rejected(5, 200*ms, 2)
		sent(0)
		got, err := w.l.Handle.Acquire(w.ctx, engine.Request{Permits: 7, CachedFor: bound})
		require.NoError(t, err)
		require.False(t, got.Granted, "one that is not told the wait is certainly rejected")
		sent(0)
		_, err = w.l.Handle.Acquire(w.ctx, engine.Request{Permits: 11, CachedFor: bound})
		require.ErrorIs(t, err, permit.ErrPermitsExceedRate)
		sent(1)
		require.True(t, w.knows(w.l, 2, bound).Granted, "two are left")
		sent(1)
		rejected(1, 200*ms, 0)
		sent(1)
		rejected(1, 200*ms, 0)
		sent(0)
		w.rejected(5, 200*ms) // one that asks
		sent(1)
		require.NoError(t, w.l.Acquire(w.ctx, 5)) // and one that waits
		w.at(1100 * ms)
		require.False(t, w.knows(w.l, 6, bound).Granted)
		before = w.p.Sent()
		w.at(1599 * ms)
		require.False(t, w.knows(w.l, 6, bound).Granted)
		sent(0)
		w.server.Release(w.l.key, 5)
		require.False(t, w.knows(w.l, 6, bound).Granted, "another process' release")
		w.at(1600 * ms)
		require.True(t, w.knows(w.l, 6, bound).Granted, "is noticed within the bound")

		require.False(t, w.knows(w.l, 10, bound).Granted)
		w.server.Release(w.l.key, 6)
		w.l.Changed()
		require.True(t, w.knows(w.l, 6, bound).Granted, "a change by this process is noticed at once")
	})
}

// TestCachedRejectionFromBeforeAChange checks that a reply teaches nothing that a change by this process has overtaken.
func TestCachedRejectionFromBeforeAChange(t *testing.T) {
	inWorld(t, overall(1, time.Minute), func(t *testing.T, w *world) {
		w.granted(1)
		w.rejected(1, time.Minute) // it was looked into
		w.p.Next(testworld.Fault{After: 100 * time.Millisecond})
		rejected := make(chan engine.Outcome)
		go func() { rejected <- w.knows(w.l, 1, time.Hour) }()
		time.Sleep(50 * time.Millisecond)
		w.server.Release(w.l.key, 1)
		w.l.Changed()
		require.False(t, (<-rejected).Granted)
		require.True(t, w.knows(w.l, 1, time.Hour).Granted)
	})
}

// TestCachedRejectionOfALimiterThatExpires checks that each half of the time to live there is a call, which renews it.
func TestCachedRejectionOfALimiterThatExpires(t *testing.T) {
	inWorld(t, permit.Rate{Permits: 1, Interval: time.Minute, KeepAlive: 100 * time.Millisecond}, func(t *testing.T, w *world) {
		w.granted(1)
		require.False(t, w.knows(w.l, 1, time.Second).Granted)
		before := w.p.Sent()
		for range 100 {
			time.Sleep(10 * time.Millisecond)
			require.False(t, w.knows(w.l, 1, time.Second).Granted)
		}
		require.Equal(t, 20, w.p.Sent()-before)
	})
}

// TestCachedRejectionsInAnOutage checks that the policy decides then.
func TestCachedRejectionsInAnOutage(t *testing.T) {
	inWorld(t, overall(1, time.Minute), func(t *testing.T, w *world) {
		l := w.l.on(failOpen)
		require.True(t, w.knows(l, 1, time.Hour).Granted)
		require.False(t, w.knows(l, 1, time.Hour).Granted)
		w.goesAway()
		got := w.knows(l, 1, time.Hour)
		require.True(t, got.Granted)
		require.True(t, got.Degraded)
		w.p.Fix()
		w.over = true
	})
}

// TestCachedRejectionsAreTrue checks in many random operations of several processes that no request is rejected that
// Redis would have granted, except for no longer than the bound after another process has made permits free early.
func TestCachedRejectionsAreTrue(t *testing.T) {
	redistest.Repeats(t)
	redistest.NoRace(t, "it takes virtual hours")
	operations := redistest.Cases(10_000, 300_000)
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		random := proptest.Rand(t)
		w := newWorld(t, testworld.New(t, rdb, redistest.Key(t)))
		other := newWorld(t, w.server)
		names := []string{"a", "b", "c"}
		bounds := []time.Duration{time.Millisecond, 50 * time.Millisecond, time.Second}
		freed := map[string]time.Time{}
		for _, name := range names {
			w.server.SetRate(name, overall(20, time.Second))
		}
		known, untrue, asked := 0, 0, 0
		for range operations {
			name := names[random.IntN(len(names))]
			l, n := w.limiter(name), 1+random.Int64N(8)
			switch random.IntN(200) {
			case 0:
				w.server.Release(name, n)
				freed[name] = time.Now()
			case 1:
				w.server.SetRate(name, overall(15+random.Int64N(10), time.Second))
				freed[name] = time.Now()
			case 2:
				w.server.Release(name, n)
				l.Changed()
			case 3:
				redistest.Must(l.TryAcquire(w.ctx, n, 30*time.Millisecond))(t)
			default:
				if random.IntN(4) == 0 {
					other.limiter(name).try(n)
					break
				}
				bound := bounds[random.IntN(len(bounds))]
				free, sent := w.server.Available(name), w.p.Sent()
				got := w.knows(l, n, bound)
				switch {
				case w.p.Sent() > sent:
					asked++
				case got.Granted:
					t.Fatal("granted without a call")
				case free >= n:
					require.Less(t, time.Since(freed[name]), bound, "%d of %d", n, free)
					untrue++
				default:
					known++
				}
			}
			time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
		}
		t.Logf("%d rejections were known, %d asked for; %d untrue, within the bound", known, asked, untrue)
		require.Greater(t, known, operations/20)
		require.Positive(t, untrue)
		w.close()
		other.close()
		time.Sleep(time.Hour)
		require.NoError(t, w.e.CheckIdle())
	})
}

// TestCachedRejectionsAreBounded checks that names that somebody makes up do not fill the memory.
func TestCachedRejectionsAreBounded(t *testing.T) {
	inWorld(t, permit.Rate{}, func(t *testing.T, w *world) {
		w.p.Always(testworld.Fault{Reply: func(a *permit.Reply) { a.Rate = overall(1, time.Hour) }})
		for i := range 20_000 {
			name := "forged" + strconv.Itoa(i)
			if i%1000 == 0 {
				name = strings.Repeat("long", 1000) + name
			}
			l := w.limiter(name)
			require.False(t, w.knows(l, 1, time.Minute).Granted)
			sent := w.p.Sent()
			require.False(t, w.knows(l, 1, time.Minute).Granted)
			require.Equal(t, i%1000 == 0, w.p.Sent() > sent, "the latest is known, unless its name is long")
		}
		require.LessOrEqual(t, w.e.CachedRejections(), 8192)
		require.Greater(t, w.e.CachedRejections(), 7000)
	})
}
