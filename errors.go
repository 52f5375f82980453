// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// Test for these errors with [errors.Is]. They are wrapped with the name of the limiter and the numbers that matter.
// A rejection is not an error. The error of a context is returned unchanged, or together with ErrUnavailable if the
// context was done before Redis had replied. Errors from Redis and from the connection are wrapped as well;
// [errors.As] finds them.
var (
	// ErrNotInitialized means that the limiter has no rate. Redisson's message is "RateLimiter is not
	// initialized".
	ErrNotInitialized = permit.ErrNotInitialized

	// ErrPermitsExceedRate means that one request asked for more permits than the rate has, so no wait would be long
	// enough. Redisson's message is "Requested permits amount cannot exceed defined rate".
	ErrPermitsExceedRate = permit.ErrPermitsExceedRate

	// ErrInvalidArgument means that an argument or an option is out of range, or that the context, the Client or its
	// redis client is nil. Nothing was sent to Redis.
	ErrInvalidArgument = permit.ErrInvalidArgument

	// ErrNameNotClusterSafe means that the limiter's keys fall into different hash slots, so no Redis Cluster can hold
	// them. Only a Client of a cluster returns it.
	ErrNameNotClusterSafe = permit.ErrNameNotClusterSafe

	// ErrClosed means that the Client has been closed.
	ErrClosed = permit.ErrClosed

	// ErrUnavailable means that Redis could not be reached, did not reply, or refused to run anything, and that
	// repeated attempts failed as well. Redis refuses, for instance, while it loads its data, when it is out of
	// memory, or as a read-only replica. The error wraps the cause, and its text says what to check.
	//
	// The call was granted nothing. If Redis made a grant and its reply got lost, the permits are free again after one
	// interval at the latest. While Redis is known to be unavailable, every method returns ErrUnavailable at once,
	// without a call, except [Client.Ping] and methods that wait. About once a second the Client asks Redis by itself
	// whether it is back. [OutagePolicy] says when an outage begins and ends.
	ErrUnavailable = permit.ErrUnavailable

	// ErrOverloaded means that this process did not send the call to Redis, because it has too much else in flight. In
	// several attempts it met one of three obstacles. All connections of the redis client's pool were in use until
	// PoolTimeout or the end of the context. Or the call waited for a second behind other calls of this process. Or
	// the process had no file descriptor left for a connection. The text says which, and how large the pool is.
	// [errors.Is] finds redis.ErrPoolTimeout if that was the cause.
	//
	// Redis is not to blame, so this is not ErrUnavailable: it begins no outage, and no [OutagePolicy] grants the
	// request. Code of yours that goes on without a limit while Redis is down should not do so for this error.
	ErrOverloaded = permit.ErrOverloaded

	// ErrMalformed means that Redis holds no valid rate under the limiter's name. The rate or the interval is not a
	// whole number from 1 to 2^53, or the keep-alive time is a fraction or above 2^53, or the type is unknown. The
	// error of [RateLimiter.Rate] says which, and [RateLimiter.SetRate] replaces them.
	ErrMalformed = permit.ErrMalformed

	// ErrConflict means that others changed the limiter during every attempt of the call. Either its type was another
	// one each time, or its permits in use changed faster than they could be counted. The call took nothing, and can
	// be made again. It is not an outage.
	ErrConflict = permit.ErrConflict

	// ErrDenied means that the ACL of Redis does not let the user of the connection run a command of the call, or use
	// one of the limiter's keys. It wraps the error of Redis, and its text names the script or the command with its
	// keys. If a key is denied, nothing was done; if a command in a script is denied, the script has run up to that
	// command. The command rrl doctor --app-user lists the rights that a user lacks.
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
