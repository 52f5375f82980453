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

// WithClientID sets the client's id. In [PerClient] limiters the id separates the client's permits from those of
// others. A process that restarts with the same id finds the permits that it had in use; two processes with the same
// id share their permits, and if it is a UUID, they count as one process in every limiter that they wait for. Redisson's id is a
// random UUID that cannot be chosen. The default is a random UUID.
func WithClientID(id string) Option {
	return func(c *config) { c.clientID = id }
}

// WithNameMapper sets the function that maps a limiter's name to its name in Redis. As with NameMapper.map in
// Redisson 3.15.4 and later, the keys are made from the mapped name. [RateLimiter.Name] returns the name before
// mapping. The default is the identity.
func WithNameMapper(mapper func(name string) string) Option {
	return func(c *config) { c.nameMapper, c.mapsNames = mapper, true }
}

// WithClientClock takes the time from this process, as Redisson does. If the clock is ahead of or behind the clocks
// of other clients, windows hold more or fewer permits than the rate. The default is the clock of Redis, which all
// clients share.
func WithClientClock() Option {
	return func(c *config) { c.clientClock, c.sharedClock = true, false }
}

// WithRedisson316 makes this client write members in the layout of Redisson 3.16.4 to 3.16.8, which can read no other.
// Use it for limiters shared with those versions; a client reads all layouts, and reports [LayoutsMixed] where it meets grants
// that they, or readers of its own, cannot read. The default is the layout of Redisson 3.17.0 and later, written so that
// Redisson 3.13.3 to 3.16.3 can read it too.
func WithRedisson316() Option {
	return func(c *config) { c.longMembers = true }
}

// WithClientKeyTTL sets how long Redis keeps the permits in use of a [PerClient] client after its last acquire, if
// the limiter itself has no TTL. A ttl of 0 keeps them forever, as Redisson does. The TTL is never less than two
// intervals, so Redis forgets no permit that still counts. The default is one hour.
func WithClientKeyTTL(ttl time.Duration) Option {
	return func(c *config) { c.clientKeyTTL = ttl }
}

// WithRecheck sets the longest time that a waiting caller sleeps before it asks Redis again, even if Redis reported a
// longer wait. It asks after half of [Rate].KeepAlive if that is sooner, so its limiter does not expire. Within this
// time the caller notices that another process has released permits, set a new rate, or deleted the limiter. Changes
// made through this Client wake it at once. The default is one second.
func WithRecheck(d time.Duration) Option {
	return func(c *config) { c.recheck = d }
}

// WithEarlyRejection rejects a caller as soon as its permits are known to take longer than the time left until its
// timeout or the deadline of its context. If it is the context's deadline, the error wraps context.DeadlineExceeded and
// names the limiter and the wait. The caller does not sleep, and may thereby miss a release or a new rate that would
// have let it succeed. A caller that waits behind others is judged by the wait of the first of them, so it may be rejected
// only when those have been served. The default is to sleep for the time left and then return false, as Redisson does.
func WithEarlyRejection() Option {
	return func(c *config) { c.rejectEarly = true }
}

// WithCachedRejections lets the Client reject requests that do not wait, without asking Redis. It does so if Redis
// rejected an earlier request, for as many permits, no longer than bound ago, and the wait that Redis reported then is
// not over. A TryAcquire, which does not report the wait, is also rejected if the earlier request was for fewer. So a
// limiter without permits costs Redis about one call per bound for each number of permits, of which the Client
// remembers eight, no matter how many requests there are.
//
// For up to bound, a request may be rejected although permits were released, a new rate was set, or the limiter was
// deleted by another process. Changes made through this Client count at once. Result.Available is the number in
// Redis's reply. A Client remembers rejections of up to 8,192 limiters.
//
// It applies to [RateLimiter.Allow], and to [RateLimiter.TryAcquire] without a timeout; all other calls always query
// Redis. While Redis is known to be unavailable the [OutagePolicy] decides. To set it for one limiter, use
// [RateLimiter.CachedRejections]. The default is 0: each request asks Redis.
func WithCachedRejections(bound time.Duration) Option {
	return func(c *config) { c.cachedFor = bound }
}

// WithOutageLimit sets how long waiting callers go on waiting while Redis is unavailable; then they get
// ErrUnavailable. Their timeout and context may end the wait sooner. The time counts from when Redis is known to be
// unavailable, however long a caller had waited for permits before. For a caller that arrives during the outage it
// counts from its arrival.
//
// Callers that do not wait get ErrUnavailable as soon as the outage is known. Callers with the policies [FailOpen]
// and [LocalQuota] are served without Redis, and the limit does not apply to them. The default is 30 seconds.
func WithOutageLimit(d time.Duration) Option {
	return func(c *config) { c.outageLimit = d }
}

// WithOutagePolicy sets the policy that decides requests for permits while Redis is unavailable. To set it for one
// limiter, use [RateLimiter.OnOutage]. The default is [FailClosed].
func WithOutagePolicy(p OutagePolicy) Option {
	return func(c *config) { c.policy = p }
}

// WithSeparateCalls makes each script call a command of its own, for all that use the redis client. Use it for a proxy in
// front of several servers that replies to HELLO as one server does: it would run all calls of a command on the server
// of the first key, where package limit would let more pass. The default is that calls of one script that leave together travel in one EVALSHA, even if they are
// of different limiters, unless Redis is a cluster, is older than 6.2 or does not accept that.
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
