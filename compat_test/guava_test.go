// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/limit"
)

const (
	// guavaRequests is the number of requests that a run compares, unless RATELIMITER_COMPAT_OPS is set.
	guavaRequests = 60_000
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
	began := time.Now()
	all, some := guavaSides{seed: seed.run}, guavaSides{seed: seed.run}
	for i := range (requests + guavaLength - 1) / guavaLength {
		if seed.world >= 0 && seed.world != i {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed.run, uint64(i)))
			p, answers, err := drawGuava(t.Context(), rng, i%2 == 0)
			require.NoError(t, err, "replay: RATELIMITER_COMPAT_SEED=%d:%d", seed.run, i)
			all.add(i, p, answers)
		})
		if i%guavaShared == 0 {
			some.add(i, all.plays[len(all.plays)-1], nil)
		}
	}
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		name := redistest.Key(t)
		for i, p := range some.plays {
			some.ours = append(some.ours, playShared(t, rdb, name, i, p))
		}
	}, func(o *redis.Options) { o.ConnMaxIdleTime = -1 })
	for _, j := range guavaJars(t) {
		answers := j.play(t, all.plays)
		all.agree(t, "local", j.version, answers)
		var those [][]guavaAnswer
		for i, number := range all.numbers {
			if number%guavaShared == 0 {
				those = append(those, answers[i])
			}
		}
		some.agree(t, "shared", j.version, those)
		if seed.world < 0 {
			all.met(t, answers)
		}
	}
	t.Logf("in %v", time.Since(began).Round(time.Millisecond))
}

// TestGuavaDefaults checks that the numbers of the comparison are those with which RateLimiter.create makes a
// limiter.
func TestGuavaDefaults(t *testing.T) {
	t.Parallel()
	for _, j := range guavaJars(t) {
		require.Equal(t, []string{"1.0 3.0"}, j.say(t, "defaults\n"), "Guava %s: a burst of a second, a cold factor of 3", j.version)
	}
}

// guavaSides holds plays together with our replies.
type guavaSides struct {
	seed    uint64
	numbers []int
	plays   []guavaPlay
	ours    [][]guavaAnswer
}

func (s *guavaSides) add(number int, p guavaPlay, ours []guavaAnswer) {
	s.numbers, s.plays = append(s.numbers, number), append(s.plays, p)
	if ours != nil {
		s.ours = append(s.ours, ours)
	}
}

// agree fails at any difference, and reports the largest one. A play counts up to its first difference, because all
// that comes after follows from it.
func (s *guavaSides) agree(t *testing.T, what, version string, theirs [][]guavaAnswer) {
	t.Helper()
	requests, differ, largest, first := 0, 0, time.Duration(0), ""
	for i, p := range s.plays {
		for k, ask := range p.asks {
			requests++
			ours, guavas := s.ours[i][k], theirs[i][k]
			if ours == guavas {
				continue
			}
			differ++
			if ours.granted == guavas.granted {
				largest = max(largest, (ours.wait - guavas.wait).Abs())
			}
			if first == "" {
				first = fmt.Sprintf("%#v, request %d, %v: Guava %v; ours %v; replay: RATELIMITER_COMPAT_SEED=%d:%d",
					p.algorithm, k, ask, guavas, ours, s.seed, s.numbers[i])
			}
			break
		}
	}
	t.Logf("%s beside Guava %s: %d requests to %d limiters, %d of which differ, by %d µs at most",
		what, version, requests, len(s.plays), differ, largest.Microseconds())
	if differ > 0 {
		t.Errorf("%s beside Guava %s: %s", what, version, first)
	}
}

// met checks that the plays have met the cases in which replies change.
func (s *guavaSides) met(t *testing.T, answers [][]guavaAnswer) {
	t.Helper()
	var rejected, early, within, waits int
	for i, p := range s.plays {
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

// playShared plays to a new limiter, in a bubble.
func playShared(t *testing.T, rdb *redis.Client, name string, key int, p guavaPlay) []guavaAnswer {
	t.Helper()
	l := redistest.Must(limit.NewShared(rdb, name, p.algorithm, limit.WithClientClock()))(t)
	answers := redistest.Must(p.ours(t.Context(), l.For(strconv.Itoa(key))))(t)
	return answers
}
