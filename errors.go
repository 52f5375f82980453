// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// Test for these errors with [errors.Is]. They are wrapped with the name of the limiter and the numbers that matter. A
// rejection is not an error.
//
// Every method with a context may return the common errors: ErrInvalidArgument, ErrNameNotClusterSafe, ErrClosed,
// ErrUnavailable, ErrOverloaded, ErrDenied, others from Redis, which [errors.As] finds, and ctx.Err(), together with
// ErrUnavailable if Redis had not replied.
var (
	// ErrNotInitialized means that the limiter has no rate. Redisson's message is "RateLimiter is not initialized".
	ErrNotInitialized = permit.ErrNotInitialized

	// ErrPermitsExceedRate means that one request asked for more permits than the rate has. Redisson's message is
	// "Requested permits amount cannot exceed defined rate".
	ErrPermitsExceedRate = permit.ErrPermitsExceedRate

	// ErrInvalidArgument means that an argument or an option is out of range, or that the context, the Client or its
	// redis client is nil. Nothing was sent to Redis.
	ErrInvalidArgument = permit.ErrInvalidArgument

	// ErrNameNotClusterSafe means that the limiter's keys fall into different hash slots, so no Redis Cluster can hold
	// them. Only a Client of a cluster returns it.
	ErrNameNotClusterSafe = permit.ErrNameNotClusterSafe

	// ErrClosed means that the Client has been closed.
	ErrClosed = permit.ErrClosed

	// ErrUnavailable means that Redis could not be reached, did not reply, or refused to run anything, for instance
	// while it loads its data or as a read-only replica, in repeated attempts. The error wraps the cause, and its text
	// says what to check.
	//
	// The call was granted nothing. If Redis made a grant and its reply got lost, the permits are free again after one
	// interval at the latest. During an outage every method returns ErrUnavailable at once, except [Client.Ping] and
	// methods that wait; see [OutagePolicy].
	ErrUnavailable = permit.ErrUnavailable

	// ErrOverloaded means that this process could not send the call: the pool had no connection until PoolTimeout or
	// the end of the context, which [errors.Is] finds as redis.ErrPoolTimeout, or the call waited for a second behind
	// others, or there was no file descriptor left. It begins no outage, and no [OutagePolicy] grants the request. A
	// program that goes on without a limit while Redis is down should not do so for this error.
	ErrOverloaded = permit.ErrOverloaded

	// ErrMalformed means that Redis holds no valid rate under the limiter's name. The error of [RateLimiter.Rate] says
	// what is wrong, and [RateLimiter.SetRate] replaces it.
	ErrMalformed = permit.ErrMalformed

	// ErrConflict means that others changed the limiter's type, or its permits in use, during every attempt of the
	// call. It took nothing, and can be made again.
	ErrConflict = permit.ErrConflict

	// ErrDenied means that the ACL of Redis does not let this user run a command of the call, or use a key. It wraps
	// the error of Redis, and its text names what was denied. If that is a key, nothing was done; if it is a command in
	// a script, the script has run up to it. The command rrl doctor --app-user lists the rights that a user lacks.
	ErrDenied = permit.ErrDenied
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
