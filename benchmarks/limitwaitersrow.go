// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter/limit"
)

// A limitWaitersRow measures callers in limit.Wait for one key, whose permits come back one by one.
type limitWaitersRow struct {
	waiters int
}

const (
	waitRate  = 50                     // permits a second
	waitTurn  = time.Second / waitRate // between two permits
	waitApart = 2 * time.Millisecond   // two arrivals, or the scheduler would start some together and the later one first
	waitBurst = waitRate               // a caller that is late by less than a second costs the others nothing
)

func (r limitWaitersRow) about() rowAbout {
	return rowAbout{
		key: "limit-waiters", title: fmt.Sprintf("limit/: %d waiters on one key", r.waiters),
		text: fmt.Sprintf("Callers of one process in limit.Wait; %d permits a second, of which none is left when they come. "+
			"Script calls are those a grant. Lag: from the instant at which the k-th permit is free by the clock of Redis to the k-th return of a "+
			"caller. Overtaken: of all pairs of callers, those in which the one that came later was served earlier; 50 %% would be chance.", waitRate),
		metrics: []metric{callsMetric, lag50Metric, lag99Metric, overtakenMetric}, baseline: redisRateKey,
	}
}

// waitedOn returns, of those limiters whose state tells it, the instant in µs at which no permit is taken, and so how
// many have been taken: each moves it by waitTurn.
var waitedOn = map[string]func(s limitState) (int64, error){
	limitGCRAKey: func(s limitState) (int64, error) { return s.sum("us") },
	"limit-token-bucket": func(s limitState) (int64, error) {
		at, err := s.sum("at")
		if err != nil {
			return 0, err
		}
		level, err := s.sum("level") // a part flows in each µs, and waitTurn's are a permit
		return at + waitBurst*waitTurn.Microseconds() - level, err
	},
}

func (r limitWaitersRow) takes(c contestant) bool {
	return waitedOn[c.about().key] != nil
}

func (r limitWaitersRow) measure(ctx context.Context, b *bench, c contestant, name string) (sample, error) {
	l := c.(*sharedLimit)
	j := job{prefix: name, limiters: 1, permits: waitBurst, interval: time.Second, flows: true}
	s, err := limit.NewShared(l.rdb, name, l.algorithm(j))
	if err != nil {
		return nil, err
	}
	if got, err := s.Allow(ctx, waitBurst); err != nil {
		return nil, err
	} else if !got.Granted {
		return nil, fmt.Errorf("of an unused limiter %d permits were rejected: %+v", waitBurst, got)
	}
	full, err := r.fullAt(ctx, l, s)
	if err != nil {
		return nil, err
	}
	free := func(k int) time.Time { return time.UnixMicro(full).Add(time.Duration(k+1-waitBurst) * waitTurn) }
	if _, err := resetUsage(ctx, b.rdb); err != nil {
		return nil, err
	}
	returned, err := arrive(ctx, r.waiters, waitApart, func(ctx context.Context) error { return limit.Wait(ctx, s, 1) })
	if err != nil {
		return nil, err
	}
	after, err := readUsage(ctx, b.rdb)
	if err != nil {
		return nil, err
	}
	then, err := r.fullAt(ctx, l, s)
	if err != nil {
		return nil, err
	}
	if moved, want := time.Duration(then-full)*time.Microsecond, time.Duration(r.waiters)*waitTurn; moved != want {
		return nil, fmt.Errorf("%d waiters returned, and the limiter holds %v of permits, not %v", len(returned), moved, want)
	}
	out, err := waitSample(returned, 1, free)
	if err != nil {
		return nil, err
	}
	out[callsMetric] = float64(after.scriptCalls) / float64(r.waiters)
	return out, nil
}

// fullAt returns when all permits are back, in µs by the clock of Redis.
func (r limitWaitersRow) fullAt(ctx context.Context, l *sharedLimit, s *limit.Shared) (int64, error) {
	states, err := l.states(ctx, []*limit.Shared{s})
	if err != nil {
		return 0, err
	}
	if len(states) != 1 {
		return 0, fmt.Errorf("%d states in Redis of one key of %s", len(states), l.title)
	}
	return waitedOn[l.key](states[0])
}
