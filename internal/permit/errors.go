// SPDX-License-Identifier: Apache-2.0

package permit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter/internal/retry"
)

// The errors that callers test for. Package ratelimiter exports and documents them.
var (
	ErrNotInitialized     = errors.New("ratelimiter: not initialized")
	ErrPermitsExceedRate  = errors.New("ratelimiter: permits exceed rate")
	ErrInvalidArgument    = errors.New("ratelimiter: invalid argument")
	ErrNameNotClusterSafe = errors.New("ratelimiter: name is not usable in a cluster")
	ErrClosed             = errors.New("ratelimiter: client is closed")
	ErrUnavailable        = errors.New("ratelimiter: redis is unavailable")
	ErrMalformed          = errors.New("ratelimiter: malformed limiter")
	ErrConflict           = errors.New("ratelimiter: limiter changed concurrently")
)

// Exceeds returns the error of a request for more permits than the rate of the limiter has beyond those that are to stay free.
func Exceeds(limiter string, permits, floor, rate int64) error {
	if floor > 0 {
		return fmt.Errorf("%w: asked for %d permits of %q and to leave %d free, whose rate is %d", ErrPermitsExceedRate, permits, limiter, floor, rate)
	}
	return fmt.Errorf("%w: asked for %d permits of %q, whose rate is %d", ErrPermitsExceedRate, permits, limiter, rate)
}

// Of returns what an operation does, for errors.
func Of(op, limiter string) string { return fmt.Sprintf("%s of %q", op, limiter) }

// Unavailable returns the error of an operation that Redis did not carry out.
func Unavailable(op, limiter string, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, Of(op, limiter), err)
}

// NoReply returns the error of what a caller has waited for without a reply, such as `Rate of "x"`. Failure is how its
// last attempt failed, and left is the error of the caller's context; each may be nil.
func NoReply(what string, waited time.Duration, failure, left error) error {
	err := fmt.Errorf("%w: %s: no reply within %v", ErrUnavailable, what, waited.Round(time.Millisecond))
	if failure != nil {
		err = fmt.Errorf("%w; the last attempt failed: %w", err, failure)
	} else {
		err = fmt.Errorf("%w (check the network, and redis-cli --latency)", err)
	}
	if left != nil {
		err = fmt.Errorf("%w: %w", err, left)
	}
	return err
}

// Patience is how long a call is on its way before its caller is told, when it leaves, that there was no reply.
const Patience = 10 * time.Millisecond

// Left returns the error of a caller that leaves what it has waited for since began, because of left or, if left is nil,
// because its time is up. Failure is how the last attempt failed, if one has.
func Left(what string, began time.Time, failure, left error) error {
	waited := time.Since(began)
	if failure == nil && left != nil && waited < Patience {
		return left
	}
	return NoReply(what, waited, failure, left)
}

// Failed returns the error that callers get when an operation could not be carried out. It wraps ErrUnavailable
// unless the operation was executed and failed. An error that is not a *[retry.Error] comes from a reply, or is
// the reason why nothing was sent, and is returned unchanged.
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

// The outcomes of requests, which package ratelimiter documents.
const (
	outcomeGranted  = "granted"
	outcomeTimeout  = "timeout"
	outcomeCanceled = "canceled"
	outcomeError    = "error"
)

// Outcome returns how a request ended that was granted or not, or has ended with err. The outcome rejected is that of a
// request which has neither permits nor an error.
func Outcome(granted bool, rejected string, err error) string {
	switch {
	case err == nil && granted:
		return outcomeGranted
	case err == nil:
		return rejected
	case errors.Is(err, ErrUnavailable):
		return outcomeError
	case errors.Is(err, context.DeadlineExceeded):
		return outcomeTimeout
	case errors.Is(err, context.Canceled):
		return outcomeCanceled
	}
	return outcomeError
}

// MaxTypeChanges is how often a call is repeated because the limiter has got the other type.
const MaxTypeChanges = 3

// TypeKeepsChanging returns the error of an operation that has been repeated that often in vain.
func TypeKeepsChanging(op, limiter string) error {
	return fmt.Errorf("%w: %s of %q: its type changed %d times during the call; nothing was taken, and it can be made again",
		ErrConflict, op, limiter, MaxTypeChanges)
}

// CountKeepsChanging returns the error of an operation during which the permits in use changed faster than they could be
// counted, however often it began anew.
func CountKeepsChanging(op, limiter string) error {
	return fmt.Errorf("%w: %s of %q: its permits changed faster than they could be counted; nothing was taken, and it can be made again",
		ErrConflict, op, limiter)
}

// A WrongTypeError reports that the keys of a call were not those of the limiter's type. Callers of package
// ratelimiter never see it.
type WrongTypeError struct{ Type Type }

// Error implements error.
func (e *WrongTypeError) Error() string { return "ratelimiter: the limiter is " + e.Type.String() }
