// SPDX-License-Identifier: Apache-2.0

package permit

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

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
	ErrOverloaded         = errors.New("ratelimiter: too much is on its way to redis")
	ErrMalformed          = errors.New("ratelimiter: malformed limiter")
	ErrConflict           = errors.New("ratelimiter: limiter changed concurrently")
	ErrDenied             = retry.ErrDenied
)

// Shorten returns a text as errors quote it: its first 64 bytes if it is longer, without half a letter.
func Shorten(text string) string {
	const most = 64
	if len(text) <= most {
		return text
	}
	end := most
	for end > most-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// Exceeds returns the error of a request for more permits than the limiter's rate minus floor, the permits that must
// stay free.
func Exceeds(limiter string, permits, floor, rate int64) error {
	if floor > 0 {
		return fmt.Errorf("%w: asked for %s of %q and to leave %d free, whose rate is %d", ErrPermitsExceedRate, Counted(permits, "permit"), limiter, floor, rate)
	}
	return fmt.Errorf("%w: asked for %s of %q, whose rate is %d", ErrPermitsExceedRate, Counted(permits, "permit"), limiter, rate)
}

// Counted returns n with the noun of what was counted, as in "1 member" and "2 members".
func Counted[N int | int64](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprint(n, " ", noun)
}

// Of returns the description of an operation in errors.
func Of(op, limiter string) string { return fmt.Sprintf("%s of %q", op, limiter) }

// Unavailable returns the error of an operation that Redis did not carry out.
func Unavailable(op, limiter string, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, Of(op, limiter), err)
}

// Overloaded returns the error of an operation that this process did not send, because of err.
func Overloaded(what string, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrOverloaded, what, err)
}

// IsShortage reports whether err says that a call was not sent because this process has too much else on its way.
func IsShortage(err error) bool { return errors.As(err, new(*retry.Shortage)) }

// WasNotServed reports whether err says that Redis has not carried out a call: it was unavailable, or the call was not sent.
func WasNotServed(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrOverloaded)
}

// NoReply returns the error of a caller that got no reply. The argument what describes its call, such as `Rate of
// "x"`; failure is the error of its last attempt, and left is the error of the caller's context. Each of the two may
// be nil.
func NoReply(what string, waited time.Duration, failure, left error) error {
	kind := ErrUnavailable
	if IsShortage(failure) {
		kind = ErrOverloaded
	}
	err := fmt.Errorf("%w: %s: no reply within %v", kind, what, waited.Round(time.Millisecond))
	if failure != nil {
		err = fmt.Errorf("%w; the last attempt failed: %w", err, failure)
	} else {
		err = fmt.Errorf("%w (check the network, and its latency with redis-cli -h HOST -p PORT --latency)", err)
	}
	if left != nil {
		err = fmt.Errorf("%w: %w", err, left)
	}
	return err
}

// Patience is how long a call has to be in flight before a caller that leaves gets the error that there was no reply.
const Patience = 10 * time.Millisecond

// Left returns the error of a caller that stops waiting for its call because of left or, if left is nil, because its
// time is up. The caller has waited since began; failure is the error of the last attempt, or nil.
func Left(what string, began time.Time, failure, left error) error {
	waited := time.Since(began)
	if failure == nil && left != nil && waited < Patience {
		return left
	}
	return NoReply(what, waited, failure, left)
}

// TooLate returns the error of a caller whose context ends before its permits are free, which takes about wait.
func TooLate(limiter string, wait time.Duration) error {
	return fmt.Errorf("ratelimiter: acquire of %q: it is %v until there are permits, and the context ends before that: %w",
		limiter, wait.Round(time.Millisecond), context.DeadlineExceeded)
}

// Failed returns the error that callers get if an operation could not be carried out. It wraps ErrUnavailable, or
// ErrOverloaded if the operation was not sent. If the operation was executed and failed, it wraps neither. An error
// that is not a *[retry.Error] is a reply, or the reason why nothing was sent, and is returned unchanged.
func Failed(op, limiter string, err error) error {
	e, ok := err.(*retry.Error)
	switch {
	case !ok:
		return err
	case e.Outcome == retry.Executed:
		return fmt.Errorf("ratelimiter: %s of %q: %w", op, limiter, e.Err)
	case IsShortage(e.Err):
		return Overloaded(Of(op, limiter), e.Err)
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

// Outcome returns how a request ended. A request that is not granted and has no error has the outcome rejected.
func Outcome(granted bool, rejected string, err error) string {
	switch {
	case err == nil && granted:
		return outcomeGranted
	case err == nil:
		return rejected
	case WasNotServed(err):
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

// TypeKeepsChanging returns the error of an operation that has been repeated MaxTypeChanges times in vain.
func TypeKeepsChanging(op, limiter string) error {
	return fmt.Errorf("%w: %s of %q: its type changed %d times during the call; nothing was taken, and it can be made again",
		ErrConflict, op, limiter, MaxTypeChanges)
}

// CountKeepsChanging returns the error of an operation during which the permits in use changed faster than they could
// be counted, even after several new beginnings.
func CountKeepsChanging(op, limiter string) error {
	return fmt.Errorf("%w: %s of %q: its permits changed faster than they could be counted; nothing was taken, and it can be made again",
		ErrConflict, op, limiter)
}

// A WrongTypeError reports that the keys of a call were not those of the limiter's type. Callers of package
// ratelimiter never see it.
type WrongTypeError struct{ Type Type }

// Error implements error.
func (e *WrongTypeError) Error() string { return "ratelimiter: the limiter is " + e.Type.String() }
