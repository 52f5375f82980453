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

// A Rate is a number of permits for each interval. The limiters count it exactly. Only where the product of
// the permits that a bucket or a queue holds and the microseconds of a permit is above 2^52 is the rate,
// after it has been reduced, the next lower one that can be counted: by less than a billionth of it. For
// capacities of up to four million permits there is always one; a larger capacity without one is refused.
type Rate struct {
	// Permits is 1 to 2^32-1.
	Permits int64
	// Interval is a whole number of microseconds, at most 50 years. No limiter here tells apart what
	// happens within a microsecond, so that a rate of more than a permit each grants several at once.
	Interval time.Duration
}

// String is the rate as in "10 per 1s".
func (r Rate) String() string { return fmt.Sprintf("%d per %v", r.Permits, r.Interval) }

// maxPermits is the most that one call can ask, as of a RRateLimiter.
const maxPermits = math.MaxUint32

// maxExact bounds every number in Go and in Lua, whose numbers are whole up to 2^53: the sum of two such
// is still exact.
const maxExact = 1 << 52

// longestInterval keeps instants two intervals ahead exact in Lua.
const longestInterval = 50 * longest

func (r Rate) check() error {
	if r.Permits < 1 || r.Permits > maxPermits {
		return invalid("%d permits are not in 1..%d", r.Permits, int64(maxPermits))
	}
	if r.Interval < time.Microsecond || r.Interval%time.Microsecond != 0 {
		return invalid("interval %v is not a positive number of microseconds", r.Interval)
	}
	if r.Interval > longestInterval {
		return invalid("interval %v is more than 50 years", r.Interval)
	}
	return nil
}

func (r Rate) micros() int64 { return r.Interval.Microseconds() }

// checkPace checks a rate and the most permits of it that the state ever holds.
func (r Rate) checkPace(what string, permits int64) error {
	if err := r.check(); err != nil {
		return err
	}
	if permits < 1 || permits > maxPermits {
		return invalid("%s of %d permits is not in 1..%d", what, permits, int64(maxPermits))
	}
	if _, ok := r.pace(permits); !ok {
		return invalid("%s of %d permits is too large to be counted exactly at %v; take a smaller one", what, permits, r)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ratelimiter.ErrInvalidArgument, fmt.Sprintf(format, args...))
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
