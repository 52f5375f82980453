package httplimit

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter"
)

// maxLimiters is how many limiters a Transport remembers, up to twice of it. One that is forgotten is
// asked for its rate once more.
const maxLimiters = 4096

// A limiters is the limiters that a Transport used of late: two generations, the older of which goes
// when the younger is full. A list in order of use would cost a lock and a move for every request.
type limiters struct {
	client *ratelimiter.Client
	mu     sync.Mutex
	young  map[string]*limiter
	old    map[string]*limiter
}

// A limiter is one of them.
type limiter struct {
	name   string
	handle *ratelimiter.RateLimiter
	rate   ratelimiter.Rate // zero: it is set elsewhere

	busy chan struct{} // holds one token while somebody sets the rate

	mu     sync.Mutex
	rated  bool // the rate was set, or was there
	back   backOff
	until  time.Time     // the latest cool-down that this process began
	reopen time.Duration // of that one
	untold bool          // Redis does not know of it
	tell   time.Time     // when to try again
	hosts  map[string]*hostHold
}

func newLimiters(client *ratelimiter.Client) *limiters {
	return &limiters{client: client, young: map[string]*limiter{}}
}

func (s *limiters) get(name string, l *Limit) *limiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.young[name]; found != nil {
		return found
	}
	found := s.old[name]
	if found == nil {
		handle := s.client.RateLimiter(name)
		if l.OutagePolicy != nil {
			handle = handle.OnOutage(*l.OutagePolicy)
		}
		found = &limiter{name: name, handle: handle, rate: l.Rate, busy: make(chan struct{}, 1)}
	}
	if len(s.young) >= maxLimiters {
		s.old, s.young = s.young, map[string]*limiter{}
	}
	s.young[name] = found
	return found
}

// prepare gives the limiters their rates where they have none, once for each in this process. again
// does it although it was done: a limiter expires, or is deleted. A Redis that is away is no error
// here: what then happens is the outage policy's to say.
func (t *Transport) prepare(ctx context.Context, p *plan, event Event, again bool) error {
	for _, d := range p.demands {
		if err := t.prepareOne(ctx, d.limiter, event, again); err != nil && !errors.Is(err, ratelimiter.ErrUnavailable) {
			return err
		}
	}
	return nil
}

func (t *Transport) prepareOne(ctx context.Context, l *limiter, event Event, again bool) error {
	if l.rate == (ratelimiter.Rate{}) || !again && l.isRated() {
		return nil
	}
	select {
	case l.busy <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-l.busy }()
	if !again && l.isRated() {
		return nil
	}
	set, err := l.handle.TrySetRate(ctx, l.rate)
	if err != nil {
		return err
	}
	if !set {
		if err := t.compareRate(ctx, l, event); err != nil {
			return err
		}
	}
	l.mu.Lock()
	l.rated = true
	l.mu.Unlock()
	return nil
}

// compareRate tells when the limiter goes by another rate than the rule's: a change of the rule does
// not change a rate that is in Redis, and a limit that nobody keeps should be seen.
func (t *Transport) compareRate(ctx context.Context, l *limiter, event Event) error {
	is, err := l.handle.Rate(ctx)
	if err != nil || is.Permits == l.rate.Permits && is.Interval == l.rate.Interval && is.Type == l.rate.Type {
		return ignore(err, ratelimiter.ErrNotInitialized)
	}
	event.Kind, event.Limiter = EventRateDiffers, l.name
	event.Reason = "it is " + is.String() + ", the rule says " + l.rate.String()
	t.emit(event)
	return nil
}

func ignore(err, target error) error {
	if errors.Is(err, target) {
		return nil
	}
	return err
}

func (l *limiter) isRated() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rated
}
