// SPDX-License-Identifier: Apache-2.0

package calls

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter"
)

// A reply is what a script says of a flight: when it decided, the state that it found, and something about each run; or when and why it
// did not decide.
type reply struct {
	now   int64
	why   int64 // undecided or notDated, and 0 if it has decided
	state string
	runs  []any
	sent  time.Time // when the attempt began to which it is the reply
}

// What a script replies in place of its time where it does not decide.
const (
	undecided = -1 // it cannot tell whether its call has run before
	malformed = -2
	notDated  = -3 // the parameters are those of another time
)

// read returns the reply that a script has given.
func (s *Shared) read(answer any, sent time.Time) (reply, error) {
	r, ok := reply{sent: sent}, false
	list, _ := answer.([]any)
	if len(list) > 0 {
		r.now, ok = list[0].(int64)
	}
	switch {
	case ok && r.now == malformed:
		return r, s.malformed()
	case ok && r.now >= 0 && len(list) > 2:
		r.state, ok = list[1].(string)
		r.runs = list[2:]
	case ok && (r.now == undecided || r.now == notDated) && len(list) == 2:
		r.why = r.now
		r.now, ok = list[1].(int64)
	default:
		ok = false
	}
	if !ok {
		return r, s.unexpected(answer)
	}
	return r, nil
}

func (s *Shared) lost() error {
	return fmt.Errorf("%w: the reply to a call of %s was lost, and whether it was granted can no longer be told: Redis remembers that for ten seconds; its permits may have been taken",
		ratelimiter.ErrUnavailable, s.Label())
}

func (s *Shared) malformed() error {
	return fmt.Errorf("%w: the key of %s holds what no limiter writes; delete it (Keys returns its name) to begin anew", ratelimiter.ErrMalformed, s.Label())
}

func (s *Shared) unexpected(reply any) error {
	return fmt.Errorf("limit: unexpected reply to a call of %s: %.200s", s.Label(), fmt.Sprint(reply))
}

// state returns the state that a reply describes.
func (s *Shared) state(m *Model, text string) (State, error) {
	if text == "" {
		return m.Idle(), nil
	}
	if st, ok := m.Stored(text); ok {
		return st, nil
	}
	return nil, s.malformed()
}

// decide writes the outcomes of all requests of f into them. They are what the same arithmetic that the
// script has says in Go, from the same state and at the same instant. What is rejected from now on is
// known then.
func (s *Shared) decide(f *Flight, r reply) error {
	if before, ok := r.runs[0].(string); ok {
		return s.decideAgain(f, r, before)
	}
	n, id := f.setting(), f.Epoch()
	found, err := s.state(&n.Model, r.state)
	if err != nil {
		return err
	}
	perRun := 1
	_, isLog := found.(log)
	if isLog {
		perRun = 2
	}
	if len(r.runs) != perRun*len(f.Runs) {
		return s.unexpected(r.runs)
	}
	rejected := false // whether one of them was, or the next equal one would be
	for i := range f.Runs {
		run := &f.Runs[i]
		granted, ok := r.runs[perRun*i].(int64)
		var wait int64
		if isLog && ok {
			wait, ok = r.runs[perRun*i+1].(int64)
		}
		q := run.Demand
		q.Now = r.now
		if run.UpTo { // then it is as one that asked for what it was granted
			ok = ok && granted <= run.N
			q.N, granted = max(granted, 1), min(granted, 1)
		}
		if !ok {
			return s.unexpected(r.runs)
		}
		for _, call := range run.Calls {
			d := found.Take(q, id)
			if d.Granted && q.Spend {
				granted--
			}
			if !d.Granted && isLog {
				d.Wait = wait
			}
			call.Outcome = d.Outcome(q)
			rejected = rejected || !d.Granted
		}
		if q.Spend && granted != 0 {
			// The script and Go have come to different results.
			return s.unexpected(r.runs)
		}
		if q.Spend && !isLog && !rejected {
			q.N, q.Spend, q.AtMost = run.least(), false, 0
			rejected = !found.Take(q, id).Granted
		}
	}
	s.config.Learn(f, rejected, Rejection{State: found, Now: r.now, Sent: r.sent})
	return nil
}

// decideAgain is decide for a call that has run before, whose reply was lost, and of which the script says what it did then. What was
// rejected then, and what takes nothing, has no outcome: it is asked again.
func (s *Shared) decideAgain(f *Flight, r reply, before string) error {
	if f.setting().Reserves {
		return s.reservedBefore(f, r, before)
	}
	n := f.setting()
	current, err := s.state(&n.Model, r.state)
	if err != nil {
		return err
	}
	noted, rest, _ := strings.Cut(before, ",")
	at, epoch, ok := ranAt(noted, f.Epoch())
	counts := strings.Fields(rest)
	if rest == "" && f.single() {
		counts = []string{"1"}
	}
	if !ok || len(counts) != len(f.Runs) {
		return s.unexpected(r.runs)
	}
	for i := range f.Runs {
		run := &f.Runs[i]
		granted, err := strconv.ParseInt(counts[i], 10, 64)
		if err != nil {
			return s.unexpected(r.runs)
		}
		q := Demand{Now: r.now, N: run.least()}
		d := current.Take(q, Epoch{})
		d.Granted, d.Wait = true, 0
		if settles, ok := current.(Settler); ok {
			d.Mark = settles.MarkOf(epoch, at, run.N)
		}
		q.Spend = true
		if run.UpTo {
			q.N = granted
		}
		for _, call := range run.Calls {
			call.Outcome, call.Again = d.Outcome(q), granted <= 0 || !run.Spend
			granted--
		}
	}
	return nil
}

// ranAt returns when the call of that id ran, and the epoch, by what the script has noted of it: tenths of a second, "." and µs, "@"
// and the epoch if it began with another call. The epoch is none if the script notes none.
func ranAt(noted string, id Epoch) (at int64, e Epoch, ok bool) {
	clock, epoch, settles := strings.Cut(noted, "@")
	tenths, micros, _ := strings.Cut(clock, ".")
	at, err := strconv.ParseInt(tenths+micros, 10, 64)
	switch {
	case !settles:
	case epoch == "":
		e = id
	default:
		e = EpochOf(epoch)
	}
	return at, e, err == nil
}

// reservedBefore is decideAgain for turns: the script says when it ran, and the state that it found.
func (s *Shared) reservedBefore(f *Flight, r reply, before string) error {
	_, noted, _ := strings.Cut(before, ",")
	then, text, _ := strings.Cut(noted, " ")
	at, err := strconv.ParseInt(then, 10, 64)
	if err != nil {
		return s.unexpected(r.runs)
	}
	found, err := s.state(&f.setting().Model, text)
	if err != nil {
		return err
	}
	for i := range f.Runs {
		run := &f.Runs[i]
		q := run.Demand
		q.Now = at
		for _, call := range run.Calls {
			d := found.Take(q, Epoch{})
			call.Again = !d.Granted || !run.Spend
			d.Wait = max(0, d.Wait-(r.now-at))
			d.Reset = max(d.Wait, d.Reset-(r.now-at))
			call.Outcome = d.Outcome(q)
		}
	}
	return nil
}
