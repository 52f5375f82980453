// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit/internal/keyname"
)

type config struct {
	base        http.RoundTripper
	rules       []Rule
	detectors   []Detector
	events      func(Event)
	maxWait     time.Duration // negative: not set
	rejectEarly bool
	setRates    bool
	dryRun      bool
	respond     bool // a rejection is a response
	retries     int
	peek        int
	hold        time.Duration
	backOff     time.Duration
	maxBackOff  time.Duration
	maxCoolDown time.Duration
	maxRetry    time.Duration
	hashKey     []byte
	hashKeySet  bool
}

// An Option configures a Transport.
type Option func(*config)

// WithBase sets the RoundTripper that sends the requests. The default is http.DefaultTransport.
func WithBase(base http.RoundTripper) Option { return func(c *config) { c.base = base } }

// WithRules adds rules. Without rules every request passes. The default is none.
func WithRules(rules ...Rule) Option {
	return func(c *config) { c.rules = append(c.rules, rules...) }
}

// WithProfile adds the rules of a profile. The default is none.
func WithProfile(p Profile) Option { return WithRules(p.Rules...) }

// WithDetectors adds detectors that look at every response, after the detectors of the rules that matched. The
// default is none.
func WithDetectors(detectors ...Detector) Option {
	return func(c *config) { c.detectors = append(c.detectors, detectors...) }
}

// WithEvents sets the function that gets every event. It is called in the goroutine in which the event happens, and
// must not block. The default is none.
func WithEvents(f func(Event)) Option { return func(c *config) { c.events = f } }

// WithMaxWait bounds the wait for permits, in addition to the request's context. With 0, requests that cannot be sent
// at once are rejected. With a large d, a request without a deadline waits for the end of a cool-down, however far
// off it is. A negative d is an error of New. The default is no bound but the context's, and [DefaultMaxWait] if the context
// sets none.
func WithMaxWait(d time.Duration) Option {
	return func(c *config) {
		if c.maxWait = d; d < 0 {
			c.maxWait = badDuration
		}
	}
}

// WithEarlyRejection rejects a request as soon as its wait is known to be too long, instead of when its time is up, as
// ratelimiter.WithEarlyRejection does for the calls of a Client.
// It costs a second call of Redis for each request that waits, may overtake requests that wait already, and may miss
// permits that become available early. The default is to wait as long as the request may.
func WithEarlyRejection() Option { return func(c *config) { c.rejectEarly = true } }

// WithDryRun sends every request at once, and reports in events which requests would have been rejected. Redis counts
// the permits, so others that share the limiter find fewer. Nothing is cooled down. Redis delays a request by 100 ms
// at most. The default is to limit.
func WithDryRun() Option { return func(c *config) { c.dryRun = true } }

// WithRetry sends a throttled request again, up to n times, each time at the end of the penalty and with permits of
// its own. It does so if all of this holds, and otherwise returns the response:
//
//   - a detector reported the request throttled, so it was not executed;
//   - the status is less than 500, since a 503 may come after the request was executed, or the request's method is
//     idempotent, or its header has an Idempotency-Key;
//   - the request has no body, or has GetBody;
//   - the response's body ended within the bytes read ahead, see [WithPeek];
//   - the penalty is not a ban, and ends within the time that the request may wait.
//
// The default is 0.
func WithRetry(n int) Option { return func(c *config) { c.retries = n } }

// WithPeek sets how many bytes of a body are read ahead for the detectors, 1 to 65,536, and for how long a
// response is held back for that. If the body has not ended by then, it reaches the caller as it arrives, while the
// detectors wait for the rest. The default is 65,536 and 50 ms.
func WithPeek(bytes int, hold time.Duration) Option {
	return func(c *config) { c.peek, c.hold = bytes, hold }
}

