// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A flightsRow measures how long one flight, a pipeline of script calls of many limiters, keeps Redis from its other
// clients. Redis tells it itself: a hook puts an INFO cpu before the calls of a flight and another one behind them, and
// the CPU time that Redis has used from one to the other, of the user and of the system, is the flight's. Redis executes
// the calls one after another and waits for nothing in between, so that on a core of its own it is also the time that
// the others wait. By the clock it would be more whenever the machine gives the core to somebody else, which says
// something about the machine and not about the flight. The time of one INFO is in it, some microseconds. Redis reads
// 16 KiB at once: a pipeline that is longer, as those of AutoPipeline are, lets others in between, whose time is in it.
type flightsRow struct {
	loadRow
}

func (r flightsRow) about() rowAbout {
	a := r.loadRow.about()
	a.metrics = []metric{flightMetric, flight99Metric, flightCallsMetric}
	return a
}

func (r flightsRow) takes(c contestant) bool {
	switch c.about().key {
	case oursKey, limitGCRAKey, autoPipelineKey:
		return true
	}
	return false
}

func (r flightsRow) measure(ctx context.Context, b *bench, c contestant, name string) (sample, error) {
	clock := new(flightClock)
	rdb := newClient(b.server.Addr(), b.options.pool)
	rdb.AddHook(clock)
	timed, err := c.(movable).on(rdb)
	if err != nil {
		return nil, err
	}
	defer timed.close()
	if _, err := r.loadRow.measure(ctx, b, timed, name); err != nil {
		return nil, err
	}
	return clock.sample()
}

// A flightClock is a hook that takes the time of flights.
type flightClock struct {
	seen atomic.Int64

	mu      sync.Mutex
	took    histogram
	longest time.Duration
	flights int64
	calls   int64
	err     error // the first reply of Redis that does not tell its time
}

// Of flightsTimed flights the time of the first is taken, so that the others are as they are in use.
const flightsTimed = 4

func (f *flightClock) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (f *flightClock) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (f *flightClock) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !strings.HasPrefix(cmds[0].Name(), "eval") || f.seen.Add(1)%flightsTimed != 1 {
			return next(ctx, cmds)
		}
		began, ended := redis.NewStringCmd(ctx, "info", "cpu"), redis.NewStringCmd(ctx, "info", "cpu")
		all := append(append([]redis.Cmder{began}, cmds...), ended)
		err := next(ctx, all)
		f.add(len(cmds), began, ended)
		return err
	}
}

// add counts a flight, by what Redis replied before and behind it.
func (f *flightClock) add(calls int, began, ended *redis.StringCmd) {
	from, err := cpuSeconds(fields(began.Val()))
	to, err2 := cpuSeconds(fields(ended.Val()))
	took := time.Duration((to - from) * 1e9)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := errors.Join(began.Err(), err, ended.Err(), err2); err != nil {
		f.err = cmp.Or(f.err, err)
		return
	}
	f.flights++
	f.calls += int64(calls)
	f.took.add(took)
	f.longest = max(f.longest, took)
}

func (f *flightClock) sample() (sample, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	if f.flights == 0 {
		return nil, errors.New("no flight has left")
	}
	return sample{
		flightMetric:      f.longest.Seconds() * 1e3,
		flight99Metric:    f.took.quantile(0.99).Seconds() * 1e3,
		flightCallsMetric: float64(f.calls) / float64(f.flights),
	}, nil
}
