// SPDX-License-Identifier: Apache-2.0

package calls

import (
	"embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/dispatch"
)

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
	if f.single() && !reserves {
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
		if r.upTo { // as many calls for one
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

// Read returns the reply of a script: now, the state, and something about each run.
func (s *Shared) Read(reply any) ([]any, error) {
	list, _ := reply.([]any)
	if len(list) > 0 {
		switch list[0] {
		case int64(-1):
			return nil, s.lost()
		case int64(-2):
			return nil, s.malformed()
		}
	}
	if len(list) < 3 {
		return nil, s.unexpected(reply)
	}
	now, ok := list[0].(int64)
	_, text := list[1].(string)
	if !ok || now < 0 || !text {
		return nil, s.unexpected(reply)
	}
	return list, nil
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

// Decide writes the outcomes of all requests of f into its calls. They are what the same arithmetic that the
// script has says in Go, from the same state and at the same instant. What is rejected from now on is
// known then.
func (s *Shared) Decide(f *Flight, reply []any, sent time.Time) error {
	now := reply[0].(int64)
	n := f.setting()
	after, err := s.state(&n.Model, reply[1].(string))
	if err != nil {
		return err
	}
	id := f.Epoch()
	rejected := false // whether one of them was, or the next equal one would be
	perRun, waits := 1, false
	if _, ok := after.(log); ok {
		perRun, waits = 2, true
	}
	if len(reply) != 2+perRun*len(f.Runs) {
		return s.unexpected(reply)
	}
	for i := range f.Runs {
		r := &f.Runs[i]
		granted, ok := reply[2+perRun*i].(int64)
		var wait int64
		if waits && ok {
			wait, ok = reply[3+perRun*i].(int64)
		}
		if !ok {
			return s.unexpected(reply)
		}
		if r.upTo {
			if !r.Calls[0].takesUpTo(after, now, granted, id) {
				return s.unexpected(reply)
			}
			if granted == 0 && waits {
				r.Calls[0].Result.Wait = micros(wait)
			}
			rejected = rejected || granted == 0 || !waits && !after.Take(Demand{Now: now, N: 1}, id).Granted
			continue
		}
		q := Demand{Now: now, N: r.N, AtMost: r.AtMost, Spend: r.Spend}
		for _, call := range r.Calls {
			q.Mark = call.Mark
			d := after.Take(q, id)
			if d.Granted && r.Spend {
				granted--
			}
			if !d.Granted && waits {
				d.Wait = wait
			}
			call.Result = d.Result()
			if call.Mark != nil {
				call.Mark.By = s.config.ofFleet(n)
			}
			rejected = rejected || !d.Granted
		}
		if r.Spend && granted != 0 {
			// The script and Go have come to different results.
			return s.unexpected(reply)
		}
		if r.Spend && !waits && !rejected {
			q.Spend, q.AtMost, q.Mark = false, 0, nil
			rejected = !after.Take(q, id).Granted
		}
	}
	s.config.Known.Learn(s, f, rejected, Rejection{State: after, Now: now, Sent: sent})
	return nil
}

// takesUpTo gives r the permits that the script granted it, and their outcome. It reports false if there are not so many.
func (r *Request) takesUpTo(after State, now, granted int64, id Epoch) bool {
	if granted < 0 || granted > r.N {
		return false
	}
	q := Demand{Now: now, N: max(granted, 1), Spend: granted > 0}
	d := after.Take(q, id)
	if d.Granted != (granted > 0) {
		return false
	}
	*r.Taken, r.Result = granted, d.Result()
	return true
}

// DecideAgain is decide for a call that has run before, whose reply was lost. What was rejected then, and what
// takes nothing, has no outcome: it is asked again.
func (s *Shared) DecideAgain(f *Flight, reply []any, answer string) error {
	now, m := reply[0].(int64), &f.setting().Model
	if m.Reserves {
		then, text, _ := strings.Cut(answer, " ")
		at, err := strconv.ParseInt(then, 10, 64)
		if err != nil {
			return s.unexpected(reply)
		}
		before, err := s.state(m, text)
		if err != nil {
			return err
		}
		for i := range f.Runs {
			r := &f.Runs[i]
			for _, call := range r.Calls {
				d := before.Take(Demand{Now: at, N: r.N, AtMost: r.AtMost, Spend: r.Spend}, Epoch{})
				call.Again = !d.Granted || !r.Spend
				d.Wait = max(0, d.Wait-(now-at))
				d.Reset = max(d.Wait, d.Reset-(now-at))
				call.Result = d.Result()
			}
		}
		return nil
	}
	current, err := s.state(m, reply[1].(string))
	if err != nil {
		return err
	}
	counts := strings.Fields(answer)
	if answer == "" && f.single() {
		counts = []string{"1"}
	}
	if len(counts) != len(f.Runs) {
		return s.unexpected(reply)
	}
	for i := range f.Runs {
		r := &f.Runs[i]
		granted, err := strconv.ParseInt(counts[i], 10, 64)
		if err != nil {
			return s.unexpected(reply)
		}
		d := current.Take(Demand{Now: now, N: r.Calls[0].least()}, Epoch{})
		d.Granted, d.Wait = true, 0
		if r.upTo {
			*r.Calls[0].Taken = granted
		}
		for _, call := range r.Calls {
			call.Result, call.Again = d.Result(), granted <= 0 || !r.Spend
			if call.Mark != nil && !call.Again {
				*call.Mark = current.(Settler).MarkOf(now-elapsed(f.begun), r.N)
				call.Mark.By = s.config.ofFleet(f.setting())
			}
			granted--
		}
	}
	return nil
}
