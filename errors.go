// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// These errors are meant for callers to test for, with [errors.Is]. They come wrapped with the name of the
// limiter and the numbers that matter. A rejection is not an error. The error of a context is returned unchanged, or
// wrapped together with ErrUnavailable if the context was done before Redis had replied. Errors from Redis and from
// the connection are wrapped, too, and can be reached with [errors.As].
var (
	// ErrNotInitialized means that the limiter has no rate. Redisson's message is "RateLimiter is not
	// initialized".
	ErrNotInitialized = permit.ErrNotInitialized

	// ErrPermitsExceedRate means that a single request asked for more permits than the rate has, so that no
	// wait would be long enough. Redisson's message is "Requested permits amount cannot exceed defined rate".
	ErrPermitsExceedRate = permit.ErrPermitsExceedRate

	// ErrInvalidArgument means that an argument or an option is out of range, or that the context, the Client or its
	// redis client is nil. Nothing was sent to Redis.
	ErrInvalidArgument = permit.ErrInvalidArgument

	// ErrNameNotClusterSafe means that the limiter's keys fall into different hash slots, so that no Redis
	// Cluster can hold them. Only a Client of a cluster returns it.
	ErrNameNotClusterSafe = permit.ErrNameNotClusterSafe

	// ErrClosed means that the Client has been closed.
	ErrClosed = permit.ErrClosed

	// ErrUnavailable means that Redis could not be reached, did not reply, or refused to run anything, for
	// instance because it is loading its data, is out of memory, or is a read-only replica, and that repeated
	// attempts failed as well. It wraps the cause, and its text says what to check. Nothing is granted in this case;
	// if a grant was made whose reply got lost, its permits are free again after one interval at the latest. While
	// Redis is known to be unavailable, every method returns it at once, without a call, except for those that wait
	// and [Client.Ping]; about once a second one call is let through to find out whether Redis is back.
	ErrUnavailable = permit.ErrUnavailable

	// ErrMalformed means that what Redis holds under the limiter's name is not the rate of a limiter: the rate
	// or the interval is not a whole number from 1 to 2^53, the keep-alive time is a fraction or above 2^53, or the
	// type is unknown. [RateLimiter.Rate] tells which, and [RateLimiter.SetRate] replaces them.
	ErrMalformed = permit.ErrMalformed

	// ErrConflict means that others changed the limiter during every attempt of the call: its type, which was
	// another one each time, or the permits in use, which could not be counted. The call took nothing, and can be
	// made again. It is no outage.
	ErrConflict = permit.ErrConflict
)

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalidArgument, fmt.Sprintf(format, args...))
}

// millis returns d in milliseconds. It rejects durations that are not a whole number of milliseconds instead of
// rounding them: 1.5 ms silently turned into 1 ms would be a limit that nobody asked for.
func millis(what string, d time.Duration) (int64, error) {
	if d%time.Millisecond != 0 {
		return 0, invalid("%s %v is not a whole number of milliseconds", what, d)
	}
	return d.Milliseconds(), nil
}
