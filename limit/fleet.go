// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/dispatch"
)

// The parameters in force lie in one Redis key for each name, the record. A process sets its own once, when it begins, and
// from then on follows the record: so the last one to begin decides, and two with different parameters do not set theirs
// in turns.

const (
	// followEvery is how often a process looks at the record while it makes calls, and followAgain how soon after it could not.
	followEvery, followAgain = 10 * time.Second, time.Second
	// recordFor is for how long the record stays if no process looks at it.
	recordFor = 30 * 24 * time.Hour
)

// A SpentPermits says what becomes of the permits that were spent when the parameters of a limiter change. It is
// [KeepSpent] or [ForgetSpent].
type SpentPermits int

const (
	// KeepSpent makes them count by the new parameters.
	KeepSpent SpentPermits = iota + 1
	// ForgetSpent makes the limiter of each key begin anew, once for all processes. Until they follow, for up to ten
	// seconds, those with the old parameters grant what these allow in addition.
	ForgetSpent
)

// WithFleetParameters makes all processes that use the name obey the same parameters, those of the process that began
// last, so that a rolling update changes one limit instead of making a second one. All processes of a name need the option;
// its Redis keys are other ones than those without it.
//
// A process sets its parameters once, with its first call or in [Shared.Start]. The others look every ten seconds while they
// make calls, and follow; until then each obeys its own, on the same state with KeepSpent. Calls in flight, and turns that
// were granted in advance, end by the old parameters. So an old process that restarts during an update brings the old
// parameters back until the next new one begins. Each process reports a change once, by an event of kind
// ratelimiter.RateChanged.
//
// After a change no more than the new Bound is granted, and while processes with the old and the new parameters take turns no more
// than by the largest of both. What KeepSpent means for each algorithm is in docs/algorithms.md: counts are compared with the new limit, and
// what was granted comes back as it was granted. A [Grant] from before a change gives nothing back when it is settled.
//
// The first call returns ratelimiter.ErrInvalidArgument if other processes use the name with another algorithm, or a
// CalendarQuota with another calendar. The parameters are in the key "limit2:{NAME}:parameters", which Redis deletes after
// 30 days without use. If Redis loses it, the next process that looks sets its own again, and the permits spent stay spent.
func WithFleetParameters(spent SpentPermits) Option {
	return func(c *config) {
		if spent != KeepSpent && spent != ForgetSpent {
			c.err = invalid("WithFleetParameters: %d is neither KeepSpent nor ForgetSpent", int(spent))
			return
		}
		c.fleet = &fleet{forget: spent == ForgetSpent, starting: make(chan struct{}, 1)}
	}
}

// A fleet is what a process knows of the parameters in force.
type fleet struct {
	forget   bool
	starting chan struct{} // has an element while a caller begins

	mu      sync.Mutex
	began   bool
	looking bool
	due     time.Time // when to look again
	bad     string    // a record that the Hooks were told of, since it cannot be followed
}

// now returns the setting by which requests are decided, as far as is known.
func (c *config) now() *setting { return c.current.Load() }

// ofFleet returns n if the parameters change.
func (c *config) ofFleet(n *setting) *setting {
	if c.fleet == nil {
		return nil
	}
	return n
}

// redisKeys returns the Redis keys of the state by a setting.
func (s *Shared) redisKeys(n *setting) []string {
	if n.generation == "" {
		return s.keys
	}
	return redisKeys(s.config.name, s.key, s.config.signature+":"+n.generation, len(s.keys))
}

