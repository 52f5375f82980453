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
	"github.com/goredisson/ratelimiter/internal/embedredis"
)

// A comparison is one traffic through some limiters.
type comparison struct {
	traffic
	requests []arrival
	wait     time.Duration // how far ahead of their time permits were taken
	outcomes []outcome
	bin      time.Duration // of the pictures
	length   time.Duration // until the last request or turn, in whole bins
}

// An outcome is what one limiter made of it. Its counts are permits.
type outcome struct {
	limiter           string
	bound             int64 // what it promises for a window of the interval
	admitted, refused int64
	grants            []grant       // by the time from which they may be used
	worst             int64         // the most in any window of the interval
	waited            time.Duration // the longest that somebody who was admitted waited
	told              time.Duration // the longest that somebody who was refused was told to wait
}

// virtualBegin is when every traffic begins, by the embedded Redis.
var virtualBegin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// compare plays t to who, to as many at once as there are processors. Nobody who is refused asks again.
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

// play plays the requests to one limiter. It takes no time but the computing: the clock of a Redis inside
// this program, which the limiter goes by, is put to the instant of each request.
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
	client := ratelimiter.New(rdb)
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
			o.refused += r.permits
			o.told = max(o.told, got.Wait)
			continue
		}
		o.admitted += r.permits
		o.waited = max(o.waited, got.Wait)
		o.grants = append(o.grants, grant{virtualBegin.Add(r.at + got.Wait), r.permits})
	}
	return o, nil
}

// largest is the most permits that one request is for.
func (c *comparison) largest() (n int64) {
	for _, r := range c.requests {
		n = max(n, r.permits)
	}
	return n
}

func runError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case errors.Is(err, ratelimiter.ErrInvalidArgument), errors.Is(err, ratelimiter.ErrPermitsExceedRate):
		return usageError{fmt.Errorf("--rate: %w", err)} // those of the cases are in range
	}
	return err
}

// finish works out what follows from the grants.
func (c *comparison) finish() {
	last := c.requests[len(c.requests)-1].at
	for i := range c.outcomes {
		o := &c.outcomes[i]
		o.worst = mostIn(c.rate.Interval, o.grants) // which sorts them
		if n := len(o.grants); n > 0 {
			last = max(last, o.grants[n-1].at.Sub(virtualBegin))
		}
	}
	c.bin = binFor(last)
	c.length = (last/c.bin + 1) * c.bin
}

// binFor is 100ms, and more where there would be so many that a picture has less than a dot for each.
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

// asked is what the requests would be if nobody refused any.
func (c *comparison) asked() outcome {
	o := outcome{limiter: "asked"}
	for _, r := range c.requests {
		o.admitted += r.permits
		o.grants = append(o.grants, grant{virtualBegin.Add(r.at), r.permits})
	}
	o.worst = mostIn(c.rate.Interval, o.grants)
	return o
}

// perBin is how many permits were admitted in each bin.
func (c *comparison) perBin(o outcome) []int64 {
	bins := make([]int64, c.length/c.bin)
	for _, g := range o.grants {
		bins[g.at.Sub(virtualBegin)/c.bin] += g.permits
	}
	return bins
}

// windows is, for each bin, the most that a window of the interval which ends in it holds: the largest of
// them is the worst window.
func (c *comparison) windows(o outcome) []int64 {
	sums := make([]int64, len(o.grants)+1) // sums[i] is what the first i grants are together
	for i, g := range o.grants {
		sums[i+1] = sums[i] + g.permits
	}
	// upTo is what was granted up to an instant, and at it.
	upTo := func(at time.Time) int64 {
		i, _ := slices.BinarySearchFunc(o.grants, at, func(g grant, at time.Time) int {
			if g.at.After(at) {
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
		i := g.at.Sub(virtualBegin) / c.bin
		most[i] = max(most[i], in(g.at))
	}
	return most
}
