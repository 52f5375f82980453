// SPDX-License-Identifier: Apache-2.0

package benchmarks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit"
)

// A waiters measures callers in a blocking acquire that wait for permits which come back at known instants.
type waiters struct {
	callers int
	full    func(t testing.TB, at place, c contestant, callers int) *waited
}

// A waited is a limiter that has no permit.
type waited struct {
	wait  func() []time.Time    // returns when each caller returned, in order of arrival
	group int                   // permits that come back together
	free  func(k int) time.Time // when the k-th is back
	held  func() error          // an error unless Redis holds what callers were granted
	close func()
}

func (w waiters) run(b meter, at place, c contestant) {
	l := w.full(b, at, c, w.callers)
	defer l.close()
	at.resetUsage(b)
	returned := l.wait()
	u := at.usage(b)
	require.NoError(b, l.held())
	lags, overtaken, err := lagsOf(returned, l.group, l.free)
	require.NoError(b, err)
	b.ReportMetric(float64(u.calls)/float64(len(returned)), "calls/grant")
	b.ReportMetric(float64(quantile(lags, 50)), "lag-p50-ns")
	b.ReportMetric(float64(quantile(lags, 99)), "lag-p99-ns")
	b.ReportMetric(overtaken, "overtaken-%")
}

// fullWindow returns a limiter whose window expires a group at a time. What fills it looks like the grants of another process.
func fullWindow(t testing.TB, at place, c contestant, callers int) *waited {
	const (
		group  = 20
		every  = 100 * time.Millisecond
		apart  = 500 * time.Microsecond
		window = 20 * time.Second // long enough that no new grant expires
	)
	j := job{Limiters: 1, Permits: int64(callers), Interval: window}
	s := c.open(t, at, j)
	// The first group comes back when all callers wait.
	first := time.Now().Add(500*time.Millisecond + time.Duration(callers)*apart).Truncate(time.Millisecond)
	free := func(k int) time.Time { return first.Add(time.Duration(k/group) * every) }
	seed(t, s.rdb, j, func(i int) int64 { return free(i).Add(-window).UnixMilli() })
	return &waited{group: group, free: free, close: s.close,
		wait: func() []time.Time { return s.wait(t, callers, apart) },
		held: func() error {
			members, err := s.rdb.ZRangeArgs(t.Context(), redis.ZRangeArgs{Key: permitsKey(j.name(0)), Start: first.UnixMilli(), Stop: "+inf", ByScore: true}).Result()
			// Of 3.15.5 two grants can become one member.
			if lost := j.Permits - permitsIn(members); err == nil && (lost < 0 || lost > 0 && c.name != "java-"+olderRedisson || lost > 3) {
				err = fmt.Errorf("%d waiters returned, and the limiter holds %d new permits", callers, permitsIn(members))
			}
			return err
		}}
}

// fullKey returns a limiter of package limit whose permits come back one by one. Its callers are in limit.Wait.
func fullKey(t testing.TB, at place, c contestant, callers int) *waited {
	const (
		rate  = 50 // permits a second; a caller that is late by less than a second costs the others nothing
		turn  = time.Second / rate
		apart = 2 * time.Millisecond // or the scheduler would start some together and the later one first
	)
	k := kinds()[slices.IndexFunc(kinds(), func(k kind) bool { return "limit-"+k.name == c.name })]
	j := job{Limiters: 1, Permits: rate, Interval: time.Second, Flows: true}
	set, watch := k.limiters(t, at, j), k.limiters(t, at, j, limit.WithoutCachedRejections())
	require.True(t, redistest.Must(watch.take(t.Context(), 0, rate))(t))
	full := func() time.Time { // when all permits are back
		r := redistest.Must(watch.of[0].Allow(t.Context(), rate))(t)
		require.False(t, r.Granted, "all permits are back already")
		return time.Now().Add(r.Wait)
	}
	before := full()
	return &waited{group: 1, free: func(k int) time.Time { return before.Add(time.Duration(k+1-rate) * turn) },
		close: func() { _, _ = set.close(), watch.close() },
		wait: func() []time.Time {
			return arrive(t, callers, apart, func(ctx context.Context) error { return limit.Wait(ctx, set.of[0], 1) })
		},
		held: func() error {
			if got, want := full().Sub(before).Round(turn), time.Duration(callers)*turn; got != want {
				return fmt.Errorf("%d waiters returned, and the limiter holds %v of permits, not %v", callers, got, want)
			}
			return nil
		}}
}

// lagsOf returns the times from the instant at which the k-th permit was free to the k-th return of a caller, and the percentage
// of all pairs of callers of which the one that came later was served at least a group earlier; 50 would be chance. The instants
// of return are in order of arrival.
func lagsOf(returned []time.Time, group int, free func(k int) time.Time) (lags []time.Duration, overtaken float64, err error) {
	service := make([]int, len(returned)) // arrivals in order of service
	for i := range service {
		service[i] = i
	}
	slices.SortStableFunc(service, func(a, b int) int { return returned[a].Compare(returned[b]) })
	served := make([]int, len(service)) // the group in which each arrival was
	for k, arrival := range service {
		lag := returned[arrival].Sub(free(k))
		if lag < -2*time.Millisecond { // the clock of Redis is cut to milliseconds
			return nil, 0, fmt.Errorf("caller %d returned %v before its permit was free", arrival, -lag)
		}
		lags = append(lags, max(0, lag))
		served[arrival] = k / group
	}
	for later := range served {
		for _, earlier := range served[:later] {
			if served[later] < earlier {
				overtaken++
			}
		}
	}
	return lags, 100 * overtaken / (float64(len(served)*(len(served)-1)) / 2), nil
}

// arrive starts callers one after another and returns when each got its permit, in order of arrival.
func arrive(t require.TestingT, callers int, apart time.Duration, acquire func(context.Context) error) []time.Time {
	returned, errs := make([]time.Time, callers), make([]error, callers)
	var waiting sync.WaitGroup
	began := time.Now()
	for i := range callers {
		waiting.Go(func() {
			errs[i] = acquire(context.Background())
			returned[i] = time.Now()
		})
		time.Sleep(time.Until(began.Add(time.Duration(i+1) * apart)))
	}
	waiting.Wait()
	require.NoError(t, errors.Join(errs...))
	return returned
}
