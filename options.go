package ratelimiter

import "time"

type config struct {
	clientID     string
	nameMapper   func(string) string
	clientClock  bool
	divided      bool // several parts of Redis hold the limiters
	sharedClock  bool // the clock is everybody's: that of Redis, or a test's
	memberFormat MemberFormat
	clientKeyTTL time.Duration
	recheck      time.Duration
	outageLimit  time.Duration
	refuseEarly  bool
	policy       OutagePolicy
	observer     func(Event)
}

// An Option configures a Client.
type Option func(*config)

// WithClientID names the client, for [PerClient] limiters. A name that a process takes again after a
// restart goes on with the permits it had; two processes of the same name share them. Redisson's id
// is a random UUID that cannot be chosen. The default is a random UUID.
func WithClientID(id string) Option {
	return func(c *config) { c.clientID = id }
}

// WithNameMapper gives the name under which Redis holds a limiter, as Redisson's NameMapper.map
// (3.15.4 and later) does: once, before the keys are made from it. [RateLimiter.Name] is not mapped.
// The default is the name itself.
func WithNameMapper(mapper func(name string) string) Option {
	return func(c *config) { c.nameMapper = mapper }
}

// WithClientClock takes the time from this process, as Redisson does. Then a clock that is fast or
// slow against the others' changes what the window holds. The default is the clock of Redis, which
// all clients share.
func WithClientClock() Option {
	return func(c *config) { c.clientClock, c.sharedClock = true, false }
}

// WithMemberFormat sets the layout of the members that this client writes; it reads all. MemberLc0I
// is for a limiter shared with Redisson 3.16.4 to 3.16.8, which read no other. The default is
// MemberBc0I, in a form that 3.13.3 to 3.16.3 read too.
func WithMemberFormat(f MemberFormat) Option {
	return func(c *config) { c.memberFormat = f }
}

// WithClientKeyTTL sets how long Redis keeps the permits in use of a [PerClient] client that no
// longer acquires, where the limiter itself has no TTL; Redisson keeps them for ever. It is never
// less than two intervals, so that it forgets nothing that counts. 0 keeps them for ever.
// The default is one hour.
func WithClientKeyTTL(ttl time.Duration) Option {
	return func(c *config) { c.clientKeyTTL = ttl }
}

// WithRecheck sets how long a waiting caller sleeps at most before it asks Redis again, however long
// the wait that Redis answered: the bound within which it notices a release, a new rate or a deleted
// limiter of another process. Changes made through this Client wake it at once.
// The default is one second.
func WithRecheck(d time.Duration) Option {
	return func(c *config) { c.recheck = d }
}

// WithEarlyRefusal refuses a caller with a timeout as soon as it is known that the permits take longer
// than the time it has left, instead of letting it sleep. It may miss a release or a new rate that
// would have served it. The default is to sleep the time left and then answer false, as Redisson does.
func WithEarlyRefusal() Option {
	return func(c *config) { c.refuseEarly = true }
}

// WithOutageLimit sets how long callers that wait go on waiting while Redis is away, as far as their
// timeout and context let them; then they get ErrUnavailable. Until then they notice an outage only
// as a longer wait. Callers that do not wait get it as soon as Redis is known to be away. Those whose
// outage policy is open or a local share need no limit: they are served without Redis.
// The default is 30 seconds.
func WithOutageLimit(d time.Duration) Option {
	return func(c *config) { c.outageLimit = d }
}

// WithOutagePolicy sets what becomes of requests for permits while Redis is away; [RateLimiter.OnOutage]
// does it for one limiter. The default is FailClosed.
func WithOutagePolicy(p OutagePolicy) Option {
	return func(c *config) { c.policy = p }
}

func (c *config) validate() error {
	if c.clientID == "" {
		return invalid("client id is empty")
	}
	if c.nameMapper == nil {
		return invalid("name mapper is nil")
	}
	if c.memberFormat != MemberBc0I && c.memberFormat != MemberLc0I {
		return invalid("member format %v cannot be written: Bc0I and Lc0I can", c.memberFormat)
	}
	if ttl, err := millis("client key TTL", c.clientKeyTTL); err != nil {
		return err
	} else if ttl < 0 {
		return invalid("client key TTL %v is negative", c.clientKeyTTL)
	}
	if c.recheck < time.Millisecond {
		return invalid("recheck of %v is shorter than a millisecond", c.recheck)
	}
	if c.outageLimit < 0 {
		return invalid("outage limit %v is negative", c.outageLimit)
	}
	return c.policy.Validate()
}
