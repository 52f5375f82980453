// SPDX-License-Identifier: Apache-2.0

// Command compare sends the same requests to each limiter of package limit and to an RRateLimiter, and shows what they admit:
//
//	go run ./examples/compare
//
// It prints the tables of docs/algorithms.md, which explains their columns; its test draws the pictures of that page. It needs nothing
// but Go: the Redis is inside this program, and its clock is set to the instant of each request, so that the results are the same on
// every machine. To compare the limiters on traffic of your own, copy this directory and write one more case in traffic.go.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

func main() {
	debug.SetGCPercent(400) // little of what is allocated stays in use
	for _, t := range cases {
		all, err := t.compare(context.Background())
		if err != nil {
			fmt.Fprintln(os.Stderr, "compare:", err)
			os.Exit(1)
		}
		fmt.Printf("%s: %s\nlimit %d/%v\n\n%s\n", t.name, t.about, t.rate.Permits, t.rate.Interval, table(all))
	}
}

// An outcome is what one limiter made of a traffic. Its counts are permits.
type outcome struct {
	*traffic
	limiter            string
	bound              int64 // the most that the limiter promises to admit in a window of the interval
	admitted, rejected int64
	grants             []arrival     // at the time from which they may be used
	worst              int64         // the most in any window of the interval
	waited             time.Duration // the longest wait of a request that was admitted
	told               time.Duration // the longest wait that a rejected request was told
}

// compare sends the traffic to all limiters.
func (t *traffic) compare(ctx context.Context) (all []outcome, err error) {
	for _, a := range limiters(t.rate) {
		o, err := t.play(ctx, a)
		if err != nil {
			return nil, fmt.Errorf("%s at %T: %w", t.name, a, err)
		}
		all = append(all, o)
	}
	return all, nil
}

// play sends the requests to a limiter, each once. One that can grant permits ahead of their time does so up to an interval.
func (t *traffic) play(ctx context.Context, a limit.Algorithm) (o outcome, err error) {
	_, name, _ := strings.Cut(fmt.Sprintf("%T", a), ".")
	o = outcome{traffic: t, limiter: name}
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	if err := m.Start(); err != nil {
		return o, err
	}
	defer m.Close()
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m.SetTime(begin)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr(), DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
	defer func() { _ = rdb.Close() }()
	client, err := ratelimiter.New(rdb)
	if err != nil {
		return o, err
	}
	defer func() { _ = client.Close() }()
	l, err := limit.NewShared(rdb, name, a, limit.WithoutCachedRejections()) // only the clock of Redis moves
	if err != nil {
		return o, err
	}
	ask, largest := l.Reserve, int64(1)
	if _, ok := a.(RRateLimiter); ok {
		redisson := client.RateLimiter(name).WithRate(t.rate)
		ask = func(ctx context.Context, n int64, _ time.Duration) (ratelimiter.Result, error) {
			return redisson.Allow(ctx, n)
		}
	}
	for _, r := range t.arrivals() {
		m.SetTime(begin.Add(r.at))
		got, err := ask(ctx, r.permits, t.rate.Interval)
		if err != nil {
			return o, err
		}
		largest = max(largest, r.permits)
		if got.Granted {
			o.admitted, o.waited = o.admitted+r.permits, max(o.waited, got.Wait)
			o.grants = append(o.grants, arrival{r.at + got.Wait, r.permits})
		} else {
			o.rejected, o.told = o.rejected+r.permits, max(o.told, got.Wait)
		}
	}
	for _, g := range o.grants {
		o.worst = max(o.worst, o.window(g.at))
	}
	o.bound = limit.Bound(a, t.rate.Interval, largest)
	return o, nil
}

// window returns how many permits were granted in the window of the interval that ends at an instant.
func (o *outcome) window(end time.Duration) (n int64) {
	for _, g := range o.grants {
		if g.at > end-o.rate.Interval && g.at <= end {
			n += g.permits
		}
	}
	return n
}

// table returns the outcomes of a traffic as lines, with a ! where the worst window is above the limit.
func table(all []outcome) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-15s %9s %9s %9s %9s %7s %8s %8s\n", "limiter", "admitted", "rejected", "worst", "of limit", "bound", "waited", "told")
	for _, o := range all {
		times := fmt.Sprintf("%.2fx", float64(o.worst)/float64(o.rate.Permits))
		mark := map[bool]string{true: "!"}[o.worst > o.rate.Permits]
		fmt.Fprintf(&b, "%-15s %9d %9d %9d %7s %-1s %7d %8s %8s\n", o.limiter, o.admitted, o.rejected, o.worst, times, mark, o.bound, short(o.waited), short(o.told))
	}
	return b.String()
}

// short formats d in few letters, 0 as a dash.
func short(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d < time.Millisecond:
		return "<1ms"
	}
	return d.Round(time.Millisecond).String()
}
