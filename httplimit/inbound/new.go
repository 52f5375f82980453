// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/http/rates"
	"github.com/goredisson/ratelimiter/limit"
)

// A Rule is one limit of a Middleware, such as a rate for each client address. What a program sends has httplimit.Rule,
// which says for which requests its limits are.
type Rule struct {
	// Name is the beginning of the limiters' names, and, without its braces, the name of the policy in the header
	// fields. It is printable ASCII. Rules of one Middleware must have names that differ without their braces.
	Name string
	// Rate is the rate of the limiters. If LimiterFor is set, Rate is only used for the fields RateLimit-Policy and
	// X-RateLimit-Limit. If it is zero then, they have the rate of the limiter that was asked, each tenant's own for
	// example, if that is one of package limit whose rate is a number of permits per interval; otherwise they do not
	// contain the rule.
	Rate ratelimiter.Rate
	// Keys divide this limit as those of [WithKeys] divide all limits; the keys of WithKeys come first. If a KeyFunc
	// returns false, the rule does not apply to the request.
	Keys []KeyFunc
	// Weight, if set, returns how many permits a request takes of this rule, in place of [WithWeight]. If it returns 0,
	// the rule does not apply to the request.
	Weight func(*http.Request) int64
	// LimiterFor returns the limiter of a key, which consists of all keys together and is empty without keys. It may be
	// any limiter, such as
	//
	//	func(key string) limit.Limiter { return shared.For(key) }
	//
	// where shared is a *limit.Shared. If LimiterFor is nil, the rule uses the Client's RRateLimiter with the name of the
	// rule and the key. It is called in the requests' goroutines. If it panics or returns nil, or its limiter
	// panics, the request cannot be decided.
	LimiterFor func(key string) limit.Limiter
}

// A rule is a Rule that has been checked.
type rule struct {
	Rule
	policy       string // the name as a structured field
	anyKeepAlive bool   // the KeepAlive of Rate is the default, and no other one differs from it
	fleet        fleetRate
}

// maxRules is the number of limiters that one request may ask for, see [ratelimiter.Client.TryAcquireAll].
const maxRules = 64

// New returns a Middleware that limits requests to r. The names of its limiters begin with name. Without its braces
// it is also the name of the policy in the header fields; it must be printable ASCII.
//
// The rate of the Middleware that began last counts for all servers. It is set on limiters that have another one, and
// permits in use stay in use; the other Middlewares follow, see [Middleware.Start]. With [WithStoredRates] the rate
// that a limiter has counts instead. A rate without a KeepAlive gets one of ten minutes or an interval, whichever is
// longer: otherwise every client that was ever seen would stay in Redis forever.
//
// New returns ratelimiter.ErrInvalidArgument for a name, a rate or an option that cannot be used.
func New(client *ratelimiter.Client, name string, r ratelimiter.Rate, opts ...Option) (*Middleware, error) {
	return NewRules(client, []Rule{{Name: name, Rate: r}}, opts...)
}

// NewRules returns a Middleware with several limits, or with one of another algorithm than RRateLimiter's. A request
// passes if all rules grant it. It takes its permits from all of them or, with the exceptions below, from none:
//
//   - First all limiters are checked with Peek, at the same time. If one would reject, nothing is taken.
//   - Then the RRateLimiters are asked together, by [ratelimiter.Client.TryAcquireAll], and after them those of
//     Rule.LimiterFor one by one, in the order of the rules. If one of the latter rejects now, because others have taken its
//     permits, the RRateLimiters get theirs back. Only permits that another limiter of Rule.LimiterFor has granted before
//     stay taken.
//
// If the client leaves while a limiter of Rule.LimiterFor is being asked, the permits of that one may be taken too: see
// [limit.Shared].
//
// A request costs two round trips, and two calls of each limiter; a rejected request makes only the first of each. A
// rejection is cached for each rule, see [WithCachedRejections]. The rates are handled as by [New]. The client may be
// nil if every rule has a LimiterFor.
//
// NewRules returns ratelimiter.ErrInvalidArgument for a rule or an option that cannot be used.
func NewRules(client *ratelimiter.Client, rules []Rule, opts ...Option) (*Middleware, error) {
	m := &Middleware{client: client, cfg: config{longest: time.Second, known: time.Second}}
	for _, o := range opts {
		if o == nil {
			return nil, invalid("an Option is nil")
		}
		o(&m.cfg)
	}
	if len(rules) == 0 || len(rules) > maxRules {
		return nil, invalid("%d rules, where there are 1 to %d", len(rules), maxRules)
	}
	names := map[string]bool{}
	for i, r := range rules {
		at := ""
		if len(rules) > 1 {
			at = fmt.Sprintf("rules[%d]: ", i)
		}
		checked, err := newRule(r)
		switch {
		case err != nil:
			return nil, invalid("%s%v", at, err)
		case names[policyName(r.Name)]:
			return nil, invalid("%sanother rule is named %q, too, without its braces", at, policyName(r.Name))
		case client == nil && r.LimiterFor == nil:
			return nil, invalid("%sthe client is nil", at)
		}
		names[policyName(r.Name)] = true
		m.rules = append(m.rules, checked)
	}
	if err := m.cfg.check(); err != nil {
		return nil, err
	}
	return m, nil
}

// newRule checks a Rule.
func newRule(r Rule) (*rule, error) {
	checked := &rule{Rule: r}
	var ok bool
	if checked.policy, ok = sfString(policyName(r.Name)); !ok || policyName(r.Name) == "" {
		return nil, fmt.Errorf("a middleware's name is printable ASCII, and not braces alone: %q", r.Name)
	}
	if slices.ContainsFunc(r.Keys, func(k KeyFunc) bool { return k == nil }) {
		return nil, errors.New("a key of Keys is nil")
	}
	var faults []error
	if r.LimiterFor == nil || r.Rate != (ratelimiter.Rate{}) {
		rates.Check(r.Rate, func(field, format string, args ...any) {
			faults = append(faults, fmt.Errorf("rate.%s: %s", field, fmt.Sprintf(format, args...)))
		})
	}
	if r.LimiterFor == nil && r.Rate.KeepAlive == 0 {
		checked.Rate.KeepAlive, checked.anyKeepAlive = max(10*time.Minute, r.Rate.Interval), true
	}
	return checked, errors.Join(faults...)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ratelimiter.ErrInvalidArgument, fmt.Sprintf(format, args...))
}
