// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"net/http"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit/internal/keyname"
)

type config struct {
	keys       []KeyFunc
	weight     func(*http.Request) int64
	outage     *ratelimiter.OutagePolicy
	headers    Headers
	rejected   func(http.ResponseWriter, *http.Request, Rejection)
	failed     func(*http.Request, error)
	decided    func(*http.Request, Decision)
	longest    time.Duration
	known      time.Duration
	dryRun     bool
	stored     bool
	xRateLimit bool
	hashKey    []byte
	keyed      bool
}

// An Option configures a Middleware.
type Option func(*config)

// WithKeys divides the limit, and each one of several rules: requests for which all keys are the same share a limiter of their own,
// named by the Middleware and the keys. The default is one limiter for all requests.
func WithKeys(keys ...KeyFunc) Option {
	return func(c *config) { c.keys = append(c.keys, keys...) }
}

// WithWeight sets how many permits a request takes; 0 is a request that is not limited. A request that weighs more
// than the rate has can never be granted, and one of a negative weight, such as an unknown Content-Length, cannot be
// counted: both are rejected with 429 and no Retry-After, whatever the outage policy. The default is one permit.
func WithWeight(weight func(*http.Request) int64) Option {
	return func(c *config) { c.weight = weight }
}

// WithOutagePolicy sets what becomes of requests while Redis is unavailable, and of those that cannot be decided for
// another reason: Redis replied with an error or took too long, or a KeyFunc panicked. Such a request passes under
// ratelimiter.FailOpen, and gets 503 under any other policy. The default is the policy of the Client; see
// [ratelimiter.Client.OutagePolicy].
func WithOutagePolicy(p ratelimiter.OutagePolicy) Option {
	return func(c *config) { c.outage = &p }
}

// WithHeaders says on which responses there are RateLimit and RateLimit-Policy. The default is
// HeadersAlways.
func WithHeaders(h Headers) Option { return func(c *config) { c.headers = h } }

// WithRejection sets what writes the response to a request that is rejected. The header fields are there
// already; f calls WriteHeader with Rejection.Status, or another. It is a handler, whose panics are the server's.
// The default is a problem of RFC 9457 in JSON.
func WithRejection(f func(w http.ResponseWriter, r *http.Request, why Rejection)) Option {
	return func(c *config) { c.rejected = f }
}

// WithFailures sets what is told of errors that are not the client's: those of Redis, for logs and
// alarms, each [*PanicError], and [ErrRateDiffers]. It runs in the request's goroutine. The default is nobody.
func WithFailures(f func(*http.Request, error)) Option {
	return func(c *config) { c.failed = f }
}

// WithDecisionTime bounds how long a request waits for Redis; then it counts as one that cannot be
// decided. It has to be longer than the fifth of a second in which a call is sent again. Requests wait for so long only
// until an outage is known, which takes one second and a half if Redis does not reply in time; then the outage policy
// decides at once. The default is one second.
func WithDecisionTime(d time.Duration) Option {
	return func(c *config) { c.longest = d }
}

// WithCachedRejections sets for how long a rejection is known: until then, as long as permits do not come back by themselves,
// the process rejects requests of the same keys that weigh as much or more without asking Redis. A flood of requests
// that are rejected then costs Redis about one call in each bound from each process. If permits become free early, by a
// release or a new rate of another process, requests may be rejected for bound longer; see
// [ratelimiter.WithCachedRejections]. 0 makes each request ask. The default is one second.
func WithCachedRejections(bound time.Duration) Option {
	return func(c *config) { c.known = bound }
}

// WithDryRun passes every request on. Permits are counted, the header fields are those of a limit, and the function of
// [WithDecisions] is told what the Middleware would have done, with DryRun. The default is to limit.
func WithDryRun() Option { return func(c *config) { c.dryRun = true } }

// WithStoredRates leaves a limiter the rate that it has, whatever the Middleware was made with, which then is only for limiters without
// one. It is for rates that Java services or operators set, or that differ from key to key. The function of [WithFailures] is told of
// another rate by [ErrRateDiffers]. The default is that the rate of the Middleware counts, except with [WithDryRun].
func WithStoredRates() Option { return func(c *config) { c.stored = true } }

// WithHashKey keys the hashes of secrets in limiters' names, those of [ByHeader] and [Hash], so that nobody who reads
// Redis can try out secrets that are short or can be guessed. A key has 16 bytes or more, and is the same in all
// servers that share the limit. The default is no key: SHA-256 alone.
func WithHashKey(key []byte) Option {
	return func(c *config) { c.hashKey, c.keyed = slices.Clone(key), true }
}

// check returns an error that names the option which cannot be.
func (c *config) check() error {
	switch {
	case c.keyed && len(c.hashKey) < keyname.MinKey:
		return invalid("WithHashKey: a key of %d bytes is shorter than %d", len(c.hashKey), keyname.MinKey)
	case c.longest <= 0:
		return invalid("WithDecisionTime: %v is not positive", c.longest)
	case c.known < 0:
		return invalid("WithCachedRejections: %v is negative", c.known)
	case c.headers < HeadersAlways || c.headers > HeadersNever:
		return invalid("WithHeaders: %d is none of HeadersAlways, HeadersRejected and HeadersNever", c.headers)
	case slices.ContainsFunc(c.keys, func(k KeyFunc) bool { return k == nil }):
		return invalid("WithKeys: a key is nil")
	case c.outage != nil:
		return c.outage.Validate()
	}
	return nil
}
