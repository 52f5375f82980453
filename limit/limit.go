package limit

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/goredisson/ratelimiter"
)

// A Limiter grants permits or refuses them, at once. It is safe for concurrent use.
type Limiter interface {
	// Allow takes n permits if they can be used now: all of them, or none. A refusal is no error and
	// spends nothing.
	//
	// Errors of this package's limiters: ratelimiter.ErrInvalidArgument for n < 1,
	// ratelimiter.ErrPermitsExceedRate for more than the limiter could ever grant in one call (both
	// before anything is sent), ctx.Err() as it is, and those of Redis: see [Shared].
	Allow(ctx context.Context, n int64) (Result, error)
	// Peek says what Allow would answer now, and spends nothing.
	Peek(ctx context.Context, n int64) (Result, error)
}

// A Reserver is a Limiter that can hand out permits ahead of their time.
type Reserver interface {
	Limiter
	// Reserve takes n permits if they can be used within atMost. When they are granted the caller
	// waits for Result.Wait and then goes on; permits that it then does not use are spent all the
	// same. The limiters that cannot hand out permits ahead of their time answer as Allow does.
	// Errors are those of Allow.
	Reserve(ctx context.Context, n int64, atMost time.Duration) (Result, error)
}

// A Result is the answer to one call. Its durations are whole microseconds, rounded up.
type Result struct {
	// Granted says whether the permits were taken; of a Peek, whether they would be.
	Granted bool
	// Remaining is how many permits one call could take right after this one.
	Remaining int64
	// Wait is, of a refusal, how long until the same call would be granted if nobody else takes any.
	// Of a grant it is 0, but for Reserve: how long until the permits may be used.
	Wait time.Duration
	// Reset is how long until the limiter is as if it had never been used, if nobody takes any.
	Reset time.Duration
}

// A Rate is a number of permits for each interval.
type Rate struct {
	// Permits is 1 to 2^32-1.
	Permits int64
	// Interval is a whole number of microseconds, at least one for each permit: no limiter here tells
	// apart what happens within one.
	Interval time.Duration
}

// String is the rate as in "10 per 1s".
func (r Rate) String() string { return fmt.Sprintf("%d per %v", r.Permits, r.Interval) }

// maxPermits is the most that one call can ask, as of a RRateLimiter.
const maxPermits = math.MaxUint32

// maxExact bounds every product in Go and in Lua, whose numbers are whole up to 2^53: the sum of two such
// is still exact.
const maxExact = 1 << 52

func (r Rate) check() error {
	if r.Permits < 1 || r.Permits > maxPermits {
		return invalid("%d permits are not in 1..%d", r.Permits, int64(maxPermits))
	}
	if r.Interval < time.Microsecond || r.Interval%time.Microsecond != 0 {
		return invalid("interval %v is not a positive number of microseconds", r.Interval)
	}
	if r.Permits > r.micros() {
		return invalid("%v is more than a permit a microsecond", r)
	}
	return checkProduct("rate", r.Permits, r.micros())
}

func (r Rate) micros() int64 { return r.Interval.Microseconds() }

// parts are the rate as a flow of whole parts in a microsecond, and what a permit costs in parts. What
// is counted in parts is exact: 3 permits a second flow as 3 parts, and a permit costs a million.
func (r Rate) parts() (flow, cost int64) {
	a, b := r.Permits, r.micros()
	for b != 0 {
		a, b = b, a%b
	}
	return r.Permits / a, r.micros() / a
}

// checkFlow checks a rate and the most permits of it that the state ever holds, in parts.
func (r Rate) checkFlow(what string, permits int64) error {
	if err := r.check(); err != nil {
		return err
	}
	if permits < 1 || permits > maxPermits {
		return invalid("%s of %d permits is not in 1..%d", what, permits, int64(maxPermits))
	}
	flow, cost := r.parts()
	return checkProduct(what, permits+(flow-1)/cost+1, cost)
}

func checkProduct(what string, a, b int64) error {
	if a > maxExact/b {
		return invalid("%s: %d × %d is more than 2^52, where exact counting ends; take a shorter interval or fewer permits",
			what, a, b)
	}
	return nil
}

// flowed is the most that a full bucket of that capacity and this rate gives in w µs: what it holds, and
// what flows in meanwhile.
func (r Rate) flowed(capacity, w int64) int64 {
	if w <= 0 {
		return 0
	}
	flow, cost := r.parts()
	whole := w / cost // w × flow may be more than an int64 holds
	return capacity + whole*flow + (w%cost*flow+cost-1)/cost - 1
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ratelimiter.ErrInvalidArgument, fmt.Sprintf(format, args...))
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
