package limit

import (
	_ "embed"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
)

// A SmoothBursty is Guava's RateLimiter.create(permitsPerSecond), shared too: permits that nobody takes
// are stored, MaxBurst worth of them, and cost no time; a call passes at once unless the one before
// still owes time, and what it takes beyond the stored permits, however much, the next one waits for.
//
// Guava's acquire is [Wait], its tryAcquire [Limiter.Allow], its tryAcquire with a timeout [WaitTimeout].
// They are compared request by request with the jars of Guava 23.2 and 33.8.0, local and shared: the same
// grants and refusals, and the same waits, to the microsecond. Guava's setRate has no counterpart.
//
// As Guava's, a local one begins with nothing stored. A shared one begins with all: whether nobody has
// used it yet, or nobody for long, is the same in Redis.
//
// Bound: PermitsPerSecond × (window + MaxBurst) + n, and a little more by Guava's truncation of each
// wait to whole microseconds: as if a permit took 1 µs less.
//
// It does not promise a bound on the debt: one call may take as many permits as it likes.
//
// Source: https://guava.dev/releases/snapshot-jre/api/docs/com/google/common/util/concurrent/RateLimiter.html
// and the comments of
// https://github.com/google/guava/blob/master/guava/src/com/google/common/util/concurrent/SmoothRateLimiter.java.
type SmoothBursty struct {
	// PermitsPerSecond is at most 100,000 and at least one a year.
	PermitsPerSecond float64
	// MaxBurst is how long a flow is stored at most. Guava's is one second.
	MaxBurst time.Duration
}

//go:embed scripts/smooth_bursty.lua
var smoothBurstySrc string

var smoothBurstyScript = dispatch.New("smooth_bursty", smoothBurstySrc, 2, 7)

func (a SmoothBursty) guava() guava {
	stable := 1e6 / a.PermitsPerSecond
	// MaxBurst.Seconds() rounds twice: of 1.118s it is not the 1.118 that a Java program has.
	burst := float64(a.MaxBurst.Microseconds()) / 1e6
	return guava{stable: stable, most: float64(burst * a.PermitsPerSecond), coolDown: stable}
}

// Bound implements [Algorithm].
func (a SmoothBursty) Bound(window time.Duration, n int64) int64 {
	g := a.guava()
	return g.bound(window.Microseconds(), n, g.most, 1)
}

// Largest implements [Algorithm].
func (a SmoothBursty) Largest() int64 { return a.guava().largest() }

func (a SmoothBursty) check() error             { return checkGuava(a.PermitsPerSecond, "burst", a.MaxBurst) }
func (a SmoothBursty) script() *dispatch.Script { return smoothBurstyScript }
func (a SmoothBursty) numbers() []any {
	g := a.guava()
	return []any{g.stable, g.most}
}
func (a SmoothBursty) reserves() bool { return true }
func (a SmoothBursty) idle() state    { return a.guava().idle() }

// made is a limiter at the instant of its making, as Guava's is.
func (a SmoothBursty) made(now int64) state {
	return &guavaState{guava: a.guava(), next: now, at: now}
}
