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
	headers    headers
	rejected   func(http.ResponseWriter, *http.Request, Decision)
	failed     func(*http.Request, error)
	decided    func(*http.Request, Decision)
	longest    time.Duration
	known      time.Duration
	dryRun     bool
	stored     bool
	xRateLimit bool
	named      bool
	hashKey    []byte
	keyed      bool
}

// An Option configures a Middleware.
type Option func(*config)

// WithKeys says which requests share permits: those for which all keys are the same. Each combination of keys has a
// limiter of its own, in each rule, whose name is that of the rule and the keys. The default is one limiter for all
// requests.
func WithKeys(keys ...KeyFunc) Option {
	return func(c *config) { c.keys = append(c.keys, keys...) }
}

// WithWeight sets how many permits a request takes; a request with weight 0 is not limited. A request is rejected
// with 429 and no Retry-After, whatever the outage policy is, if it weighs more than the rate has, because it can
// never be granted. The same happens if its weight is negative, as an unknown Content-Length is. A rule may have a
// weight of its own, [Rule.Weight]. The default is one permit.
func WithWeight(weight func(*http.Request) int64) Option {
	return func(c *config) { c.weight = weight }
}

// WithOutagePolicy sets what happens to requests that cannot be decided. That is so if Redis is unavailable, replied
// with an error or took too long, or if a KeyFunc panicked. Such a request passes under ratelimiter.FailOpen, and
// gets 503 under ratelimiter.FailClosed. Under ratelimiter.LocalQuota the quota decides while Redis is known to be
// unavailable: a request passes, or gets 429, with the header fields of the quota. What cannot be decided otherwise
// gets 503, such as the requests whose time is up before the outage is known. A request that this process could not
// send to Redis, with ratelimiter.ErrOverloaded, gets 503 under every policy. The default is the policy of the Client;
// see [ratelimiter.Client.OutagePolicy].
func WithOutagePolicy(p ratelimiter.OutagePolicy) Option {
	return func(c *config) { c.outage = &p }
}

// WithRejection sets the function that writes the response to a rejected request. The header fields are set already;
// f calls WriteHeader with [Decision.Status], or another status. The Middleware does not recover its panics, like
// those of any handler. The default is a problem of RFC 9457 in JSON.
func WithRejection(f func(w http.ResponseWriter, r *http.Request, d Decision)) Option {
	return func(c *config) { c.rejected = f }
}

// WithFailures sets a function that is called with errors that are not the client's, for logs and alarms: those of
// Redis, each [*PanicError], [ErrRateDiffers] and [ErrNoPattern]. It runs in the request's goroutine. The default is
// none.
func WithFailures(f func(*http.Request, error)) Option {
	return func(c *config) { c.failed = f }
}

// WithDecisionTime bounds how long a request waits for Redis; after that it counts as a request that cannot be
// decided. The time has to be longer than a fifth of a second, in which a call is sent again. Requests wait that long
// only until an outage is known, which takes one and a half seconds if Redis does not reply in time. From then on the
// outage policy decides at once. The default is one second.
func WithDecisionTime(d time.Duration) Option {
	return func(c *config) { c.longest = d }
}

// minDecisionTime is the time in which a call that failed is sent again.
const minDecisionTime = 200 * time.Millisecond

// WithCachedRejections sets for how long the process remembers a rejection. A Client remembers none by default; a
// Middleware does, because strangers decide how many requests it rejects. Until then, or until permits become free
// by themselves, it rejects requests with the same keys that weigh as much, without asking Redis. So a flood
// of rejected requests costs Redis about one call per bound and weight from each process. If another process frees permits
// early, by a release or a new rate, requests may be rejected for bound longer; see
// [ratelimiter.WithCachedRejections]. With 0 each request asks Redis. The default is one second.
func WithCachedRejections(bound time.Duration) Option {
	return func(c *config) { c.known = bound }
}

// WithDryRun passes every request on. Permits are counted, the header fields are those of a limit, and the function
// of [WithDecisions] gets the decision that the Middleware would have made, with DryRun set. The default is to limit.
func WithDryRun() Option { return func(c *config) { c.dryRun = true } }

// WithStoredRates leaves a limiter the rate that it has. The rate of the Middleware is then only for limiters without
// one. Use it for rates that Java services or operators set, or that differ from key to key. If a rate differs, the
// function of [WithFailures] gets [ErrRateDiffers]. The default is that the rate of the Middleware counts, except
// with [WithDryRun].
func WithStoredRates() Option { return func(c *config) { c.stored = true } }

// WithHashKey sets the key for the hashes of secrets in limiters' names, those of [ByHeader] and [HashFor]. With a key,
// nobody who reads Redis can try out secrets that are short or easy to guess. A key has at least 16 bytes, and must
// be the same in all servers that share the limit. The default is no key: SHA-256 alone.
func WithHashKey(key []byte) Option {
	return func(c *config) { c.hashKey, c.keyed = slices.Clone(key), true }
}

// check returns an error that names the first option that cannot be used.
func (c *config) check() error {
	switch {
	case c.keyed && len(c.hashKey) < keyname.MinKey:
		return invalid("WithHashKey: a key of %d bytes is shorter than %d", len(c.hashKey), keyname.MinKey)
	case c.longest <= minDecisionTime:
		return invalid("WithDecisionTime: %v is not longer than %v", c.longest, minDecisionTime)
	case c.known < 0:
		return invalid("WithCachedRejections: %v is negative", c.known)
	case slices.ContainsFunc(c.keys, func(k KeyFunc) bool { return k == nil }):
		return invalid("WithKeys: a key is nil")
	case c.outage != nil:
		return c.outage.Validate()
	}
	return nil
}
