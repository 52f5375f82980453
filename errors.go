package ratelimiter

import (
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// The errors that callers decide by. They come wrapped with the limiter's name and the numbers;
// test for them with errors.Is. A refusal is not an error, and a context's error comes through as
// it is. Errors of Redis and of the connection are wrapped and can be reached with errors.As.
var (
	// ErrNotInitialized: the limiter has no rate. Redisson: "RateLimiter is not initialized".
	ErrNotInitialized = permit.ErrNotInitialized

	// ErrPermitsExceedRate: more permits were asked for in one request than the rate has, so that
	// no wait would be long enough. Redisson: "Requested permits amount cannot exceed defined rate".
	ErrPermitsExceedRate = permit.ErrPermitsExceedRate

	// ErrInvalidArgument: an argument or option is out of its range. Nothing was sent to Redis.
	ErrInvalidArgument = permit.ErrInvalidArgument

	// ErrNameNotClusterSafe: the limiter's keys fall into different hash slots, so that no Redis
	// Cluster can hold them. Only a client of a cluster answers it.
	ErrNameNotClusterSafe = permit.ErrNameNotClusterSafe

	// ErrClosed: the Client was closed.
	ErrClosed = permit.ErrClosed

	// ErrUnavailable: Redis could not be reached, did not answer, or refused to run anything (it loads
	// its data, is out of memory, is a read-only replica), also when asked again. The cause is wrapped.
	// Nothing is granted then; a grant whose answer was lost is back after one interval at the latest.
	ErrUnavailable = permit.ErrUnavailable

	// ErrMalformed: what Redis holds under the limiter's name is no rate of a limiter: a rate or an
	// interval that is no positive whole number, or an unknown type.
	ErrMalformed = permit.ErrMalformed
)

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalidArgument, fmt.Sprintf(format, args...))
}

// millis is d in ms. Finer durations are refused and never rounded: 1.5 ms silently turned into 1 ms
// would be a limit that nobody asked for.
func millis(what string, d time.Duration) (int64, error) {
	if d%time.Millisecond != 0 {
		return 0, invalid("%s %v is finer than a millisecond", what, d)
	}
	return d.Milliseconds(), nil
}
