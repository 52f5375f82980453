// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"
)

// A tally is the outcome of a job for its callers.
type tally struct {
	Granted, Rejected int64
	Failed            int64 // calls that returned an error
	Error             string
	Elapsed           time.Duration
	P50, P99          time.Duration
	Mallocs           float64 // allocations of this process
	Latency           *histogram
}

// A try makes one request to the limiter that pick chooses, and returns how many permits it was granted; 0 is a
// rejection.
type try func(ctx context.Context, pick uint64) (int64, error)

// drive runs callers that make requests for a duration or, if calls is not 0, so many times each. Calls under
// way at the end are waited for and count.
func drive(ctx context.Context, j job, ask try) tally {
	parts := make([]part, j.callers)
	var ready, done sync.WaitGroup
	ready.Add(j.callers)
	start := make(chan struct{})
	for i := range parts {
		done.Go(func() {
			ready.Done()
			<-start
			parts[i].run(ctx, j, ask)
		})
	}
	ready.Wait()
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	close(start)
	done.Wait()
	t := tally{Elapsed: time.Since(began), Latency: new(histogram)}
	runtime.ReadMemStats(&after)
	t.Mallocs = float64(after.Mallocs - before.Mallocs)
	for i := range parts {
		p := &parts[i]
		t.Granted += p.granted
		t.Rejected += p.rejected
		t.Failed += p.failed
		if p.err != nil {
			t.Error = p.err.Error()
		}
		t.Latency.merge(&p.latency)
	}
	t.P50, t.P99 = t.Latency.quantile(0.50), t.Latency.quantile(0.99)
	return t
}

// A part is the tally of one caller. Only the caller uses it until it has ended.
type part struct {
	granted, rejected, failed int64
	err                       error
	latency                   histogram
}

func (p *part) run(ctx context.Context, j job, ask try) {
	random := rand.NewPCG(rand.Uint64(), rand.Uint64())
	// Since reads one clock, as System.nanoTime does for Java's callers; Now reads two.
	began, before := time.Now(), time.Duration(0)
	for n := int64(0); j.calls == 0 && before < j.duration || n < j.calls; n++ {
		granted, err := ask(ctx, random.Uint64())
		switch {
		case err != nil:
			p.failed++
			p.err = err
			if ctx.Err() != nil {
				return
			}
		case granted == 0:
			p.rejected++
		default:
			p.granted += granted
		}
		now := time.Since(began)
		p.latency.add(now - before)
		before = now
	}
}

// asked returns how many requests had a reply.
func (t tally) asked() float64 { return float64(t.Granted + t.Rejected) }
