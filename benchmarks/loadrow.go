// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A loadRow measures callers that make requests as fast as they can.
type loadRow struct {
	key, title, text string
	callers          int // of each process
	limiters         int
	processes        int           // 0 for this one alone
	interval         time.Duration // 0 for an hour, in which nothing expires
	reject           bool
	limits           bool // the row is about package limit
	baseline         string
	duration         time.Duration
}

func (r loadRow) about() rowAbout {
	a := rowAbout{key: r.key, title: r.title, text: r.text, metrics: loadMetrics, baseline: r.baseline}
	if r.limits {
		a.metrics, a.baseline = limitMetrics, redisRateKey
	}
	if r.limits && r.reject {
		a.metrics = slices.Insert(slices.Clone(a.metrics), 1, callRateMetric)
	}
	return a
}

func (r loadRow) takes(c contestant) bool {
	a := c.about()
	switch {
	case a.pipelined && r.limiters == 1:
		return false
	case r.limits && r.limiters == 1 && r.callers > 64: // those of the other algorithms would use up their permits
		return a.key == limitGCRAKey || a.key == redisRateKey
	case r.limits:
		return a.limit || a.beside
	case r.processes > 0 && r.limiters > 1:
		return a.pipelined || a.key == oursKey || a.key == limitGCRAKey || a.key == redisRateKey || a.key == baselineKey
	case a.limit:
		return false
	case r.reject && a.unlimited, r.processes > 0 && a.java:
		return false
	case r.processes > 0 && a.key == local{}.about().key:
		return false // it cannot share
	case r.interval > 0:
		return a.keeps // the others' state does not grow with the window
	case r.limiters > 1:
		return !a.unlimited
	}
	return true
}

// plenty is a rate that no run exhausts, and that all values here can hold.
const plenty = 100_000_000

func (r loadRow) job(name string) job {
	j := job{prefix: name, limiters: r.limiters, permits: plenty, interval: time.Hour, callers: r.callers, duration: r.duration}
	if r.interval > 0 {
		j.interval = r.interval
	}
	if r.reject {
		j.permits = 1
	} else if r.limits {
		j.logs = logWindow
	}
	return j
}

func (r loadRow) measure(ctx context.Context, b *bench, c contestant, name string) (sample, error) {
	j := r.job(name)
	s, err := c.open(ctx, j)
	if err != nil {
		return nil, err
	}
	if r.reject {
		if err := exhaust(ctx, s, j, c.about().held(j)); err != nil {
			return nil, err
		}
	}
	before, err := resetUsage(ctx, b.rdb)
	if err != nil {
		return nil, err
	}
	var t tally
	if r.processes > 0 {
		t, err = b.workers(ctx, r.processes, c, j)
	} else {
		t, err = s.load(ctx, j)
	}
	if err != nil {
		return nil, err
	}
	after, err := readUsage(ctx, b.rdb)
	if err != nil {
		return nil, err
	}
	out := r.sample(c, t, before, after)
	if err := r.check(ctx, c, s, t); err != nil {
		return nil, err
	}
	if (c.about().keeps || r.limits) && !r.reject && r.limiters == 1 && r.interval == 0 {
		bytes, err := memory(ctx, b.rdb, s.keys())
		if err != nil {
			return nil, err
		}
		out[bytesMetric], out[keysMetric] = float64(bytes)/float64(t.Granted), float64(bytes)
	}
	return out, nil
}

// sample computes the figures from what callers and server counted.
func (r loadRow) sample(c contestant, t tally, before, after usage) sample {
	a := c.about()
	out := sample{
		rateMetric: t.asked() / t.Elapsed.Seconds(),
		p50Metric:  t.P50.Seconds() * 1e3,
		p99Metric:  t.P99.Seconds() * 1e3,
	}
	if a.fallible {
		out[failedMetric] = 100 * float64(t.Failed) / (t.asked() + float64(t.Failed))
	}
	if !a.java && r.processes == 0 {
		out[allocsMetric] = t.Mallocs / t.asked()
	}
	if a.ceiling && !a.unlimited {
		return out // it does not use Redis
	}
	if r.reject && r.limits && !a.reads { // one that rejects by what it reads has few script calls and many others
		out[callRateMetric] = float64(after.scriptCalls) / t.Elapsed.Seconds()
	}
	out[cpuMetric] = (after.cpu - before.cpu) * 1e6 / t.asked()
	out[askMetric] = after.asking(a) * 1e6 / t.asked()
	if after.scriptCalls > 0 {
		out[serverMetric] = after.scriptTime * 1e6 / float64(after.scriptCalls)
		out[callsMetric] = float64(after.scriptCalls) / t.asked()
	}
	return out
}

// check compares what callers were granted with what Redis holds.
func (r loadRow) check(ctx context.Context, c contestant, s session, t tally) error {
	if t.Failed > 0 && !c.about().fallible {
		return fmt.Errorf("%d calls failed: %s", t.Failed, t.Error)
	}
	spent, err := s.spent(ctx)
	if err != nil {
		return err
	}
	return r.judge(t, spent, c.about().held(r.job("")))
}

// judge returns an error that says what is wrong with a tally, given the permits that are granted by what is in
// Redis, and how many permits a limiter had.
func (r loadRow) judge(t tally, spent, held int64) error {
	switch {
	case r.reject && (t.Granted != 0 || t.Rejected == 0 || spent != held):
		return fmt.Errorf("of an empty limiter %d requests were granted and %d rejected, and it holds %d", t.Granted, t.Rejected, spent)
	case r.reject:
		return nil
	case t.Granted == 0 || t.Rejected != 0:
		return fmt.Errorf("%d requests were granted and %d rejected", t.Granted, t.Rejected)
	case r.interval > 0 && (spent == 0 || spent > t.Granted):
		return fmt.Errorf("%d requests were granted, and the window holds %d", t.Granted, spent)
	case r.interval == 0 && spent != t.Granted:
		return fmt.Errorf("%d requests were granted, and the limiter holds %d", t.Granted, spent)
	}
	return nil
}

// exhaust acquires all permits of a job's limiter.
func exhaust(ctx context.Context, s session, j job, held int64) error {
	j.callers, j.calls = 1, held
	t, err := s.load(ctx, j)
	if err == nil && t.Granted != held {
		err = fmt.Errorf("of %d permits %d were granted: %s", held, t.Granted, t.Error)
	}
	return err
}
