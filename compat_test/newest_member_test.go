// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/test/grantlog"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
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
	const rate, interval, lasts = 10, 40 * time.Millisecond, 8 * time.Second
	v := allVersions[0]
	require.Equal(t, "3.13.4", v.name)
	addr := redistest.Client(t).Options().Addr
	seen, other := startPeer(t, v, addr), startPeer(t, v, addr)
	java := func(name, mode string) int64 {
		hammer := other.begin("hammer", name, 2, lasts, rate, mode, 1, 0)
		time.Sleep(lasts)
		_, _ = hammer.cancel() // the threads that wait might go on for long
		return int64(len(ended(t, hammer).Grants))
	}
	ours := func(name, mode string) int64 {
		l := newGoSide(t, redistest.Client(t), v, seen.id).client.RateLimiter(name)
		ctx, cancel := context.WithTimeout(t.Context(), lasts)
		defer cancel()
		var grants atomic.Int64
		waits(2, func() {
			for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
				granted := mode == "block" && l.Acquire(ctx, rate) == nil
				if mode == "try" {
					granted, _ = l.TryAcquire(ctx, rate, 0)
				}
				if granted {
					grants.Add(1)
				}
			}
		})()
		return grants.Load()
	}
	type contest struct{ errors, grants int64 }
	beside := func(play func(name, mode string) int64, mode string) (c contest) {
		name := redistest.Key(t)
		_, err := seen.call("trySetRate", name, overall, rate, interval)
		assert.NoError(t, err)
		hammer := seen.begin("hammer", name, 1, lasts, 1, "try", 1, 0)
		c.grants = play(name, mode)
		for text, n := range ended(t, hammer).Errors {
			assert.Contains(t, text, "unpack")
			c.errors += int64(n)
		}
		return c
	}
	var running sync.WaitGroup
	var got [2][2]contest
	modes := []string{"try", "block"}
	for i, mode := range modes {
		for k, play := range []func(name, mode string) int64{java, ours} {
			running.Go(func() { got[i][k] = beside(play, mode) })
		}
	}
	running.Wait()
	for i, mode := range modes {
		t.Logf("%s: beside Java %+v, beside us %+v", mode, got[i][0], got[i][1])
		// A few of each are chance: there are 2 to 30 grants of Java's, with 0 to 10 exceptions.
		perGrant := float64(got[i][0].errors+5) / float64(max(1, got[i][0].grants))
		redistest.Measured(t, float64(got[i][1].errors) <= 3*perGrant*float64(got[i][1].grants)+10, "%s: %+v", mode, got[i])
	}
}

// ended returns what the threads of a hammer were told.
func ended(t *testing.T, hammer *pending) grantlog.Told {
	told, err := hammer.told(callLimit)
	assert.NoError(t, err)
	assert.Empty(t, told.Unavailable)
	return told
}