// WithBackOff sets how long to cool down if the platform does not say: first, and twice as long as the last time, up
// to most, if it throttles again before as long has passed since that one ended. First is at least 1 ms, and most at least
// first. The default is 1 s, up to 1 min.
func WithBackOff(first, most time.Duration) Option {
	return func(c *config) { c.backOff, c.maxBackOff = first, most }
}

// WithMaxCoolDown bounds every cool-down, so a platform's wrong response cannot silence the fleet for years.
// Detectors have tighter bounds of their own. The default is 31 days, because some quotas are monthly.
func WithMaxCoolDown(d time.Duration) Option { return func(c *config) { c.maxCoolDown = d } }

// WithMaxRetryAfter bounds the wait that a Retry-After or RateLimit field can demand, up to a day. It is
// needed because the responding host chooses the number. If a wait was cut, its event has the time that was asked
// for. The default is an hour, the longest window of a documented limit whose
// end such a header names (GitHub's): a host that asks for more is sent one request an hour.
func WithMaxRetryAfter(d time.Duration) Option { return func(c *config) { c.maxRetry = d } }

// WithHashKey sets the key for hashes of secrets in limiters' names: the parts {…|hash} of a [Limit.Name], and
// thereby the robots' tokens of the profiles; see [KeyedHash]. A key has at least 16 bytes, and must be the same in
// all processes that share the limiters. A new key makes new limiters: while a fleet changes over, its old and its
// new limiters each grant the full rate. The default is no key: [Hash].
func WithHashKey(key []byte) Option {
	return func(c *config) { c.hashKey, c.hashKeySet = slices.Clone(key), true }
}

// WithRuleRates makes the rates of the rules override those in Redis. If a limiter has another rate than its Limit,
// the Transport sets the Limit's rate in Redis, for all processes and Java. It keeps the permits in use, and
// [EventRateDiffers] has both rates.
//
// The Transport compares the rates when it first uses the limiter, or first after [Transport.SetRules]. It sets a
// rate only once, and leaves what is set later; so the process that started last decides, and two processes do not
// alternate. The request that finds the other rate is still decided by it. The default is that a limiter keeps its
// rate, which Java or an operator may have set.
func WithRuleRates() Option { return func(c *config) { c.setRates = true } }

// badDuration is a maxWait that New rejects.
const badDuration = -1 << 63

func (c *config) validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ratelimiter.ErrInvalidArgument, fmt.Sprintf(format, args...))
	}
	switch {
	case c.base == nil:
		return bad("WithBase: the base is nil")
	case c.maxWait == badDuration:
		return bad("WithMaxWait: the wait is negative; 0 rejects what cannot be sent at once")
	case c.retries < 0:
		return bad("WithRetry: %d is negative", c.retries)
	case c.peek < 1 || c.peek > maxPeek:
		return bad("WithPeek: %d bytes are not in 1..%d", c.peek, maxPeek)
	case c.hold < 0:
		return bad("WithPeek: a hold of %v is negative", c.hold)
	case c.backOff < time.Millisecond || c.maxBackOff < c.backOff:
		return bad("WithBackOff: %v up to %v; the first is at least 1ms, the second at least the first", c.backOff, c.maxBackOff)
	case c.maxCoolDown < time.Millisecond:
		return bad("WithMaxCoolDown: %v is shorter than 1ms", c.maxCoolDown)
	case c.hashKeySet && len(c.hashKey) < keyname.MinKey:
		return bad("WithHashKey: a key of %d bytes is shorter than %d", len(c.hashKey), keyname.MinKey)
	case c.maxRetry < time.Millisecond || c.maxRetry > maxPenalty:
		return bad("WithMaxRetryAfter: %v is not in %v..%v", c.maxRetry, time.Millisecond, maxPenalty)
	}
	for i, d := range c.detectors {
		var list []error
		if checkDetector(d, problems{fmt.Sprintf("detectors[%d]", i), &list}); len(list) > 0 {
			return bad("WithDetectors: %v", errors.Join(list...))
		}
	}
	return nil
}
