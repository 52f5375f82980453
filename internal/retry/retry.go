// SPDX-License-Identifier: Apache-2.0

// Package retry decides whether a failed call may be made again, and waits until then. It knows neither Redis
// nor what the call does.
//
// Its functions are safe for concurrent use; an [Attempts] is not.
package retry

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"
)

// ErrDenied is wrapped by the error of a call that the server does not allow this user. Package ratelimiter documents
// it.
var ErrDenied = errors.New("ratelimiter: redis denies the call")

// An Outcome tells what an error implies about the call: whether it was carried out.
type Outcome int

const (
	Executed    Outcome = iota // it was carried out and failed, or would fail however often it is made
	NotExecuted                // it was certainly not carried out, and another attempt may succeed
	Unknown                    // it may have been carried out
)

// An Error describes how an attempt failed.
type Error struct {
	Err      error
	Outcome  Outcome
	Answered bool // the error is a reply, so the server is up
	ReadOnly bool // the server is up and refuses to write, but may reply to what only reads
	Local    bool // this process did not send the call; the server is not to blame
	Silent   bool // the server has not replied in time
	Unsent   bool // the redis client takes the server to be down, and so sends nothing
	Final    bool // the call must not be made again, whatever the outcome
	Ended    bool // this process has ended the attempt, so another one need not wait

	Elsewhere bool // the error is a reply: another server has to carry out the call, or this one a little later
	Handshake bool // the server has refused to let this user in
	Shared    bool // a connection broke that carried other calls, too, so that one of them may be what broke it
}

// A Panic is the error of foreign code that panicked while it was called.
type Panic struct {
	Value any
	Stack []byte
}

// Error returns a text with the value of the panic.
func (p *Panic) Error() string { return fmt.Sprintf("panicked: %v", p.Value) }

// A Shortage is the reason why a call was not sent: this process has too much else in flight. It says nothing about
// the server.
type Shortage struct{ Err error }

// Error returns the text of the cause.
func (s *Shortage) Error() string { return s.Err.Error() }

// Unwrap returns the cause.
func (s *Shortage) Unwrap() error { return s.Err }

// Recover, if deferred, turns a panic of who into an error that wraps a *[Panic].
func Recover(err *error, who string) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("%s %w", who, &Panic{v, debug.Stack()})
	}
}

// Each calls f, which is foreign code, with each of the hooks. If a call panics, Each calls panicked with the index of
// the hook and the panic, and goes on with the next one.
func Each[H any](hooks []H, f func(*H), panicked func(i int, err error)) {
	for i := range hooks {
		if err := Contain("a Hook", func() { f(&hooks[i]) }); err != nil {
			panicked(i, err)
		}
	}
}

// Contain calls f, which is of who, and returns its panic, if any, as Recover does.
func Contain(who string, f func()) (err error) {
	defer Recover(&err, who)
	f()
	return nil
}

// Error returns the text of the cause.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// MaxAttempts is how many attempts are made at a call, if each fails in a way that allows another.
const MaxAttempts = 4

// maxTrying is how long after the first attempt a further one may begin.
const maxTrying = 5 * time.Second

// Attempts counts the attempts at one call. The first one starts at Begin.
type Attempts struct {
	Begin time.Time
	// Replay reports whether one of the attempts may have been carried out.
	Replay bool

	failed int
	shared bool // one that was not counted
	ended  bool // the last one was ended by this process
}

// Failed counts an attempt that ended with e, and reports whether another attempt may follow. None may follow if the
// call was carried out, if it was made MaxAttempts times, or if maxTrying has passed after the second attempt. After the
// first one the time does not matter, because this process may have stood still itself. The first failure of a shared
// connection is not counted.
func (a *Attempts) Failed(e *Error) (again bool) {
	if e.Shared && !a.shared {
		a.shared = true
	} else {
		a.failed++
	}
	a.Replay, a.ended = a.Replay || e.Outcome == Unknown, e.Ended
	return e.Outcome != Executed && a.failed < MaxAttempts && (a.failed < 2 || time.Since(a.Begin) <= maxTrying)
}

// Pause sleeps before the next attempt, for about 10, 40, then 160 ms, unless this process has ended the last one. It returns early
// when one of the channels is closed.
func (a *Attempts) Pause(one, other <-chan struct{}) {
	if !a.ended {
		SleepOr(backoff(a.failed), one, other)
	}
}

// backoff returns the pause after the n-th attempt, with a jitter of half of it in either direction.
func backoff(n int) time.Duration {
	d := 10 * time.Millisecond << (2 * (min(max(n, 1), MaxAttempts) - 1))
	return d/2 + rand.N(d)
}

// Do calls attempt until it succeeds or may not be called again, and returns its last error. An error that is
// not an *[Error] ends the loop as well. Do pauses between two attempts, unless one of the channels is closed;
// attempt has to find out which one. The argument replay reports whether an earlier attempt may have been
// carried out.
func Do(one, other <-chan struct{}, attempt func(replay bool) error) error {
	for tries := (Attempts{Begin: time.Now()}); ; tries.Pause(one, other) {
		err := attempt(tries.Replay)
		e, ok := err.(*Error)
		if !ok || !tries.Failed(e) || e.Final {
			return err
		}
	}
}
