// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/embedredis"
	"github.com/goredisson/ratelimiter/internal/grantlog"
)

// A comparison is the outcome of one traffic at several limiters.
type comparison struct {
	traffic
	requests []arrival
	wait     time.Duration // how far ahead of their time permits could be granted
	outcomes []outcome
	bin      time.Duration // of the pictures
	length   time.Duration // until the last request or turn, in whole bins
}

// An outcome is that of one limiter. Its counts are permits.
type outcome struct {
	limiter            string
	bound              int64 // the most that the limiter promises to admit in a window of the interval
	admitted, rejected int64
	grants             grantlog.Grants // by the time from which they may be used
	worst              int64           // the most in any window of the interval
	waited             time.Duration   // the longest wait of a request that was admitted
	told               time.Duration   // the longest wait that a rejected request was told
}

// virtualBegin is when every traffic begins, by the clock of the embedded Redis.
var virtualBegin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// compare sends t to each of who, to as many at a time as there are processors. Rejected requests are not
// repeated.
func (t traffic) compare(ctx context.Context, who []contestant, wait time.Duration) (comparison, error) {
	c := comparison{traffic: t, requests: t.arrivals(), wait: wait, outcomes: make([]outcome, len(who))}
	var wg sync.WaitGroup
	errs := make([]error, len(who))
	next := make(chan int)
	for range min(len(who), runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := range next {
				c.outcomes[i], errs[i] = c.play(ctx, who[i])
			}
		})
	}
	for i := range who {
		next <- i
	}
	close(next)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return c, runError(ctx, err)
		}
	}
	c.finish()
	return c, nil
}

// play sends the requests to one limiter. It does not sleep: it sets the clock of the embedded Redis, which
// the limiter uses, to the instant of each request.
func (c *comparison) play(ctx context.Context, who contestant) (outcome, error) {
	o := outcome{limiter: who.name, bound: who.algorithm(c.rate).Bound(c.rate.Interval, c.largest())}
	server, err := embedredis.Start()
	if err != nil {
		return o, err
	}
	defer server.Close()
	server.SetTime(virtualBegin)
	rdb := server.NewClient()
	defer func() { _ = rdb.Close() }()
	client, err := ratelimiter.New(rdb)
	if err != nil {
		return o, err
	}
	defer func() { _ = client.Close() }()
	ask, err := who.asker(ctx, rdb, client, c.rate)
	if err != nil {
		return o, err
	}
	for _, r := range c.requests {
		server.SetTime(virtualBegin.Add(r.at))
		got, err := ask(ctx, r.permits, c.wait)
		if err != nil {
			return o, fmt.Errorf("%s at %v: %w", who.name, r.at, err)
		}
		if !got.Granted {
			o.rejected += r.permits
			o.told = max(o.told, got.Wait)
			continue
		}
		o.admitted += r.permits
		o.waited = max(o.waited, got.Wait)
		o.grants = append(o.grants, grantlog.At(virtualBegin.Add(r.at+got.Wait), r.permits))
	}
	return o, nil
}

// largest returns the number of permits of the largest request.
func (c *comparison) largest() (n int64) {
	for _, r := range c.requests {
		n = max(n, r.permits)
	}
	return n
}

func runError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return command.ErrInterrupted
	case errors.Is(err, ratelimiter.ErrInvalidArgument), errors.Is(err, ratelimiter.ErrPermitsExceedRate):
		return command.UsageError{Err: fmt.Errorf("--rate: %w", err)} // those of the cases are in range
	}
	return err
}

// finish computes what follows from the grants.
func (c *comparison) finish() {
	last := c.requests[len(c.requests)-1].at
	for i := range c.outcomes {
		o := &c.outcomes[i]
		o.worst = o.grants.Most(c.rate.Interval)
		slices.SortStableFunc(o.grants, func(a, b grantlog.Grant) int { return a.End.Compare(b.End) })
		if n := len(o.grants); n > 0 {
			last = max(last, o.grants[n-1].End.Sub(virtualBegin))
		}
	}
	c.bin = binFor(last)
	c.length = (last/c.bin + 1) * c.bin
}

// binFor returns a bin of 100ms, or of more if a picture would have less than a dot for each.
func binFor(length time.Duration) time.Duration {
	const most = 300
	for bin := 100 * time.Millisecond; ; bin *= 10 {
		for _, factor := range []time.Duration{1, 2, 5} {
			if length/(bin*factor) < most {
				return bin * factor
			}
		}
	}
}

// asked returns the outcome of a limiter that rejects nothing.
func (c *comparison) asked() outcome {
	o := outcome{limiter: "asked"}
	for _, r := range c.requests {
		o.admitted += r.permits
		o.grants = append(o.grants, grantlog.At(virtualBegin.Add(r.at), r.permits))
	}
	o.worst = o.grants.Most(c.rate.Interval)
	return o
}

// perBin returns how many permits were admitted in each bin.
func (c *comparison) perBin(o outcome) []int64 {
	bins := make([]int64, c.length/c.bin)
	for _, g := range o.grants {
		bins[g.End.Sub(virtualBegin)/c.bin] += g.Permits
	}
	return bins
}

// windows returns, for each bin, the most permits in a window of the interval that ends in the bin. The
// largest of them is that of the worst window.
func (c *comparison) windows(o outcome) []int64 {
	sums := make([]int64, len(o.grants)+1) // sums[i] is what the first i grants are together
	for i, g := range o.grants {
		sums[i+1] = sums[i] + g.Permits
	}
	// upTo returns what was granted until an instant, inclusive.
	upTo := func(at time.Time) int64 {
		i, _ := slices.BinarySearchFunc(o.grants, at, func(g grantlog.Grant, at time.Time) int {
			if g.End.After(at) {
				return 1
			}
			return -1
		})
		return sums[i]
	}
	in := func(end time.Time) int64 { return upTo(end) - upTo(end.Add(-c.rate.Interval)) }
	most := make([]int64, c.length/c.bin)
	for i := range most {
		most[i] = in(virtualBegin.Add(time.Duration(i) * c.bin))
	}
	for _, g := range o.grants {
		i := g.End.Sub(virtualBegin) / c.bin
		most[i] = max(most[i], in(g.End))
	}
	return most
}
