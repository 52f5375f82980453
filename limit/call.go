package limit

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
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
func (c *config) command(keys []string, requests, id string, since int64) ([]any, error) {
	s, more, parameters := c.algorithm.script(), 0, c.parameters
	if now := c.redated.Load(); now != nil {
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

// redate makes the parameters those of an instant by the clock of Redis, if they are dated.
func (c *config) redate(now int64) {
	if d, ok := c.algorithm.(dated); ok {
		parameters := d.parametersAt(now)
		c.redated.Store(&parameters)
	}
}

// requests returns the first argument of the script for the requests of f.
func (c *config) requests(f *flight) string {
	if x := f.settlement(); x != nil {
		return x.String()
	}
	if f.single() && !c.algorithm.reserves() {
		return strconv.FormatInt(f.runs[0].n, 10)
	}
	text := make([]byte, 0, 16*len(f.runs))
	for i := range f.runs {
		r := &f.runs[i]
		if i > 0 {
			text = append(text, ' ')
		}
		count := 0
		if r.spend {
			count = len(r.calls)
		}
		text = strconv.AppendInt(text, r.n, 10)
		text = strconv.AppendInt(append(text, ':'), int64(count), 10)
		if c.algorithm.reserves() {
			text = strconv.AppendInt(append(text, ':'), r.atMost, 10)
		}
	}
	return string(text)
}

// send makes the call of f, again if need be, and returns the reply and when the attempt began to which it is
// the reply. It returns an error that wraps ratelimiter.ErrUnavailable if no attempt has led to one.
func (s *Shared) send(ctx context.Context, f *flight) (reply []any, sent time.Time, err error) {
	c, script := s.config, s.config.algorithm.script()
	requests, id := c.requests(f), ""
	if f.spends() && c.withoutReplay {
		id = noID
	} else if f.spends() {
		id = c.ids.id()
	}
	tries, since := retry.Attempts{Begin: time.Now()}, int64(first)
	f.begun = tries.Begin
	change := f.settlement()
	if change != nil && change.id != "" {
		id, f.begun, since, tries.Replay = change.id, change.begun, unknown, true
	}
	var last error // of the last attempt
	var health *outage.Health
	var open *outage.Call
	if c.outages != nil {
		health, open = s.health(), &outage.Call{Owner: s}
		defer health.End(open)
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, sent, s.left(err, tries.Begin, last)
		}
		if change != nil && change.id == noID {
			return nil, sent, s.lost()
		}
		cmd, err := c.command(s.keys, requests, id, since)
		if err != nil {
			return nil, sent, err
		}
		if health != nil {
			if _, _, down := health.Allow(open); down != nil {
				return nil, sent, s.unavailable(cmp.Or(last, down))
			}
		}
		sent = time.Now()
		to := c.rdb
		if tries.Replay {
			to = dispatch.Alone(to)
		}
		answer, err := script.Once(ctx, to, cmd)
		c.called(script.Name, f.requests, sent, err)
		if health != nil {
			s.replied(health, open, sent, err, outage.Ran)
		}
		if now, ok := refused(answer, notDated); ok && err == nil {
			if !tries.Failed(&retry.Error{Outcome: retry.NotExecuted}) {
				return nil, sent, fmt.Errorf("%w: a call of %s: the clock of Redis jumps from attempt to attempt", ratelimiter.ErrUnavailable, s.label())
			}
			c.redate(now)
			continue
		}
		if now, ok := refused(answer, undecided); ok && err == nil && since <= unknown {
			if since == unknown {
				since = now - elapsed(f.begun)
				continue
			}
			// No earlier attempt of it can have run. So another process has the same ids.
			if !tries.Failed(&retry.Error{Outcome: retry.NotExecuted}) {
				return nil, sent, fmt.Errorf("%w: a call of %s: another process uses the same ids", ratelimiter.ErrUnavailable, s.label())
			}
			c.ids.anew(id)
			id = c.ids.id()
			continue
		}
		if err == nil {
			reply, err = s.read(answer)
			return reply, sent, err
		}
		if change != nil && (ctx.Err() != nil || dispatch.Classify(err) == retry.Unknown) {
			change.id, change.begun = id, f.begun // it may be settled again only as the same call
		}
		if ctx.Err() != nil {
			return nil, sent, s.left(ctx.Err(), tries.Begin, last)
		}
		last = err
		failure := dispatch.Failure(err)
		again := tries.Failed(failure) && !failure.Final
		if failure.Outcome == retry.Executed {
			return nil, sent, fmt.Errorf("limit: a call of %s: %w", s.label(), err)
		}
		if !again && health != nil {
			s.markDown(health, sent, failure)
		}
		if !again || tries.Replay && id == noID || f.abandoned() {
			return nil, sent, fmt.Errorf("%w: a call of %s: %w", ratelimiter.ErrUnavailable, s.label(), err)
		}
		if tries.Replay && f.spends() && since == first {
			since = unknown // without a pause, since it takes nothing: what it was granted may soon be forgotten
		} else {
			tries.Pause(ctx.Done(), nil)
		}
	}
}

// left returns the error of a caller whose context ends with err, and that has waited for a reply since began. Last is how
// the last attempt failed, if one has.
func (s *Shared) left(err error, began time.Time, last error) error {
	return permit.Left("a call of "+s.label(), began, last, err)
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
func (s *Shared) state(text string) (state, error) {
	if text == "" {
		return s.config.algorithm.idle(), nil
	}
	if st, ok := s.config.algorithm.stored(text); ok {
		return st, nil
	}
	return nil, s.malformed()
}

// decide writes the outcomes of all requests of f into its calls. They are what the same arithmetic that the
// script has says in Go, from the same state and at the same instant. What is rejected from now on is
// known then.
func (s *Shared) decide(f *flight, reply []any, sent time.Time) error {
	now := reply[0].(int64)
	after, err := s.state(reply[1].(string))
	if err != nil {
		return err
	}
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
		q := demand{now: now, n: r.n, atMost: r.atMost, spend: r.spend}
		for _, call := range r.calls {
			d := after.take(q)
			if d.granted && r.spend {
				granted--
			}
			if !d.granted && log != nil {
				d.wait = wait
			}
			call.result = d.result()
			if call.mark != nil {
				*call.mark = d.mark
			}
			rejected = rejected || !d.granted
		}
		if r.spend && granted != 0 {
			// The script and Go have come to different results.
			return s.unexpected(reply)
		}
		if r.spend && log == nil && !rejected {
			q.spend, q.atMost = false, 0
			rejected = !after.take(q).granted
		}
	}
	s.config.known.learn(s, f, rejected, rejection{state: after, now: now, sent: sent})
	return nil
}

// decideAgain is decide for a call that has run before, whose reply was lost. What was rejected then, and what
// takes nothing, has no outcome: it is asked again.
func (s *Shared) decideAgain(f *flight, reply []any, answer string) error {
	now := reply[0].(int64)
	if s.config.algorithm.reserves() {
		then, text, _ := strings.Cut(answer, " ")
		at, err := strconv.ParseInt(then, 10, 64)
		if err != nil {
			return s.unexpected(reply)
		}
		before, err := s.state(text)
		if err != nil {
			return err
		}
		for i := range f.runs {
			r := &f.runs[i]
			for _, call := range r.calls {
				d := before.take(demand{now: at, n: r.n, atMost: r.atMost, spend: r.spend})
				call.again = !d.granted || !r.spend
				d.wait = max(0, d.wait-(now-at))
				d.reset = max(d.wait, d.reset-(now-at))
				call.result = d.result()
			}
		}
		return nil
	}
	current, err := s.state(reply[1].(string))
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
		d := current.take(demand{now: now, n: r.n})
		d.granted, d.wait = true, 0
		for _, call := range r.calls {
			call.result, call.again = d.result(), granted <= 0 || !r.spend
			if call.mark != nil && !call.again {
				*call.mark = current.(settler).markOf(now-elapsed(f.begun), r.n)
			}
			granted--
		}
	}
	return nil
}
