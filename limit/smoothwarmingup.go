// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"time"

	"github.com/goredisson/ratelimiter/limit/internal/calls"
)

// A SmoothWarmingUp is Guava's RateLimiter.create(permitsPerSecond, warmupPeriod), also in a shared form. It is a
// [SmoothBursty] whose stored permits take more time than fresh ones, so that what has not been used for a
// while is used slowly at first. When it is cold a permit takes ColdFactor times as long, and under full demand
// it comes down to the rate within Warmup. It begins cold.
//
// It is compared with Guava as a SmoothBursty is, with the same outcome. Guava 23.1 and older truncate two of
// the numbers together, and can be a microsecond later with each call.
//
// Bound: PermitsPerSecond × window + n. Up to 100,000 permits a second Guava's truncation of waits to whole
// microseconds, twice a call, adds a little, as if a permit took 2 µs less; above that it carries the fraction
// over, as a SmoothBursty does.
//
// It does not promise the rate to a caller that asks without a pause before it is warm, nor a bound on the debt
// of one call. [Wait] reserves as for a SmoothBursty.
//
// Source: as for [SmoothBursty].
type SmoothWarmingUp struct {
	// PermitsPerSecond is at least one a year and at most 2^32-1.
	PermitsPerSecond float64
	// Warmup is Guava's warmupPeriod.
	Warmup time.Duration
	// ColdFactor is more than 1 and at most 1,000. 0 stands for 3, which is Guava's.
	ColdFactor float64
}

func (a SmoothWarmingUp) guava() guava {
	factor := a.ColdFactor
	if factor == 0 {
		factor = 3
	}
	warmup := float64(a.Warmup.Microseconds())
	stable := 1e6 / a.PermitsPerSecond
	cold := float64(stable * factor)
	threshold := float64(0.5*warmup) / stable
	most := threshold + float64(2*warmup)/(stable+cold)
	return guava{stable: stable, most: most, coolDown: warmup / most, threshold: threshold,
		below: stable, slope: (cold - stable) / (most - threshold)}
}

func (a SmoothWarmingUp) bound(window time.Duration, n int64) int64 {
	return a.guava().bound(window.Microseconds(), n, 0, 2)
}

func (a SmoothWarmingUp) check() error {
	if a.ColdFactor != 0 && !(a.ColdFactor > 1 && a.ColdFactor <= 1000) {
		return calls.Invalid("ColdFactor %v is not more than 1 and at most 1000", a.ColdFactor)
	}
	return checkGuava(a.PermitsPerSecond, "Warmup", a.Warmup)
}

func (a SmoothWarmingUp) model() calls.Model { return a.guava().model() }
