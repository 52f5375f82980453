// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

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

// WithRules adds rules. The default is none: every request passes.
func WithRules(rules ...Rule) Option {
	return func(c *config) { c.rules = append(c.rules, rules...) }
}

// WithProfile adds the rules of a profile. The default is none.
func WithProfile(p Profile) Option { return WithRules(p.Rules...) }

// WithDetectors adds detectors that look at every response, after those of the rules that matched.
// The default is none.
func WithDetectors(detectors ...Detector) Option {
	return func(c *config) { c.detectors = append(c.detectors, detectors...) }
}

// WithEvents sets the function that is called with every event, in the goroutine in which it happens; it must not block.
// The default is none.
func WithEvents(f func(Event)) Option { return func(c *config) { c.events = f } }

// WithMaxWait bounds the wait for permits, beside the request's context; 0 rejects what cannot be sent
// at once. The default is no bound but the context's, and [DefaultMaxWait] for a request whose context sets none. With a
// large d a request without a deadline waits for the end of a cool-down, however far off.
func WithMaxWait(d time.Duration) Option {
	return func(c *config) {
		if c.maxWait = d; d < 0 {
			c.maxWait = badDuration
		}
	}
}

// WithEarlyRejection rejects a request as soon as its wait is known to be longer than it may wait, instead of when that time
// is up. It costs a second call of Redis for each request that waits, may pass over requests that wait already, and may
// miss permits that come back early. The default is to
// wait as long as the request may.
func WithEarlyRejection() Option { return func(c *config) { c.rejectEarly = true } }

// WithDryRun lets every request go out at once. Permits are counted in Redis, where they are missing
// for others that share the limiter, and events say what would have been rejected. Nothing is cooled
// down. Redis delays a request by 100 ms at most. The default is to limit.
func WithDryRun() Option { return func(c *config) { c.dryRun = true } }

// WithRetry sends a throttled request again, up to n times, each time at the end of the penalty and with permits of its
// own. It does so when all of this holds, and otherwise returns the response:
//
//   - a detector saw the request throttled, so that it was not executed;
//   - the status is less than 500, since a 503 may come after the request was executed, or the request's method is
//     idempotent, or its header has an Idempotency-Key;
//   - the request has no body, or has GetBody;
//   - the response's body ended within the peek;
//   - the penalty is not a ban, and ends within the time that the request may wait.
//
// The default is 0.
func WithRetry(n int) Option { return func(c *config) { c.retries = n } }

// WithPeek sets how much of a body is read ahead for the detectors, 1 to [MaxPeek] bytes, and how long
// a response is held back for them. A body that has not ended by then reaches the caller as it arrives, while the
// detectors wait for the rest. The default is MaxPeek and 50 ms.
func WithPeek(bytes int, hold time.Duration) Option {
	return func(c *config) { c.peek, c.hold = bytes, hold }
}

// WithBackOff sets for how long to cool down when the platform did not say: first, and twice as long
// each time that it throttles again soon after, up to most. The default is 1 s, up to 1 min.
func WithBackOff(first, most time.Duration) Option {
	return func(c *config) { c.backOff, c.maxBackOff = first, most }
}

// WithMaxCoolDown bounds every cool-down, so that a platform's wrong answer cannot silence the fleet
// for years. Detectors have tighter bounds of their own. The default is 31 days, since some quotas are of
// a month.
func WithMaxCoolDown(d time.Duration) Option { return func(c *config) { c.maxCoolDown = d } }

// WithMaxRetryAfter bounds what a Retry-After or RateLimit field makes anybody wait, up to [MaxPenalty]: the
// host that answers chooses the number. The event of a wait that was cut has what was asked for. The
// default is [DefaultMaxRetryAfter], an hour.
func WithMaxRetryAfter(d time.Duration) Option { return func(c *config) { c.maxRetry = d } }

// WithHashKey keys the hashes of secrets in limiters' names, the parts {…|hash} of a [Limit.Name] and thereby the robots'
// tokens of the profiles: see [KeyedHash]. A key has 16 bytes or more, and is the same in all processes that share the
// limiters. A new key makes new limiters: while a fleet changes over, its old and its new limiters each grant the
// rate. The default is no key: [Hash].
func WithHashKey(key []byte) Option {
	return func(c *config) { c.hashKey, c.hashKeySet = slices.Clone(key), true }
}

// WithRuleRates makes the rates of the rules count: where a limiter has another rate than its Limit when the Transport first uses it, or
// first after [Transport.SetRules], the Limit's is set in Redis, for all processes and Java; the permits that are taken stay so, and
// [EventRateDiffers] has both rates. A Transport sets it once and leaves what is set later, so that the process that began last decides,
// and not two in turns. The request that finds the other rate is decided by it. The default is that a limiter keeps its rate, which may be Java's
// or an operator's to set.
func WithRuleRates() Option { return func(c *config) { c.setRates = true } }

// badDuration is a maxWait that New rejects.
const badDuration = -1 << 63

// ErrInvalidOption is the error of an option that is out of its range. It is wrapped with the value.
var ErrInvalidOption = errors.New("httplimit: invalid option")

func (c *config) validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrInvalidOption, fmt.Sprintf(format, args...))
	}
	switch {
	case c.base == nil:
		return bad("WithBase: the base is nil")
	case c.maxWait == badDuration:
		return bad("WithMaxWait: the wait is negative; 0 rejects what cannot be sent at once")
	case c.retries < 0:
		return bad("WithRetry: %d is negative", c.retries)
	case c.peek < 1 || c.peek > MaxPeek:
		return bad("WithPeek: %d bytes are not in 1..%d", c.peek, MaxPeek)
	case c.hold < 0:
		return bad("WithPeek: a hold of %v is negative", c.hold)
	case c.backOff < time.Millisecond || c.maxBackOff < c.backOff:
		return bad("WithBackOff: %v up to %v; the first is at least 1ms, the second at least the first", c.backOff, c.maxBackOff)
	case c.maxCoolDown < time.Millisecond:
		return bad("WithMaxCoolDown: %v is shorter than 1ms", c.maxCoolDown)
	case c.hashKeySet && len(c.hashKey) < keyname.MinKey:
		return bad("WithHashKey: a key of %d bytes is shorter than %d", len(c.hashKey), keyname.MinKey)
	case c.maxRetry < time.Millisecond || c.maxRetry > MaxPenalty:
		return bad("WithMaxRetryAfter: %v is not in %v..%v", c.maxRetry, time.Millisecond, MaxPenalty)
	}
	for i, d := range c.detectors {
		if d == nil {
			return bad("WithDetectors: detector %d is nil", i)
		}
		var list []error
		if s, ok := d.(Signature); ok {
			s.check(problems{fmt.Sprintf("detectors[%d]", i), &list})
		}
		if len(list) > 0 {
			return bad("WithDetectors: %v", errors.Join(list...))
		}
	}
	return nil
}
