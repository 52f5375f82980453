// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"context"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter"
)

// maxLimiters is the size of a generation of limiters: a Transport remembers up to twice as many. The rate of one that is
// forgotten is compared once more.
const maxLimiters = 4096

// maxKept bounds how many limiters a Transport remembers beside those, because a ban of theirs lasts.
const maxKept = 4096

// A limiters holds the limiters that a Transport used recently: two generations, the older of which is dropped when the
// younger is full. A list in order of use would cost a lock and a move for every request. Those with a ban
// that lasts are kept beside them.
type limiters struct {
	client *ratelimiter.Client
	mu     sync.Mutex
	young  map[string]*limiter
	old    map[string]*limiter
	kept   map[string]*limiter
	away   time.Time // until then Redis is not asked for bans: it did not answer
}

// A limiter is one of them.
type limiter struct {
	name   string
	handle *ratelimiter.RateLimiter
	client *ratelimiter.Client
	rate   ratelimiter.Rate // zero: it is set elsewhere
	alone  bool             // a quota without a rate, which Redis knows nothing of by this name
	set    uint64           // in which a Limit first named it: the set itself would live as long as the limiter

	*limiterState
}

// A limiterState is what this process knows of a limiter, whatever the rules say of it.
type limiterState struct {
	asking chan struct{} // holds one token while somebody asks whether the ban still lasts

	mu       sync.Mutex
	compared bool // the rate in Redis was compared with rate
	back     backOff
	ban      ban
	telling  bool      // Redis will be told of ban by tellLater
	looked   time.Time // when Redis was last asked for a ban that others met
	hosts    map[string]*hostHold
	sharing  bool // some of hosts are those of sharedHost
}

func newLimiters(client *ratelimiter.Client) *limiters {
	return &limiters{client: client, young: map[string]*limiter{}}
}

// get returns the limiter of that name, as the first Limit in the set that named it defines it.
func (s *limiters) get(name string, l *Limit, set uint64) *limiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := keyOf(name, l.alone())
	found := s.young[key]
	if found != nil && found.set == set {
		return found
	}
	if found == nil {
		found = s.old[key]
	}
	if found == nil {
		found = s.kept[key]
	}
	if found == nil || found.set != set {
		found = s.renew(found, name, l, set)
	}
	if len(s.young) >= maxLimiters {
		s.old, s.young = s.young, map[string]*limiter{}
	}
	s.young[key] = found
	return found
}

// keyOf returns under what a limiter is kept: a quota alone is another one than the limiter of that name.
func keyOf(name string, alone bool) string {
	if alone {
		return "\x00" + name
	}
	return name
}

// renew returns a limiter as a Limit of a set defines it, with the state that is known. The limiter under other rules
// is old, or nil. Requests that have begun go on with old.
func (s *limiters) renew(old *limiter, name string, limit *Limit, set uint64) *limiter {
	l := &limiter{name: name, handle: s.client.RateLimiter(name), client: s.client, rate: limit.Rate, set: set, alone: limit.alone()}
	if limit.Rate != (ratelimiter.Rate{}) {
		l.handle = l.handle.WithRate(limit.Rate)
	}
	if limit.OutagePolicy != nil {
		l.handle = l.handle.OnOutage(*limit.OutagePolicy)
	}
	if old == nil {
		l.limiterState = &limiterState{asking: make(chan struct{}, 1)}
		return l
	}
	l.limiterState = old.limiterState
	l.mu.Lock()
	defer l.mu.Unlock()
	l.compared = l.compared && l.rate == old.rate
	return l
}

// keep keeps l in memory until its bans are over, however many other limiters are used meanwhile. Beyond maxKept
// limiters it forgets those whose bans are over; if there are none, it forgets the one whose ban ends first among
// those that Redis knows as well.
func (s *limiters) keep(l *limiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil {
		s.kept = map[string]*limiter{}
	}
	key := keyOf(l.name, l.alone)
	if s.kept[key] == nil && len(s.kept) >= maxKept {
		now := time.Now()
		var first *limiter
		var ends time.Time
		var alone bool
		for name, k := range s.kept {
			if end, a := k.bannedUntil(now); !end.After(now) {
				delete(s.kept, name)
			} else if first == nil || alone && !a || alone == a && end.Before(ends) {
				first, ends, alone = k, end, a
			}
		}
		if len(s.kept) >= maxKept {
			delete(s.kept, keyOf(first.name, first.alone))
		}
	}
	s.kept[key] = l
}

// bannedUntil returns the end of the latest ban of the limiter, including bans of single hosts. It also reports
// whether a ban of a single host lasts, which this process alone knows of.
func (l *limiter) bannedUntil(now time.Time) (end time.Time, alone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	end = l.ban.until
	for _, h := range l.hosts {
		if h.until.After(end) {
			end = h.until
		}
		alone = alone || h.until.After(now)
	}
	return end, alone || l.alone
}

// leastTime is how long a call of Redis may take for a request that may not wait at all.
const leastTime = 100 * time.Millisecond

// within bounds a question to Redis for a request that may wait until end.
func within(ctx context.Context, end time.Time) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, max(time.Until(end), leastTime))
}

// compareRates reports a limiter whose rate differs from the rule's, the first time that Redis has replied for it. A
// change of the rule does not change a rate in Redis, unless WithRuleRates is set, and a limit that nobody keeps
// should be noticed. If Redis does not reply now, a later request asks it. compareRates runs after the rejection or
// the platform's response, and not between the permits and the sending: a delay there makes requests arrive closer
// together than they were granted.
func (c *roundTrip) compareRates() {
	for _, d := range c.plan.demands {
		if d.rate == (ratelimiter.Rate{}) || !d.claimComparison() {
			continue
		}
		bounded, cancel := c.context(leastTime)
		is, err := d.handle.Rate(bounded)
		e := c.event
		e.Kind, e.Limiter = EventRateDiffers, d.name
		e.Reason = Reason("it is " + is.String() + ", the rule says " + d.rate.String())
		if err == nil && is != d.rate && c.t.cfg.setRates {
			_, err = d.handle.UpdateRate(bounded, d.rate, ratelimiter.KeepState())
			e.Reason = Reason("it was " + is.String() + ", the rule says " + d.rate.String() + ", which is set")
		}
		cancel()
		if err != nil {
			d.mu.Lock()
			d.compared = false
			d.mu.Unlock()
		} else if is != d.rate {
			c.t.emit(e)
		}
	}
}

// claimComparison reports whether the caller is the first, who has to compare the rate.
func (l *limiter) claimComparison() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := !l.compared
	l.compared = true
	return first
}
