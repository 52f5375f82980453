// SPDX-License-Identifier: Apache-2.0

package calls

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"strconv"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// send makes the call of f, again if need be, and returns the reply. It returns an error that wraps ratelimiter.ErrUnavailable if no
// attempt has led to one. ctx must not end: see Request.
func (s *Shared) send(ctx context.Context, f *Flight) (reply, error) {
	s.begin(f)
	n, keys := f.setting(), s.redisKeys(f.setting())
	for requests := requests(f); ; {
		if err := s.ready(f); err != nil {
			return reply{}, err
		}
		cmd, err := s.config.Command(n, keys, requests, f.id, f.since)
		if err != nil {
			return reply{}, err
		}
		to := s.config.Sender
		if f.tries.Replay {
			to = dispatch.Alone(to)
		}
		var answer any
		sent := time.Now()
		failure := s.attempt(ctx, outage.Traits{Stays: f.tries.Replay || forgotten(f.id), Lasts: true}, func(ctx context.Context) (err error) {
			answer, err = n.Script.Once(ctx, to, cmd)
			s.config.called(n.Script.Name, f.Requests, sent, err)
			return err
		})
		if failure != nil {
			if err := s.failed(f, failure); err != nil {
				return reply{}, err
			}
			continue
		}
		r, err := s.read(answer, sent)
		if err == nil && r.why != 0 {
			err = s.refused(f, r)
		}
		if err != nil || r.why == 0 {
			return r, err
		}
	}
}

// begin gives f its id, which is that of an earlier call if it is a settlement which that may have made.
func (s *Shared) begin(f *Flight) {
	now := time.Now()
	f.begun, f.since, f.tries = now, First, retry.Attempts{Begin: now}
	f.id = s.config.IDs.id(s.config.WithoutReplay && f.spends())
	if x := f.settlement(); x != nil && x.id != "" {
		f.id, f.begun, f.since, f.tries.Replay = x.id, x.begun, Unknown, true
	}
}

// ready returns why no attempt can be made, if there is a reason.
func (s *Shared) ready(f *Flight) error {
	if x := f.settlement(); x != nil && forgotten(x.id) {
		return s.lost()
	}
	if _, down := s.health().Outage(); down != nil {
		return s.unavailable(cmp.Or(s.config.lines.failure(s.keys[0]), down))
	}
	return nil
}

// failed takes in the error of an attempt. It returns that of the call, or pauses and returns nil if there is to be another
// attempt.
func (s *Shared) failed(f *Flight, failure *retry.Error) error {
	err := failure.Err
	if x := f.settlement(); x != nil && dispatch.Classify(err) == retry.Unknown {
		x.id, x.begun = f.id, f.begun // it may be settled again only as the same call
	}
	s.config.lines.failing(s.keys[0], err)
	again := f.tries.Failed(failure) && !failure.Final
	if failure.Outcome == retry.Executed {
		return fmt.Errorf("limit: a call of %s: %w", s.Label(), err)
	}
	s.health().Await(nil, nil)
	if !again || f.tries.Replay && forgotten(f.id) || f.abandoned() {
		return s.unavailable(err)
	}
	if f.tries.Replay && f.spends() && f.since == First {
		f.since = Unknown // without a pause, since it takes nothing: what it was granted may soon be forgotten
	} else {
		f.tries.Pause(nil, nil)
	}
	return nil
}

// refused prepares another attempt after the reply r, which decides nothing. It returns the error of the call if there is to be none.
func (s *Shared) refused(f *Flight, r reply) error {
	why := "the clock of Redis jumps from attempt to attempt"
	if r.why == undecided {
		switch f.since {
		case Unknown:
			f.since = r.now - elapsed(f.begun)
			return nil
		case First: // no earlier attempt of it can have run, so another process has the same ids
			why = "another process uses the same ids"
		default:
			return s.lost()
		}
	}
	if !f.tries.Failed(&retry.Error{Outcome: retry.NotExecuted}) {
		return fmt.Errorf("%w: a call of %s: %s", ratelimiter.ErrUnavailable, s.Label(), why)
	}
	if r.why == notDated {
		f.setting().redate(r.now)
	} else {
		s.config.IDs.anew(f.id)
		f.id = s.config.IDs.id(s.config.WithoutReplay)
	}
	return nil
}

