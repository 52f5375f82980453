// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
)

// The parameters in force lie in one Redis key for each name, the record.

const (
	// followEvery is how often a process looks at the record while it makes calls, and followAgain how soon after it could not.
	followEvery, followAgain = 10 * time.Second, time.Second
	// recordFor is for how long the record stays if no process looks at it.
	recordFor = 30 * 24 * time.Hour
)

// A StateOnChange says what becomes of the state of a limiter, the permits that were spent, when its parameters change. It is
// [KeepState], as in [ratelimiter.KeepState], or [ForgetState].
type StateOnChange int

const (
	// KeepState makes the permits that were spent count by the new parameters.
	KeepState StateOnChange = iota + 1
	// ForgetState makes the limiter of each key begin anew, once for all processes. Until they follow, for up to ten
	// seconds, those with the old parameters grant what these allow in addition.
	ForgetState
)

// WithFleetParameters makes all processes that use the name obey the same parameters, those of the process that began
// last, so that a rolling update changes one limit instead of making a second one. All processes of a name need the option;
// its Redis keys are other ones than those without it.
//
// A process sets its parameters once, with its first call or in [Shared.Start]. The others look every ten seconds while they
// make calls, and follow; until then each obeys its own, on the same state with KeepState. Calls in flight, and turns that
// were granted in advance, end by the old parameters. So an old process that restarts during an update brings the old
// parameters back until the next new one begins. Each process reports a change once, by an event of kind
// ratelimiter.RateChanged.
//
// After a change no more than the new Bound is granted, and while processes with the old and the new parameters take turns no more
// than by the largest of both. What KeepState means for each algorithm is in docs/algorithms.md: counts are compared with the new limit, and
// what was granted comes back as it was granted. A [Grant] from before a change may give nothing back when it is settled.
//
// The first call returns ratelimiter.ErrInvalidArgument if other processes use the name with another algorithm, or a
// CalendarQuota with another calendar. The parameters are in the key "limit2:{NAME}:parameters", which Redis deletes after
// 30 days without use. If Redis loses it, the next process that looks sets its own again, and the permits spent stay spent.
func WithFleetParameters(state StateOnChange) Option {
	return func(c *config) {
		if state != KeepState && state != ForgetState {
			c.err = calls.Invalid("WithFleetParameters: %d is neither KeepState nor ForgetState", int(state))
			return
		}
		c.fleet = &fleet{forget: state == ForgetState, busy: make(chan struct{}, 1)}
	}
}

// A fleet is what a process knows of the parameters in force.
type fleet struct {
	forget bool
	due    atomic.Pointer[time.Time] // when to look again; nil before the process has begun
	busy   chan struct{}             // has an element while somebody begins or looks
	bad    string                    // a record that the Hooks were told of, since it cannot be followed
}

// Start makes the parameters of this process those of the fleet; see [WithFleetParameters]. Without it the first call does that. It
// returns ratelimiter.ErrInvalidArgument if others use the name with another algorithm, ratelimiter.ErrMalformed if the key
// holds what no limiter writes, and otherwise the errors of a call. After an error it can be called again. Once it was
// successful, and without the option, it does nothing.
func (s *Shared) Start(ctx context.Context) error {
	if err := s.unusable(); err != nil {
		return err
	}
	if err := calls.ContextError(ctx); s.config.fleet == nil || err != nil {
		return err
	}
	return s.config.fleet.start(ctx, &s.calls)
}

// Follow begins, or has the record looked at if that is due.
func (f *fleet) Follow(ctx context.Context, s *calls.Shared) error {
	err := f.start(ctx, s)
	if err == nil && f.isDue() {
		select {
		case f.busy <- struct{}{}:
			go f.look(context.WithoutCancel(ctx), s)
		default: // somebody looks
		}
	}
	return err
}

// start begins, unless the process has.
func (f *fleet) start(ctx context.Context, s *calls.Shared) error {
	if f.due.Load() != nil {
		return nil
	}
	begin := time.Now()
	select {
	case f.busy <- struct{}{}:
	case <-ctx.Done():
		return s.Left(ctx.Err(), begin, nil)
	}
	defer func() { <-f.busy }()
	if f.due.Load() != nil {
		return nil
	}
	err := f.begin(ctx, s)
	if err == nil {
		f.lookIn(followEvery)
	}
	return err
}

// isDue reports whether the record is to be looked at.
func (f *fleet) isDue() bool { return !time.Now().Before(*f.due.Load()) }

func (f *fleet) lookIn(d time.Duration) {
	due := time.Now().Add(d)
	f.due.Store(&due)
}

