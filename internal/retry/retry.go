// Package retry decides whether a call may be made again, and waits until it is. It knows neither Redis nor
// what the call does.
//
// Its functions are safe for concurrent use; an [Attempts] is not.
package retry

import (
	"math/rand/v2"
	"time"
)

// An Outcome is what an error says of whether the call was carried out.
type Outcome int

const (
	Executed    Outcome = iota // it was, and failed; or it cannot be however often it is made
	NotExecuted                // it surely was not, and may be another time
	Unknown                    // it may have been
)

// An Error is how an attempt failed.
type Error struct {
	Err      error
	Outcome  Outcome
	Answered bool // the server itself said so: it is there
	Local    bool // this process had no connection to spare: the server is not to blame
	Final    bool // the call is not made again, whatever the outcome
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// MaxAttempts is how often a call is made when each attempt fails in a way that allows another.
const MaxAttempts = 4

// maxTrying is how long after the first attempt another one begins at the latest.
const maxTrying = 5 * time.Second

// Attempts are those made at one call, from Begin on.
type Attempts struct {
	Begin time.Time
	// Replay reports whether one of them may have been carried out.
	Replay bool

	failed int
}

// Failed counts an attempt that ended with the outcome what, and reports whether another one may follow: the
// call was not carried out, nor made too often or for too long.
func (a *Attempts) Failed(what Outcome) (again bool) {
	a.failed++
	a.Replay = a.Replay || what == Unknown
	return what != Executed && a.failed < MaxAttempts && time.Since(a.Begin) <= maxTrying
}

// Pause sleeps before the next attempt: about 10, 40, then 160 ms, unless one of the channels is closed
// first.
func (a *Attempts) Pause(one, other <-chan struct{}) { SleepOr(backoff(a.failed), one, other) }

// backoff returns the pause after the n-th attempt, ± half.
func backoff(n int) time.Duration {
	d := 10 * time.Millisecond << (2 * (min(n, MaxAttempts) - 1))
	return d/2 + rand.N(d)
}

// Do calls attempt until it succeeds or may not be called again, and returns its last error. An error that is
// no *[Error] ends it too. It pauses between two attempts, unless one of the channels is closed: attempt finds
// out which. replay reports whether an attempt before may have been carried out.
func Do(one, other <-chan struct{}, attempt func(replay bool) error) error {
	for tries := (Attempts{Begin: time.Now()}); ; tries.Pause(one, other) {
		err := attempt(tries.Replay)
		e, ok := err.(*Error)
		if !ok || !tries.Failed(e.Outcome) || e.Final {
			return err
		}
	}
}
