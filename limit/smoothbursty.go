// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"time"

	"github.com/goredisson/ratelimiter/limit/internal/calls"
)

// A SmoothBursty is Guava's RateLimiter.create(permitsPerSecond), also in a shared form. Permits that are not
// taken are stored, up to those of MaxBurst, and cost no time. A call passes at once unless the one before it
// still owes time; what it takes beyond the stored permits, however much that is, the next call waits for.
//
// Guava's acquire is [Wait], its tryAcquire is [Limiter.Allow], and its tryAcquire with a timeout is
// [WaitTimeout]. Tests compare both forms with the jars of Guava 23.2 and 33.8.0, call by call: they grant and
// reject the same and wait the same, to the microsecond. Guava's setRate has no counterpart.
//
// A local SmoothBursty begins with nothing stored, as Guava's does. A shared one begins full: in Redis a limiter
// that has never been used looks like one that has not been used for long.
//
// Above 100,000 permits a second it differs from Guava, which truncates each wait to whole microseconds and so
// would admit a tenth more at that rate, and everything at a million: the fraction of a microsecond is carried
// over to the next call.
//
// Bound: PermitsPerSecond × (window + MaxBurst) + n. Up to 100,000 permits a second Guava's truncation adds a
// little, as if a permit took 1 µs less.
//
// It does not promise a bound on the debt: one call may take as many permits as it likes. [Wait] reserves no more than a second
// ahead, so that callers who leave keep others waiting for no longer than that and the time of the permits of one of them.
//
// Source: https://guava.dev/releases/snapshot-jre/api/docs/com/google/common/util/concurrent/RateLimiter.html
// and the comments of
// https://github.com/google/guava/blob/master/guava/src/com/google/common/util/concurrent/SmoothRateLimiter.java.
type SmoothBursty struct {
	// PermitsPerSecond is at least one a year and at most 2^32-1.
	PermitsPerSecond float64
	// MaxBurst is for how long unused permits are stored. Guava's is one second.
	MaxBurst time.Duration
}

var smoothScript = calls.Load(scriptFiles, "smooth", 1, 10)

func (a SmoothBursty) guava() guava {
	stable := 1e6 / a.PermitsPerSecond
	// MaxBurst.Seconds() rounds twice: of 1.118s it is not the 1.118 that a Java program has.
	burst := float64(a.MaxBurst.Microseconds()) / 1e6
	most := float64(burst * a.PermitsPerSecond)
	return guava{stable: stable, most: most, coolDown: stable, threshold: most}
}

func (a SmoothBursty) bound(window time.Duration, n int64) int64 {
	g := a.guava()
	return g.bound(window.Microseconds(), n, g.most, 1)
}

func (a SmoothBursty) check() error { return checkGuava(a.PermitsPerSecond, "MaxBurst", a.MaxBurst) }

func (a SmoothBursty) model() calls.Model { return a.guava().model() }

// initial returns the state of a new limiter, which stores nothing, as in Guava.
func (a SmoothBursty) initial(now int64) calls.State {
	return &guavaState{guava: a.guava(), next: now, at: now}
}
