// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit"
)

const (
	// guavaRequests is the number of requests that a run compares, unless RATELIMITER_COMPAT_OPS is set.
	guavaRequests = 24_000
	// guavaShared is such that one play in guavaShared is also played to a shared limiter. It is even, so that these
	// are plays that begin with all that can be stored.
	guavaShared = 6
)

// TestDifferentialGuava plays random requests to Guava's real RateLimiter and to our local and shared limiters, and
// compares the replies: the same grants and rejections, and the same waits, with no tolerance. Guava's setRate is left
// out, because with us a limiter with other numbers is another limiter.
func TestDifferentialGuava(t *testing.T) {
	t.Parallel()
	seed, requests := newTwinSeed(t), comparedOperations(t, guavaRequests)
	t.Logf("RATELIMITER_COMPAT_SEED=%d", seed.run)
	var plays []guavaPlay
	for i := range (requests + guavaLength - 1) / guavaLength {
		if seed.world >= 0 && seed.world != i {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			p, err := drawGuava(t.Context(), rand.New(rand.NewPCG(seed.run, uint64(i))), i%2 == 0)
			p.both, p.replay = i%guavaShared == 0, fmt.Sprintf("RATELIMITER_COMPAT_SEED=%d:%d", seed.run, i)
			require.NoError(t, err, p.replay)
			plays = append(plays, p)
		})
	}
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		name := redistest.Key(t)
		for i, p := range plays {
			if p.both {
				l := redistest.Must(limit.NewShared(rdb, name, p.algorithm, limit.WithClientClock()))(t)
				plays[i].shared = redistest.Must(p.ours(t.Context(), l.For(strconv.Itoa(i))))(t)
			}
		}
	}, func(o *redis.Options) { o.ConnMaxIdleTime = -1 })
	for _, j := range guavaJars(t) {
		answers := j.play(t, plays)
		agree(t, "local beside Guava "+j.version, plays, answers, func(p guavaPlay) []guavaAnswer { return p.local })
		agree(t, "shared beside Guava "+j.version, plays, answers, func(p guavaPlay) []guavaAnswer { return p.shared })
		if seed.world < 0 {
			requireMet(t, plays, answers)
		}
	}
}

// TestGuavaDefaults checks that the numbers of the comparison are those with which RateLimiter.create makes a
// limiter.
func TestGuavaDefaults(t *testing.T) {
	t.Parallel()
	for _, j := range guavaJars(t) {
		require.Equal(t, []string{"1.0 3.0"}, j.say(t, "defaults\n"), "Guava %s: a burst of a second, a cold factor of 3", j.version)
	}
}

// agree fails at any difference. A play counts up to its first difference, because all that comes after follows from it.
func agree(t *testing.T, what string, plays []guavaPlay, theirs [][]guavaAnswer, side func(guavaPlay) []guavaAnswer) {
	t.Helper()
	requests, differ, first := 0, 0, ""
	for i, p := range plays {
		for k, ours := range side(p) {
			requests++
			if guavas := theirs[i][k]; ours != guavas {
				differ++
				first = cmp.Or(first, fmt.Sprintf("%#v, request %d, %v: Guava %v; ours %v; replay: %s", p.algorithm, k, p.asks[k], guavas, ours, p.replay))
				break
			}
		}
	}
	t.Logf("%s: %d requests, of which %d differ", what, requests, differ)
	require.Zero(t, differ, "%s: %s", what, first)
}

// requireMet checks that the plays have met the cases in which replies change.
func requireMet(t *testing.T, plays []guavaPlay, answers [][]guavaAnswer) {
	t.Helper()
	var rejected, early, within, waits int
	for i, p := range plays {
		for k, ask := range p.asks {
			a := answers[i][k]
			try := ask.call == guavaTryAcquire || ask.call == guavaTryReserve
			switch {
			case !a.granted:
				rejected++
				if a.wait == time.Microsecond {
					early++
				}
			case a.wait > 0:
				waits++
				if try && a.wait == ask.timeout {
					within++
				}
			}
		}
	}
	t.Logf("%d rejected, %d of them short of 1 µs; %d waited, %d of them as long as they would", rejected, early, waits, within)
	for _, n := range []int{rejected, early, waits, within} {
		require.NotZero(t, n)
	}
}