// inForce returns the setting by which q is decided, and begins or has the record looked at if that is due.
func (s *Shared) inForce(ctx context.Context, q demand) (*setting, error) {
	c, f := s.config, s.config.fleet
	if f == nil {
		return s.now(), nil
	}
	if err := s.Start(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	if !f.looking && !time.Now().Before(f.due) {
		f.looking = true
		go s.look(context.WithoutCancel(ctx))
	}
	f.mu.Unlock()
	n := c.now()
	if q.n > 0 {
		return n, q.check(&n.model)
	}
	return n, nil
}

// withoutSetting returns the outcome of q where inForce has returned err.
func (s *Shared) withoutSetting(ctx context.Context, q demand, err error) (ratelimiter.Result, error) {
	if ctx.Err() != nil || !errors.Is(err, ratelimiter.ErrUnavailable) {
		return ratelimiter.Result{}, err
	}
	return s.decideLocally(q, err)
}

// Start makes the parameters of this process those of the fleet; see [WithFleetParameters]. Without it the first call does that. It
// returns ratelimiter.ErrInvalidArgument if others use the name with another algorithm, ratelimiter.ErrMalformed if the key
// holds what no limiter writes, and otherwise the errors of a call. After an error it can be called again. Once it was
// successful, and without the option, it does nothing.
func (s *Shared) Start(ctx context.Context) error {
	if err := s.unusable(); err != nil {
		return err
	}
	f := s.config.fleet
	if err := contextError(ctx); f == nil || err != nil || f.hasBegun() {
		return err
	}
	begin := time.Now()
	select {
	case f.starting <- struct{}{}:
	case <-ctx.Done():
		return s.left(ctx.Err(), begin, nil)
	}
	defer func() { <-f.starting }()
	if f.hasBegun() {
		return nil
	}
	err := s.begin(ctx)
	if err == nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.began, f.due = true, time.Now().Add(followEvery)
	}
	return err
}

func (f *fleet) hasBegun() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.began
}

// begin sets the parameters of this process, if others are in force.
func (s *Shared) begin(ctx context.Context) error {
	c := s.config
	own := c.now()
	is, err := s.record(ctx, "", "")
	for err == nil {
		next, was := own, (*setting)(nil)
		if is != "" {
			if was, err = own.read(c.name, is); err != nil {
				return err
			}
			if sameParameters(was, own) {
				c.current.Store(was)
				return nil
			}
			next = fleetSetting(own.algorithm, was.generation)
			if c.fleet.forget {
				next.generation = newGeneration()
			}
		}
		_, text := recordOf(next)
		before := is
		if is, err = s.record(ctx, text, before); err == nil && is == text {
			c.current.Store(next)
			if was != nil {
				c.event(ratelimiter.Event{Kind: ratelimiter.RateChanged, Err: fmt.Errorf("limit: %q: the parameters were %+v, and are %+v from now on", c.name, was.algorithm, next.algorithm)})
			}
			return nil
		}
	}
	return err
}

// look learns which parameters are in force, and follows. It writes the record again if Redis has lost it.
func (s *Shared) look(ctx context.Context) {
	c, f := s.config, s.config.fleet
	was := c.now()
	_, text := recordOf(was)
	ctx, cancel := context.WithTimeout(ctx, followEvery/2)
	defer cancel()
	is, err := s.record(ctx, text, "")
	if err == nil && is != text {
		s.follow(was, is)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looking, f.due = false, time.Now().Add(followEvery)
	if err != nil {
		f.due = time.Now().Add(followAgain)
	}
}

// follow goes by the record from now on, where it went by was.
func (s *Shared) follow(was *setting, text string) {
	c := s.config
	next, err := was.read(c.name, text)
	if err != nil {
		if c.fleet.bad != text { // only the one that looks uses it
			c.fleet.bad = text
			c.event(ratelimiter.Event{Kind: ratelimiter.RateChanged, Err: err})
		}
		return
	}
	c.current.Store(next)
	c.event(ratelimiter.Event{Kind: ratelimiter.RateChanged, Err: fmt.Errorf("limit: %q: the parameters were %+v, and another process has set %+v", c.name, was.algorithm, next.algorithm)})
}

var parametersScript = func() *dispatch.Script {
	s := dispatch.Load(scriptFiles, "fleet/parameters", 1, 3)
	s.Alone = true
	return s
}()

// record writes the record want in place of was, if it is given, and returns that which is there.
func (s *Shared) record(ctx context.Context, want, was string) (string, error) {
	c := s.config
	cmd, err := parametersScript.Command([]string{recordKey(c.name)}, want, was, recordFor.Milliseconds())
	if err != nil {
		return "", err
	}
	var reply any
	err = s.untilDone(ctx, "the parameters of "+s.label(), func() error {
		sent := time.Now()
		reply, err = parametersScript.Once(ctx, c.rdb, cmd)
		c.called(parametersScript.Name, 1, sent, err)
		return err
	})
	if err != nil {
		return "", err
	}
	text, ok := reply.(string)
	if !ok {
		return "", s.unexpected(reply)
	}
	return text, nil
}
