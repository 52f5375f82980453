// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/redistest"
)

// TestNewestMemberAndTheOldest measures how often a call of 3.13.4 throws because every grant in the set is newer than the
// clock reading that it brings: between the reading and its turn in Redis somebody else has been granted the whole rate.
// Its script looks for a member no later than that reading and unpacks what it has not found. Two JVMs do that to each
// other. Callers of ours who take the whole rate, at once or ahead of its return, must not do it much more often for
// each of their grants.
//
// Each of the four has a limiter of its own, beside one thread of the same JVM, and all run at the same time, so that
// the machine treats them alike.
func TestNewestMemberAndTheOldest(t *testing.T) {
	const (
		rate     = 10
		interval = 40 * time.Millisecond
		lasts    = 8 * time.Second
	)
	rdb, v := redistest.Client(t), allVersions[0]
	require.Equal(t, "3.13.4", v.name)
	seen, other := startPeer(t, v, rdb.Options().Addr), startPeer(t, v, rdb.Options().Addr)
	type contest struct {
		calls, errors, grants int64 // calls and exceptions of the thread, and grants of the whole rate beside it
	}
	var running sync.WaitGroup
	beside := func(play func(name string) (grants int64)) *contest {
		c, name := &contest{}, redistest.Key(t)
		require.True(t, seen.truth(t, "trySetRate", name, overall, rate, interval))
		running.Go(func() {
			hammer := seen.begin("hammer", name, 1, lasts, 1, "try", 1, 0)
			c.grants = play(name)
			l := ended(t, hammer)
			for text, n := range l.Errors {
				if c.errors += n; !strings.Contains(text, "unpack") {
					t.Error(text)
				}
			}
			c.calls = int64(len(l.Grants)) + l.Rejected + c.errors
		})
		return c
	}
	java := func(mode string) *contest {
		return beside(func(name string) int64 {
			hammer := other.begin("hammer", name, 2, lasts, rate, mode, 1, 0)
			time.Sleep(lasts)
			_, _ = hammer.cancel() // the threads that wait might go on for long
			return int64(len(ended(t, hammer).Grants))
		})
	}
	ours := func(ask func(ctx context.Context, l *ratelimiter.RateLimiter) bool) *contest {
		return beside(func(name string) int64 {
			l := newGoSide(t, rdb, v, seen.id).client.RateLimiter(name)
			ctx, cancel := context.WithTimeout(t.Context(), lasts)
			defer cancel()
			var grants atomic.Int64
			var callers sync.WaitGroup
			for range 2 {
				callers.Go(func() {
					for ctx.Err() == nil {
						if ask(ctx, l) {
							grants.Add(1)
						} else {
							time.Sleep(time.Millisecond)
						}
					}
				})
			}
			callers.Wait()
			return grants.Load()
		})
	}
	javaTries, javaWaits := java("try"), java("block")
	weTry := ours(func(ctx context.Context, l *ratelimiter.RateLimiter) bool {
		r, err := l.Allow(ctx, rate)
		return err == nil && r.Granted
	})
	weWait := ours(func(ctx context.Context, l *ratelimiter.RateLimiter) bool { return l.Acquire(ctx, rate) == nil })
	running.Wait()
	for _, c := range []struct {
		name       string
		java, ours *contest
	}{{"those who try", javaTries, weTry}, {"those who wait", javaWaits, weWait}} {
		t.Logf("%s: beside Java %+v, beside us %+v", c.name, *c.java, *c.ours)
		// A few of each are chance: there are 2 to 30 grants of Java's, with 0 to 10 exceptions.
		perGrant := float64(c.java.errors+5) / float64(max(1, c.java.grants))
		redistest.Measured(t, float64(c.ours.errors) <= 3*perGrant*float64(c.ours.grants)+10, "%s: beside Java %+v, beside us %+v", c.name, *c.java, *c.ours)
	}
}

// ended returns the load that a hammer replies.
func ended(t *testing.T, hammer *pending) load {
	l, err := hammer.load(callLimit)
	if err != nil {
		t.Error(err)
	}
	return l
}