// begin sets the parameters of this process, if others are in force.
func (f *fleet) begin(ctx context.Context, s *calls.Shared) error {
	c := s.Limiter()
	own := c.Now()
	is, err := exchange(ctx, s, "", "")
	for err == nil {
		next, was := own, (*calls.Setting)(nil)
		if is != "" {
			if was, err = readRecord(own, c.Name, is); err != nil {
				return err
			}
			if was.Algorithm == own.Algorithm {
				c.Current.Store(was)
				return nil
			}
			next = fleetSetting(own.Algorithm.(Algorithm), was.Generation)
			if f.forget {
				next.Generation = rand.Text()[:10]
			}
		}
		_, text := recordOf(next)
		before := is
		if is, err = exchange(ctx, s, text, before); err == nil && is == text {
			c.Current.Store(next)
			if was != nil {
				c.Event(ratelimiter.Event{Kind: ratelimiter.RateChanged, Err: fmt.Errorf("limit: %q: the parameters were %+v, and are %+v from now on", c.Name, was.Algorithm, next.Algorithm)})
			}
			return nil
		}
	}
	return err
}

// look learns which parameters are in force, and follows. It writes the record again if Redis has lost it.
func (f *fleet) look(ctx context.Context, s *calls.Shared) {
	defer func() { <-f.busy }()
	if !f.isDue() { // another look has ended just before
		return
	}
	was := s.Limiter().Now()
	_, text := recordOf(was)
	ctx, cancel := context.WithTimeout(ctx, followEvery/2)
	defer cancel()
	is, err := exchange(ctx, s, text, "")
	if err != nil {
		f.lookIn(followAgain)
		return
	}
	if is != text {
		f.follow(s.Limiter(), was, is)
	}
	f.lookIn(followEvery)
}

// follow goes by the record from now on, where it went by was.
func (f *fleet) follow(c *calls.Limiter, was *calls.Setting, text string) {
	next, err := readRecord(was, c.Name, text)
	if err != nil {
		if f.bad != text { // only the one that looks uses it
			f.bad = text
			c.Event(ratelimiter.Event{Kind: ratelimiter.RateChanged, Err: err})
		}
		return
	}
	c.Current.Store(next)
	c.Event(ratelimiter.Event{Kind: ratelimiter.RateChanged, Err: fmt.Errorf("limit: %q: the parameters were %+v, and another process has set %+v", c.Name, was.Algorithm, next.Algorithm)})
}

var parametersScript = func() *dispatch.Script {
	s := dispatch.Load(scriptFiles, "fleet/parameters", 1, 3)
	s.Alone = true
	return s
}()

// exchange writes the record want in place of was, if it is given, and returns that which is there.
func exchange(ctx context.Context, s *calls.Shared, want, was string) (string, error) {
	return s.Text(ctx, "the parameters of "+s.Label(), parametersScript, []string{recordKey(s.Limiter().Name)}, want, was, recordFor.Milliseconds())
}

// fleetSetting is newSetting for a limiter whose parameters change.
func fleetSetting(a Algorithm, generation string) *calls.Setting {
	n := newSetting(a)
	n.Generation = generation
	return n
}

// fleetSignature is what the Redis keys have in place of the parameters.
func fleetSignature(n *calls.Setting) string {
	if n.ParametersAt != nil {
		return signature(n) + ":fleet"
	}
	return stateName(n.Script) + ":fleet"
}

// A record is what Redis has about the parameters in force.
type record struct {
	Algorithm  string          `json:"algorithm"`
	Parameters json.RawMessage `json:"parameters"`
	Generation string          `json:"generation,omitempty"`
}

// recordOf returns the record of a setting, and its text.
func recordOf(n *calls.Setting) (r record, text string) {
	r = record{Algorithm: n.Script.Name, Generation: n.Generation}
	var parameters any = n.Algorithm
	switch a := n.Algorithm.(type) {
	case CalendarQuota:
		r.Algorithm, parameters = signature(n), struct{ Permits int64 }{a.Permits}
	case DebtBucket: // another limiter than those with which it shares a script
		r.Algorithm = "debt_bucket"
	}
	r.Parameters, _ = json.Marshal(parameters) // of numbers
	all, _ := json.Marshal(r)
	return r, string(all)
}

// readRecord returns the setting that text describes, which has the algorithm of n.
func readRecord(n *calls.Setting, name, text string) (*calls.Setting, error) {
	var r record
	own, _ := recordOf(n)
	if err := json.Unmarshal([]byte(text), &r); err != nil || r.Algorithm == "" {
		return nil, malformedRecord(name)
	}
	if r.Algorithm != own.Algorithm {
		return nil, calls.Invalid("other processes use the limiter %q with the algorithm %s, and this one with %s; give one of them another name",
			name, r.Algorithm, own.Algorithm)
	}
	v := reflect.New(reflect.TypeOf(n.Algorithm))
	v.Elem().Set(reflect.ValueOf(n.Algorithm))
	if err := json.Unmarshal(r.Parameters, v.Interface()); err != nil {
		return nil, malformedRecord(name)
	}
	a := v.Elem().Interface().(Algorithm)
	if a.check() != nil {
		return nil, malformedRecord(name)
	}
	return fleetSetting(a, r.Generation), nil
}

func malformedRecord(name string) error {
	return fmt.Errorf("%w: the key %s holds what no limiter writes; delete it, and a process that uses the limiter writes it anew",
		ratelimiter.ErrMalformed, recordKey(name))
}

func recordKey(name string) string { return calls.Layout + ":{" + name + "}:parameters" }
