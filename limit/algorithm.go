package limit

import (
	"fmt"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/dispatch"
)

// An Algorithm is one of this package's ways to limit, with its numbers: a [FixedWindow], [SlidingLog],
// [SlidingCounter], [IntervalBucket], [TokenBucket], [DebtBucket], [GCRA], [LeakyQueue], [SmoothBursty]
// or [SmoothWarmingUp]. [NewLocal] and [NewShared] make a limiter of it.
type Algorithm interface {
	// Bound is the most permits that calls of at most n each are granted in any window of that length,
	// a whole number of microseconds: from some instant on, and up to but without the instant a window
	// later. Permits that are reserved count at the instant from which they may be used.
	Bound(window time.Duration, n int64) int64
	// Largest is the most permits that one call can be granted.
	Largest() int64

	// check says what is wrong with the numbers.
	check() error
	// script decides for a shared limiter, with these arguments behind those of every script.
	script() *dispatch.Script
	numbers() []any
	// reserves says whether permits can be had ahead of their time.
	reserves() bool
	// idle is the state of a limiter that nobody has used for long, or ever.
	idle() state
}

// A state is what a limiter remembers, and the arithmetic on it: the one implementation in Go, as each
// script is the one in Lua. TestLocalAndSharedAgree holds the two together.
type state interface {
	// take decides a request. When it is granted and spend is set the permits are gone. Instants and
	// durations are in µs.
	take(q request) decision
}

type request struct {
	now, n int64
	atMost int64 // how long the caller would wait for permits that are granted ahead of their time
	spend  bool
}

type decision struct {
	granted                bool
	remaining, wait, reset int64
}

func (d decision) result() Result {
	return Result{Granted: d.granted, Remaining: d.remaining, Wait: micros(d.wait), Reset: micros(d.reset)}
}

// checkPermits refuses what no wait could grant.
func checkPermits(a Algorithm, n int64) error {
	if n < 1 || n > maxPermits {
		return invalid("%d permits are not in 1..%d", n, int64(maxPermits))
	}
	if most := a.Largest(); n > most {
		return fmt.Errorf("%w: %d permits asked, and a call can get %d", ratelimiter.ErrPermitsExceedRate, n, most)
	}
	return nil
}

// signature names the algorithm and its numbers: limiters of other numbers have other keys.
func signature(a Algorithm) string {
	var b strings.Builder
	b.WriteString(a.script().Name)
	for _, v := range a.numbers() {
		fmt.Fprintf(&b, ":%v", v)
	}
	return b.String()
}
