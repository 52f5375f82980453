// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"time"
)

type config struct {
	clientID     string
	nameMapper   func(string) string
	mapsNames    bool
	clientClock  bool
	divided      bool // the limiters are spread over several parts of Redis
	sharedClock  bool // all clients use the same clock: that of Redis, or that of a test
	longMembers  bool
	clientKeyTTL time.Duration
	recheck      time.Duration
	outageLimit  time.Duration
	rejectEarly  bool
	cachedFor    time.Duration
	policy       OutagePolicy
	hooks        []Hook
	separate     bool // each script call is a command of its own
}

// An Option configures a Client.
type Option func(*config)

// WithClientID sets the client's id, which separates its permits of [PerClient] limiters from those of others. A
// process that restarts with the same id finds the permits that it had in use; two with the same id share their
// permits, and wait as one process. The default is a random UUID, as in Redisson, where it cannot be chosen.
func WithClientID(id string) Option {
	return func(c *config) { c.clientID = id }
}

// WithNameMapper sets the function that maps a limiter's name to its name in Redis, like NameMapper.map in Redisson
// 3.15.4 and later. The default is the identity.
func WithNameMapper(mapper func(name string) string) Option {
	return func(c *config) { c.nameMapper, c.mapsNames = mapper, true }
}

// WithClientClock takes the time from this process, as Redisson does. If its clock differs from that of other clients,
// windows hold more or fewer permits than the rate. The default is the clock of Redis, which all clients share.
func WithClientClock() Option {
	return func(c *config) { c.clientClock, c.sharedClock = true, false }
}

// WithRedisson316 makes this client write members in the layout of Redisson 3.16.4 to 3.16.8, which can read no other,
// for limiters shared with those versions. A client reads all layouts. The default is the layout of Redisson 3.17.0 and
// later, which Redisson 3.13.3 to 3.16.3 can read too.
func WithRedisson316() Option {
	return func(c *config) { c.longMembers = true }
}

// WithClientKeyTTL sets how long Redis keeps the permits in use of a [PerClient] client after its last acquire, if the
// limiter itself has no TTL: at least two intervals, or with 0 forever, as Redisson does. The default is one hour.
func WithClientKeyTTL(ttl time.Duration) Option {
	return func(c *config) { c.clientKeyTTL = ttl }
}

// WithRecheck sets the longest time that a waiting caller sleeps before it asks Redis again, or half of
// [Rate].KeepAlive if that is shorter. That is how late it notices a release, a new rate or a deletion by another
// process. The default is one second.
func WithRecheck(d time.Duration) Option {
	return func(c *config) { c.recheck = d }
}

// WithEarlyRejection rejects a caller as soon as its permits are known to take longer than its timeout or the deadline
// of its context, for which the error wraps context.DeadlineExceeded. It may thereby miss a release or a new rate. A
// caller behind others may have to wait for them first. The default is to sleep for the time left and then return
// false, as Redisson does.
func WithEarlyRejection() Option {
	return func(c *config) { c.rejectEarly = true }
}

// WithCachedRejections lets [RateLimiter.Allow], and [RateLimiter.TryAcquire] without a timeout, reject requests
// without asking Redis: for up to bound after Redis rejected one for as many permits (for TryAcquire, as many or
// fewer), while the wait that it reported is not over. Meanwhile a request may be rejected although another process
// released permits, set a new rate, or deleted the limiter; changes made through this Client count at once. The default
// is 0: each request asks Redis. For one limiter use [RateLimiter.CachedRejections].
func WithCachedRejections(bound time.Duration) Option {
	return func(c *config) { c.cachedFor = bound }
}

// WithOutageLimit sets how long callers go on waiting, within their timeout and context, from when Redis is known to be
// unavailable, or from when they arrive after that; then they get ErrUnavailable, unless their [OutagePolicy] serves
// them. The default is 30 seconds.
func WithOutageLimit(d time.Duration) Option {
	return func(c *config) { c.outageLimit = d }
}

// WithOutagePolicy sets the policy that decides requests while Redis is unavailable; [RateLimiter.OnOutage] sets it for
// one limiter. The default is [FailClosed].
func WithOutagePolicy(p OutagePolicy) Option {
	return func(c *config) { c.policy = p }
}

// WithSeparateCalls makes each script call a command of its own, for all that use the redis client. Use it for a proxy
// in front of several servers that replies to HELLO as one does. By default calls of one script share an EVALSHA where
// Redis is one server, 6.2 or later.
func WithSeparateCalls() Option {
	return func(c *config) { c.separate = true }
}

func (c *config) validate() error {
	if c.clientID == "" {
		return invalid("WithClientID: the id is empty")
	}
	if c.nameMapper == nil {
		return invalid("WithNameMapper: the function is nil")
	}
	if ttl, err := millis("WithClientKeyTTL:", c.clientKeyTTL); err != nil {
		return err
	} else if ttl < 0 {
		return invalid("WithClientKeyTTL: %v is negative; 0 keeps the keys forever", c.clientKeyTTL)
	}
	if c.recheck < time.Millisecond {
		return invalid("WithRecheck: %v is shorter than a millisecond", c.recheck)
	}
	if c.cachedFor < 0 {
		return invalid("WithCachedRejections: %v is negative", c.cachedFor)
	}
	if c.outageLimit < 0 {
		return invalid("WithOutageLimit: %v is negative", c.outageLimit)
	}
	return c.policy.Validate()
}
