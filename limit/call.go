// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/dispatch"
)

//go:embed scripts
var scriptFiles embed.FS

// script returns the script scripts/NAME.lua, which takes that many keys and arguments. The last two arguments are left out
// of most calls: see config.command.
func script(name string, keys, args int) *dispatch.Script {
	s := dispatch.Load(scriptFiles, name, keys, args)
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
	first   = -1 // it is sent for the first time
	unknown = 0  // no instant before it was first sent is known by the clock of Redis
)

// command returns the call of a script, whose arguments are the requests, the id, the parameters of the algorithm, and if
// there is anything to say about either, an instant before the call was first sent, and now.
func (c *config) command(n *setting, keys []string, requests, id string, since int64) ([]any, error) {
	s, more, parameters := n.script, 0, n.parameters
	if now := n.redated.Load(); now != nil {
		parameters = *now
	}
	if since != first || c.clock != nil {
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
	if since != first {
		before = since
	}
	if c.clock != nil {
		now = c.clock().UnixMicro()
	}
	return s.Complete(append(cmd, before, now))
}

// redate makes the parameters those of an instant by the clock of Redis, if they change with the time.
func (n *setting) redate(now int64) {
	if n.parametersAt != nil {
		parameters := n.parametersAt(now)
		n.redated.Store(&parameters)
	}
}

// requests returns the first argument of the script for the requests of f.
func requests(f *flight) string {
	reserves := f.setting().reserves
	if x := f.settlement(); x != nil {
		return x.String()
	}
	if f.single() && !reserves {
		return strconv.FormatInt(f.runs[0].n, 10)
	}
	text := make([]byte, 0, 16*len(f.runs))
	for i := range f.runs {
		r := &f.runs[i]
		if i > 0 {
			text = append(text, ' ')
		}
		n, count := r.n, 0
		if r.spend {
			count = len(r.calls)
		}
		if r.upTo { // as many calls for one
			n, count = 1, int(r.n)
		}
		text = strconv.AppendInt(text, n, 10)
		text = strconv.AppendInt(append(text, ':'), int64(count), 10)
		if reserves {
			text = strconv.AppendInt(append(text, ':'), r.atMost, 10)
		}
	}
	return string(text)
}

// read returns the reply of a script: now, the state, and something about each run.
func (s *Shared) read(reply any) ([]any, error) {
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
		ratelimiter.ErrUnavailable, s.label())
}

func (s *Shared) malformed() error {
	return fmt.Errorf("%w: the key of %s holds what no limiter writes; delete it (Keys returns its name) to begin anew", ratelimiter.ErrMalformed, s.label())
}

func (s *Shared) unexpected(reply any) error {
	return fmt.Errorf("limit: unexpected reply to a call of %s: %.200s", s.label(), fmt.Sprint(reply))
}

// state returns the state that a reply describes.
func (s *Shared) state(m *model, text string) (state, error) {
	if text == "" {
		return m.idle(), nil
	}
	if st, ok := m.stored(text); ok {
		return st, nil
	}
	return nil, s.malformed()
}

// decide writes the outcomes of all requests of f into its calls. They are what the same arithmetic that the
// script has says in Go, from the same state and at the same instant. What is rejected from now on is
// known then.
func (s *Shared) decide(f *flight, reply []any, sent time.Time) error {
	now := reply[0].(int64)
	n := f.setting()
	after, err := s.state(&n.model, reply[1].(string))
	if err != nil {
		return err
	}
	id := f.epoch()
	rejected := false // whether one of them was, or the next equal one would be
	log, perRun := (*seenLog)(nil), 1
	if l, ok := after.(*seenLog); ok {
		log, perRun = l, 2
	}
	if len(reply) != 2+perRun*len(f.runs) {
		return s.unexpected(reply)
	}
	for i := range f.runs {
		r := &f.runs[i]
		granted, ok := reply[2+perRun*i].(int64)
		var wait int64
		if log != nil && ok {
			wait, ok = reply[3+perRun*i].(int64)
		}
		if !ok {
			return s.unexpected(reply)
		}
		if r.upTo {
			if !r.calls[0].takesUpTo(after, now, granted, id) {
				return s.unexpected(reply)
			}
			if granted == 0 && log != nil {
				r.calls[0].result.Wait = micros(wait)
			}
			rejected = rejected || granted == 0 || log == nil && !after.take(demand{now: now, n: 1}, id).granted
			continue
		}
		q := demand{now: now, n: r.n, atMost: r.atMost, spend: r.spend}
		for _, call := range r.calls {
			q.mark = call.mark
			d := after.take(q, id)
			if d.granted && r.spend {
				granted--
			}
			if !d.granted && log != nil {
				d.wait = wait
			}
			call.result = d.result()
			if call.mark != nil {
				call.mark.by = s.config.ofFleet(n)
			}
			rejected = rejected || !d.granted
		}
		if r.spend && granted != 0 {
			// The script and Go have come to different results.
			return s.unexpected(reply)
		}
		if r.spend && log == nil && !rejected {
			q.spend, q.atMost, q.mark = false, 0, nil
			rejected = !after.take(q, id).granted
		}
	}
	s.config.known.learn(s, f, rejected, rejection{state: after, now: now, sent: sent})
	return nil
}

// takesUpTo gives r the permits that the script granted it, and their outcome. It reports false if there are not so many.
func (r *request) takesUpTo(after state, now, granted int64, id epoch) bool {
	if granted < 0 || granted > r.n {
		return false
	}
	q := demand{now: now, n: max(granted, 1), spend: granted > 0}
	d := after.take(q, id)
	if d.granted != (granted > 0) {
		return false
	}
	*r.taken, r.result = granted, d.result()
	return true
}

// decideAgain is decide for a call that has run before, whose reply was lost. What was rejected then, and what
// takes nothing, has no outcome: it is asked again.
func (s *Shared) decideAgain(f *flight, reply []any, answer string) error {
	now, m := reply[0].(int64), &f.setting().model
	if m.reserves {
		then, text, _ := strings.Cut(answer, " ")
		at, err := strconv.ParseInt(then, 10, 64)
		if err != nil {
			return s.unexpected(reply)
		}
		before, err := s.state(m, text)
		if err != nil {
			return err
		}
		for i := range f.runs {
			r := &f.runs[i]
			for _, call := range r.calls {
				d := before.take(demand{now: at, n: r.n, atMost: r.atMost, spend: r.spend}, epoch{})
				call.again = !d.granted || !r.spend
				d.wait = max(0, d.wait-(now-at))
				d.reset = max(d.wait, d.reset-(now-at))
				call.result = d.result()
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
	if len(counts) != len(f.runs) {
		return s.unexpected(reply)
	}
	for i := range f.runs {
		r := &f.runs[i]
		granted, err := strconv.ParseInt(counts[i], 10, 64)
		if err != nil {
			return s.unexpected(reply)
		}
		d := current.take(demand{now: now, n: r.calls[0].least()}, epoch{})
		d.granted, d.wait = true, 0
		if r.upTo {
			*r.calls[0].taken = granted
		}
		for _, call := range r.calls {
			call.result, call.again = d.result(), granted <= 0 || !r.spend
			if call.mark != nil && !call.again {
				*call.mark = current.(settler).markOf(now-elapsed(f.begun), r.n)
				call.mark.by = s.config.ofFleet(f.setting())
			}
			granted--
		}
	}
	return nil
}
