// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/grantlog"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

// A contest is a set of callers of ours and threads of one JVM that all wait in acquire for one limiter.
type contest struct {
	rate     int
	interval time.Duration
	callers  int           // on each side
	think    time.Duration // after a grant
	timeout  time.Duration // of each acquire; 0 for none
	reopen   time.Duration // if set, the limiter comes out of a cool-down of 2 s
	begin    time.Duration // grants before that do not count
	lasts    time.Duration
}

// sharedOut is the number of grants of each side.
type sharedOut struct{ ours, java int }

func (s sharedOut) all() int { return s.ours + s.java }

// smaller returns the share of the side that got less.
func (s sharedOut) smaller() float64 { return float64(min(s.ours, s.java)) / float64(max(1, s.all())) }

// whole returns the number of permits that the rate allows in the contest.
func (c contest) whole() float64 {
	return float64(c.rate) * float64(c.lasts-c.begin) / float64(c.interval)
}

func (c contest) String() string {
	return fmt.Sprintf("%d in %v, %d callers a side, think %v, timeout %v, reopen %v", c.rate, c.interval, c.callers,
		c.think, c.timeout, c.reopen)
}

func (c contest) play(t testing.TB, v version) sharedOut {
	rdb, java, name := redistest.Client(t), fleet.peer(t, v), redistest.Key(t)
	require.True(t, java.truth(t, "trySetRate", name, overall, c.rate, c.interval))
	client := newGoSide(t, rdb, v, java.id).client
	l := client.RateLimiter(name)
	begun := time.Now()
	if c.reopen > 0 {
		require.NoError(t, l.CoolDown(t.Context(), begun.Add(2*time.Second), ratelimiter.Reopen(c.reopen)))
	}
	mode := "block"
	if c.timeout > 0 {
		mode = fmt.Sprintf("wait:%d", c.timeout.Milliseconds())
	}
	hammer := java.begin("hammer", name, c.callers, c.lasts, 1, mode, 1, c.think)
	ctx, cancel := context.WithDeadline(t.Context(), begun.Add(c.lasts))
	defer cancel()
	var told grantlog.Ledger
	var callers sync.WaitGroup
	for range c.callers {
		callers.Go(func() {
			for ctx.Err() == nil {
				ok, err := true, error(nil)
				if c.timeout > 0 {
					ok, err = l.TryAcquire(ctx, 1, c.timeout)
				} else {
					err = l.Acquire(ctx, 1)
				}
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				if ok {
					told.Add(grantlog.At(time.Now(), 1))
					time.Sleep(c.think)
				}
			}
		})
	}
	callers.Wait()
	redistest.Must(hammer.cancel())(t)
	counts := func(g grantlog.Grant) bool { return g.End.Sub(begun) >= c.begin && g.End.Sub(begun) < c.lasts }
	theirs := redistest.Must(hammer.told(callLimit))(t)
	ours, passed := told.Told(), time.Since(begun)
	require.LessOrEqual(t, float64(len(ours.Grants)+len(theirs.Grants)), float64(c.rate)*(2+passed.Seconds()/c.interval.Seconds()), "in %v", passed)
	return sharedOut{ours: len(ours.Only(counts)), java: len(theirs.Only(counts))}
}

// contests returns what is measured: the usual one, and in the long form others, by interval, rate and time to think.
func contests() []contest {
	usual := contest{rate: 20, interval: time.Second, callers: 8, begin: 3 * time.Second, lasts: 11 * time.Second}
	list := []contest{usual}
	if longForm() {
		for _, c := range []contest{
			{rate: 10, interval: time.Second},
			{rate: 100, interval: time.Second},
			{rate: 10, interval: time.Second, think: 50 * time.Millisecond},
			{rate: 10, interval: time.Second, think: 200 * time.Millisecond},
			{rate: 10, interval: time.Second, timeout: 5 * time.Second},
			{rate: 10, interval: 200 * time.Millisecond},
			{rate: 10, interval: 100 * time.Millisecond},
		} {
			c.callers, c.begin, c.lasts = 8, 4*time.Second, 16*time.Second
			list = append(list, c)
		}
		list = append(list, contest{rate: 100, interval: time.Second, callers: 8, reopen: 3 * time.Second, begin: 2 * time.Second, lasts: 5 * time.Second})
	}
	return list
}

// TestSharesBesideJava checks that each side gets a part of the permits, beside the article's version and those whose timers
// differ. Redisson's threads wake late: when a caller of ours always made its request at the very instant, they got only 2 %.
func TestSharesBesideJava(t *testing.T) {
	versionsAbreast(t, func(t testing.TB, v version) {
		for _, c := range contests() {
			got := c.play(t, v)
			t.Logf("%v: %+v of %.0f: Java's share %.0f %%", c, got, c.whole(), 100*float64(got.java)/float64(max(1, got.all())))
			// With one version after another, on a machine that did nothing else, the smaller share was 46 to 50 %, and the
			// whole rate was used. Here four JVMs share two cores with other tests, which reduces Java's part; 27 % was
			// seen. In virtual time TestRedissonGetsItsShare checks for 40 %, and 95 % of the rate.
			redistest.Measured(t, got.smaller() >= .10, "%+v", got)
		}
	}, func(v version) bool { return slices.Contains([]string{"3.15.5", "3.34.1", "3.52.0", "4.7.0"}, v.name) })
}
