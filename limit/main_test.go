// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func per(permits int64, interval time.Duration) ratelimiter.Rate {
	return ratelimiter.Rate{Permits: permits, Interval: interval}
}

// every returns each algorithm, with parameters that do not divide.
func every() map[string]Algorithm {
	return map[string]Algorithm{
		"fixed window":      FixedWindow{per(7, time.Second)},
		"sliding log":       SlidingLog{per(7, time.Second)},
		"sliding counter":   SlidingCounter{per(7, time.Second)},
		"calendar quota":    CalendarQuota{Permits: 11, Per: Day, Location: time.UTC},
		"interval bucket":   IntervalBucket{per(3, time.Second), 8},
		"token bucket":      TokenBucket{per(3, time.Second), 8},
		"debt bucket":       DebtBucket{per(3, time.Second), 4, 5},
		"gcra":              GCRA{per(3, time.Second), 8},
		"leaky queue":       LeakyQueue{per(3, time.Second), 8},
		"smooth bursty":     SmoothBursty{3, 2 * time.Second},
		"smooth warming up": SmoothWarmingUp{PermitsPerSecond: 3, Warmup: 4 * time.Second},
	}
}

// WithClock makes the limiter use the clock now.
func WithClock(now func() time.Time) Option { return func(c *config) { c.Clock = now } }

// EveryAlgorithm is each algorithm, with parameters that do not divide.
var EveryAlgorithm = every

func signatureOf(a Algorithm) string { return signature(newSetting(a)) }

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
