// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// A waitersRow measures callers in a blocking acquire that wait for permits which come back at known instants: a full
// window expires a group at a time.
type waitersRow struct {
	waiters int
}

const (
	waitGroup   = 20                     // permits that come back together
	waitEvery   = 100 * time.Millisecond // between two groups
	waitStagger = 500 * time.Microsecond // between two arrivals
	waitWindow  = 20 * time.Second       // long enough that no new grant expires
)

func (r waitersRow) about() rowAbout {
	return rowAbout{
		key: "waiters", title: fmt.Sprintf("%d waiters in a blocking acquire", r.waiters),
		text: fmt.Sprintf("The window is full; %d permits expire at once every %v. Lag: from the instant at which the k-th permit "+
			"is free by the clock of Redis to the k-th return of a caller. Overtaken: of all pairs of callers, those in which the one "+
			"that came later was served at least a group earlier; 50 %% would be chance. What fills the window looks like the grants of "+
			"another process.", waitGroup, waitEvery),
		metrics: []metric{callsMetric, lag50Metric, lag99Metric, overtakenMetric},
	}
}

func (r waitersRow) takes(c contestant) bool {
	_, ok := c.(waiter)
	return ok && !c.about().again
}

func (r waitersRow) measure(ctx context.Context, b *bench, c contestant, name string) (sample, error) {
	now, err := redisNow(ctx, b.rdb)
	if err != nil {
		return nil, err
	}
	// The first group comes back when all callers wait.
	first := now.Add(500*time.Millisecond + time.Duration(r.waiters)*waitStagger).Truncate(time.Millisecond)
	free := func(i int) time.Time { return first.Add(time.Duration(i/waitGroup) * waitEvery) }
	err = seedMembers(ctx, b.rdb, name, r.waiters, waitWindow, func(i int) int64 { return free(i).Add(-waitWindow).UnixMilli() })
	if err != nil {
		return nil, err
	}
	if _, err := resetUsage(ctx, b.rdb); err != nil {
		return nil, err
	}
	returned, err := c.(waiter).wait(ctx, name, r.waiters, waitStagger)
	if err != nil {
		return nil, err
	}
	after, err := readUsage(ctx, b.rdb)
	if err != nil {
		return nil, err
	}
	granted, err := usedPermits(ctx, b.rdb, name, strconv.FormatInt(first.UnixMilli(), 10))
	if err != nil {
		return nil, err
	}
	lost := int64(r.waiters) - granted
	if len(returned) != r.waiters || lost < 0 || lost > 0 && !c.about().lossy || lost > 3 {
		return nil, fmt.Errorf("%d of %d waiters returned, and the limiter holds %d new permits", len(returned), r.waiters, granted)
	}
	out, err := waitSample(returned, waitGroup, free)
	if err != nil {
		return nil, err
	}
	out[callsMetric] = float64(after.scriptCalls) / float64(r.waiters)
	return out, nil
}

// waitSample computes the figures from the instants of return, given in order of arrival, and the instants at which
// the permits were free, which so many are together.
func waitSample(returned []time.Time, group int, free func(i int) time.Time) (sample, error) {
	service := make([]int, len(returned)) // arrivals in order of service
	for i := range service {
		service[i] = i
	}
	slices.SortStableFunc(service, func(a, b int) int { return returned[a].Compare(returned[b]) })
	lags := make(series, len(service))
	served := make([]int, len(service)) // the group in which each arrival was
	for k, arrival := range service {
		lags[k] = returned[arrival].Sub(free(k)).Seconds() * 1e3
		if lags[k] < -1 { // the clock of Redis is cut to milliseconds
			return nil, fmt.Errorf("caller %d returned %.1f ms before its permit was free", arrival, -lags[k])
		}
		served[arrival] = k / group
	}
	overtaken, pairs := 0, 0
	for later := range served {
		for earlier := range later {
			pairs++
			if served[later] < served[earlier] {
				overtaken++
			}
		}
	}
	slices.Sort(lags)
	return sample{
		lag50Metric:     max(0, lags[len(lags)/2]),
		lag99Metric:     max(0, lags[len(lags)*99/100]),
		overtakenMetric: 100 * float64(overtaken) / float64(max(1, pairs)),
	}, nil
}
