// SPDX-License-Identifier: Apache-2.0

package calls

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// A call is the call of a script for a flight, with all its attempts.
type call struct {
	*Shared
	flight *Flight
	id     string
	since  int64 // see first and unknown
	tries  retry.Attempts
	last   error // of the last attempt
}

func (s *Shared) newCall(f *Flight) call {
	x := call{Shared: s, flight: f, since: First, tries: retry.Attempts{Begin: time.Now()}}
	if f.spends() {
		x.id = s.config.IDs.id(s.config.WithoutReplay)
	}
	f.begun = x.tries.Begin
	if change := f.settlement(); change != nil && change.id != "" {
		x.id, f.begun, x.since, x.tries.Replay = change.id, change.begun, Unknown, true
	}
	return x
}

// Send makes the call of f, again if need be, and returns the reply and when the attempt began to which it is
// the reply. It returns an error that wraps ratelimiter.ErrUnavailable if no attempt has led to one. ctx must not end: see lines.
func (s *Shared) Send(ctx context.Context, f *Flight) (reply []any, sent time.Time, err error) {
	x := s.newCall(f)
	n, keys := f.setting(), s.redisKeys(f.setting())
	for script, requests := n.Script, requests(f); ; {
		if err := x.ready(); err != nil {
			return nil, sent, err
		}
		f.id = x.id
		cmd, err := s.config.Command(n, keys, requests, x.id, x.since)
		if err != nil {
			return nil, sent, err
		}
		to := s.config.rdb
		if x.tries.Replay {
			to = dispatch.Alone(to)
		}
		var answer any
		sent = time.Now()
		failure := s.attempt(ctx, func() (err error) {
			answer, err = script.Once(ctx, to, cmd)
			s.config.called(script.Name, f.Requests, sent, err)
			return err
		})
		if failure != nil {
			if err := x.failed(failure); err != nil {
				return nil, sent, err
			}
			continue
		}
		again, err := x.refused(answer)
		if err != nil {
			return nil, sent, err
		}
		if !again {
			reply, err = s.Read(answer)
			return reply, sent, err
		}
	}
}

// ready returns why no attempt can be made, if there is a reason.
func (x *call) ready() error {
	if change := x.flight.settlement(); change != nil && forgotten(change.id) {
		return x.lost()
	}
	if _, down := x.health().Outage(); down != nil {
		return x.unavailable(cmp.Or(x.last, down))
	}
	return nil
}

// failed takes in the error of an attempt. It returns that of the call, or pauses and returns nil if there is to be another
// attempt.
func (x *call) failed(failure *retry.Error) error {
	err := failure.Err
	if change := x.flight.settlement(); change != nil && dispatch.Classify(err) == retry.Unknown {
		change.id, change.begun = x.id, x.flight.begun // it may be settled again only as the same call
	}
	x.last = err
	x.config.Lines.failing(x.keys[0], err)
	again := x.tries.Failed(failure) && !failure.Final
	if failure.Outcome == retry.Executed {
		return fmt.Errorf("limit: a call of %s: %w", x.Label(), failure.Err)
	}
	x.health().Await(nil, nil)
	if !again || x.tries.Replay && forgotten(x.id) || x.flight.abandoned() {
		if failure.Local {
			err = failure.Err // which says what to do about it
		}
		return x.unavailable(err)
	}
	if x.tries.Replay && x.flight.spends() && x.since == First {
		x.since = Unknown // without a pause, since it takes nothing: what it was granted may soon be forgotten
	} else {
		x.tries.Pause(nil, nil)
	}
	return nil
}

// refused reports whether the script did not decide, in a way that allows another attempt, which it prepares.
func (x *call) refused(answer any) (again bool, err error) {
	c := x.config
	if now, ok := refused(answer, notDated); ok {
		if !x.tries.Failed(&retry.Error{Outcome: retry.NotExecuted}) {
			return false, fmt.Errorf("%w: a call of %s: the clock of Redis jumps from attempt to attempt", ratelimiter.ErrUnavailable, x.Label())
		}
		x.flight.setting().redate(now)
		return true, nil
	}
	now, ok := refused(answer, undecided)
	if !ok || x.since > Unknown {
		return false, nil
	}
	if x.since == Unknown {
		x.since = now - elapsed(x.flight.begun)
		return true, nil
	}
	// No earlier attempt of it can have run. So another process has the same ids.
	if !x.tries.Failed(&retry.Error{Outcome: retry.NotExecuted}) {
		return false, fmt.Errorf("%w: a call of %s: another process uses the same ids", ratelimiter.ErrUnavailable, x.Label())
	}
	c.IDs.anew(x.id)
	x.id = c.IDs.id(c.WithoutReplay)
	return true, nil
}

// untilDone makes attempts at what may be done twice, until one succeeds. Errors say what it is for.
func (s *Shared) untilDone(ctx context.Context, what string, attempt func() error) error {
	tries := retry.Attempts{Begin: time.Now()}
	var last error // of the last attempt
	for {
		if err := ctx.Err(); err != nil {
			return s.Left(err, tries.Begin, last)
		}
		if _, down := s.health().Outage(); down != nil {
			return fmt.Errorf("%w: %s: %w", ratelimiter.ErrUnavailable, what, cmp.Or(last, down))
		}
		failure := s.attempt(ctx, attempt)
		if failure == nil {
			return nil
		}
		if ctx.Err() != nil {
			continue
		}
		err := failure.Err
		if failure.Outcome == retry.Executed {
			return fmt.Errorf("limit: %s: %w", what, failure.Err)
		}
		s.health().Await(ctx.Done(), nil)
		if !tries.Failed(failure) || failure.Final {
			if permit.IsShortage(failure) {
				return permit.Overloaded(what, failure.Err)
			}
			return fmt.Errorf("%w: %s: %w", ratelimiter.ErrUnavailable, what, err)
		}
		last = err
		tries.Pause(ctx.Done(), nil)
	}
}

// Left returns the error of a caller whose context ends with err, and that has waited for a reply since began. Last is how
// the last attempt failed, if one has.
func (s *Shared) Left(err error, began time.Time, last error) error {
	return permit.Left("a call of "+s.Label(), began, cmp.Or(s.shortage(), last), err)
}

// What a script replies, with its time, where it does not decide.
const (
	undecided = -1 // it cannot tell whether its call has run before
	notDated  = -3 // the parameters are those of another time
)

// refused reports whether the script replied so, and returns the time of that reply.
func refused(reply any, why int64) (now int64, ok bool) {
	list, _ := reply.([]any)
	if len(list) != 2 || list[0] != why {
		return 0, false
	}
	now, ok = list[1].(int64)
	return now, ok
}

// elapsed returns the time since begin in µs, rounded up, by the monotonic clock or the wall clock, whichever
// says more: the first may stand still while the machine sleeps, and the second may be set.
func elapsed(begin time.Time) int64 {
	return max(time.Since(begin), time.Now().Round(0).Sub(begin.Round(0))).Microseconds() + 1
}
