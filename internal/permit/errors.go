package permit

import (
	"errors"
	"fmt"

	"github.com/goredisson/ratelimiter/internal/retry"
)

// The errors that callers decide by; package ratelimiter documents them.
var (
	ErrNotInitialized     = errors.New("ratelimiter: not initialized")
	ErrPermitsExceedRate  = errors.New("ratelimiter: permits exceed rate")
	ErrInvalidArgument    = errors.New("ratelimiter: invalid argument")
	ErrNameNotClusterSafe = errors.New("ratelimiter: name is not usable in a cluster")
	ErrClosed             = errors.New("ratelimiter: client is closed")
	ErrUnavailable        = errors.New("ratelimiter: redis is unavailable")
	ErrMalformed          = errors.New("ratelimiter: malformed limiter")
)

// Exceeds returns the error of a request for more permits than the limiter's rate has.
func Exceeds(limiter string, permits, rate int64) error {
	return fmt.Errorf("%w: %d permits asked of %q, whose rate is %d", ErrPermitsExceedRate, permits, limiter, rate)
}

// Unavailable returns the error of an operation that Redis did not carry out.
func Unavailable(op, limiter string, err error) error {
	return fmt.Errorf("%w: %s of %q: %w", ErrUnavailable, op, limiter, err)
}

// Failed returns what callers get when an operation could not be carried out: ErrUnavailable unless it ran and
// failed. An error that is no *[retry.Error] is a reply's, or says why nothing was sent, and comes through as it is.
func Failed(op, limiter string, err error) error {
	e, ok := err.(*retry.Error)
	switch {
	case !ok:
		return err
	case e.Outcome == retry.Executed:
		return fmt.Errorf("ratelimiter: %s of %q: %w", op, limiter, e.Err)
	}
	return Unavailable(op, limiter, e.Err)
}

// MaxTypeChanges is how often a call follows a type that changes under it.
const MaxTypeChanges = 3

// TypeKeepsChanging returns the error of an operation that has followed the type in vain.
func TypeKeepsChanging(op, limiter string) error {
	return fmt.Errorf("ratelimiter: %s of %q: its type changed %d times under the call", op, limiter, MaxTypeChanges)
}

// A WrongTypeError says that the keys of a call were not those of the limiter's type. Callers never see it.
type WrongTypeError struct{ Type Type }

// Error implements error.
func (e *WrongTypeError) Error() string { return "ratelimiter: the limiter is " + e.Type.String() }
