// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/wire"
	"github.com/stretchr/testify/require"
)

// threads runs n callers for a while: goroutines, Java threads, or half of each. Each goroutine calls f until the
// time is over.
func (s *stage) threads(n int, during time.Duration, mode string, f func()) {
	s.Helper()
	goes, javas := n, 0
	if s.java != nil {
		javas = n
		if goes = 0; s.limiter != nil {
			goes, javas = n/2, n/2
		}
	}
	var running sync.WaitGroup
	defer running.Wait()
	end := time.Now().Add(s.real(during))
	for range goes {
		running.Go(func() {
			for time.Now().Before(end) {
				f()
			}
		})
	}
	if javas > 0 {
		running.Go(func() {
			l := redistest.Must(s.java.begin("hammer", s.name, javas, s.real(during), "1", mode, 5).load(callLimit))(s)
			require.Empty(s, l.Errors)
			require.NotEmpty(s, l.Grants)
		})
	}
}

// suiteRateValue checks that 200 threads that acquire without end keep as many permits in use as the rate has. The
// original looks at the set once a second, 20 times, and expects to find 10,000 members 16 times. One of our members
// may stand for the permits of several threads.
func suiteRateValue(s *stage) {
	rate, looks, step, want := 10_000, 20, time.Second, 16
	if s.scale > 0 {
		rate, want = 1000, 4 // two cores for a JVM, 200 threads, Redis and everything else
	}
	s.play(fmt.Sprintf("setRate OVERALL %d 10s", rate))
	full := 0
	var looking sync.WaitGroup
	looking.Go(func() {
		for range looks {
			if s.inUse() == int64(rate) {
				full++
			}
			s.sleep(step)
		}
	})
	s.threads(200, time.Duration(looks)*step, "block", func() {
		if err := s.limiter.Acquire(s.Context(), 1); err != nil {
			s.Error(err)
		}
	})
	looking.Wait()
	redistest.Measured(s, full >= want, "in %d of %d looks all %d permits were in use", full, looks, rate)
}

// inUse adds up the permits of the members in the OVERALL set, without the tripwire of waiting callers.
func (s *stage) inUse() (sum int64) {
	for _, z := range s.rdb.ZRangeWithScores(s.Context(), "{"+s.name+"}:permits", 0, -1).Val() {
		if z.Score == 0 {
			continue
		}
		m, err := wire.ParseMember([]byte(z.Member.(string)))
		if err != nil {
			s.Error(err)
		}
		sum += int64(m.Permits)
	}
	return sum
}

// suiteConcurrency runs eight threads that try and sleep at random. The original expects 940 ms between every tenth
// grant and the next; here no window may hold more than the rate.
func suiteConcurrency(s *stage) {
	s.play("trySetRate OVERALL 10 1s = true\n trySetRate OVERALL 20 1s = false")
	s.inWindows(10, "try", func(granted func()) {
		ok, err := s.limiter.TryAcquire(s.Context(), 1, 0)
		if err != nil {
			s.Error(err)
		}
		if ok {
			granted()
		}
		time.Sleep(rand.N(10 * time.Millisecond))
	})
}

// suiteConcurrency2 runs eight threads that acquire.
func suiteConcurrency2(s *stage) {
	s.play("trySetRate OVERALL 18 1s = true")
	s.inWindows(18, "block", func(granted func()) {
		if err := s.limiter.Acquire(s.Context(), 1); err != nil {
			s.Error(err)
		}
		granted()
	})
}

// inWindows runs eight threads on a limiter of rate permits a second. It checks that no window holds more, and that
// hardly a permit is left unused.
func (s *stage) inWindows(rate int64, mode string, f func(granted func())) {
	s.Helper()
	during := 20 * time.Second
	if s.scale > 0 {
		during = 10 * time.Second
	}
	var mu sync.Mutex
	var grants []entry
	count := func() {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		grants = append(grants, entry{score: float64(now.UnixMilli()), at: now, permits: 1})
	}
	var seen *ledger
	if s.scale > 0 {
		seen = startLedger(s, s.rdb)
	}
	s.threads(8, during, mode, func() { f(count) })
	if seen == nil {
		require.Equal(s, rate, fullest(grants, time.Second, byScore)) // in whole ms, as Redisson counts
	} else {
		grants = seen.of(s.name)
		requireWindows(s, grants, rate, s.real(time.Second))
	}
	least := rate * int64(during/time.Second) * 8 / 10
	if s.scale > 0 {
		least /= 2 // the machine decides how much of it real threads use
	}
	redistest.Measured(s, permitsIn(grants) >= least, "%d permits, less than %d", permitsIn(grants), least)
}