// Left returns the error of a caller whose context ends with err, and that has waited for a reply since began. Last is how
// the last attempt failed, if one has.
func (s *Shared) Left(err error, began time.Time, last error) error {
	return permit.Left("a call of "+s.Label(), began, cmp.Or(dispatch.ShortageTo(s.config.Sender, s.keys[0]), last), err)
}

// elapsed returns the time since begin in µs, rounded up, by the monotonic clock or the wall clock, whichever
// says more: the first may stand still while the machine sleeps, and the second may be set.
func elapsed(begin time.Time) int64 {
	return max(time.Since(begin), time.Now().Round(0).Sub(begin.Round(0))).Microseconds() + 1
}

// Load returns the script scripts/NAME.lua, which takes that many keys and arguments. The last two arguments are left out
// of most calls: see config.command.
func Load(files embed.FS, name string, keys, args int) *dispatch.Script {
	s := dispatch.Load(files, name, keys, args)
	s.OptionalArgs(2)
	s.Clock = func(reply []any) (time.Time, bool) {
		if len(reply) < 3 {
			return time.Time{}, false
		}
		now, ok := reply[0].(int64)
		return time.UnixMicro(now), ok
	}
	return s
}

// What a script is told of when its call was first sent, other than an instant before that.
const (
	First   = -1 // it is sent for the first time
	Unknown = 0  // no instant before it was first sent is known by the clock of Redis
)

// Command returns the call of a script, whose arguments are the requests, the id, the parameters of the algorithm, and if
// there is anything to say about either, an instant before the call was first sent, and now.
func (c *Limiter) Command(n *Setting, keys []string, requests, id string, since int64) ([]any, error) {
	s, more, parameters := n.Script, 0, n.Parameters
	if now := n.redated.Load(); now != nil {
		parameters = *now
	}
	if since != First || c.Clock != nil {
		more = 2
	}
	cmd := s.Begin(2 + len(parameters) + more)
	for _, k := range keys {
		cmd = append(cmd, k)
	}
	cmd = append(append(cmd, requests, id), parameters...)
	if more == 0 {
		return s.Complete(cmd)
	}
	var before, now any = "", ""
	if since != First {
		before = since
	}
	if c.Clock != nil {
		now = c.Clock().UnixMicro()
	}
	return s.Complete(append(cmd, before, now))
}

// redate makes the parameters those of an instant by the clock of Redis, if they change with the time.
func (n *Setting) redate(now int64) {
	if n.ParametersAt != nil {
		parameters := n.ParametersAt(now)
		n.redated.Store(&parameters)
	}
}

// requests returns the first argument of the script for the requests of f.
func requests(f *Flight) string {
	reserves := f.setting().Reserves
	if x := f.settlement(); x != nil {
		return x.String()
	}
	if f.single() && !reserves && f.spends() {
		return strconv.FormatInt(f.Runs[0].N, 10)
	}
	text := make([]byte, 0, 16*len(f.Runs))
	for i := range f.Runs {
		r := &f.Runs[i]
		if i > 0 {
			text = append(text, ' ')
		}
		n, count := r.N, 0
		if r.Spend {
			count = len(r.Calls)
		}
		if r.UpTo { // as many calls for one
			n, count = 1, int(r.N)
		}
		text = strconv.AppendInt(text, n, 10)
		text = strconv.AppendInt(append(text, ':'), int64(count), 10)
		if reserves {
			text = strconv.AppendInt(append(text, ':'), r.AtMost, 10)
		}
	}
	return string(text)
}
