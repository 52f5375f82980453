// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit/internal/rates"
	"github.com/goredisson/ratelimiter/limit"
)

// A Rule is one limit of a Middleware: of a rate for each client address, for instance.
type Rule struct {
	// Name is how the limiters' names begin, and the name of the policy in the header fields, where it has no braces:
	// printable ASCII. No two rules of a Middleware have the same.
	Name string
	// Rate is the rate of the limiters. With a Limiter it is only what RateLimit-Policy and X-RateLimit-Limit tell, and they do not
	// name the rule if it is zero.
	Rate ratelimiter.Rate
	// Keys divide this limit as those of [WithKeys] divide all of them, whose keys come first. A KeyFunc that returns
	// false takes the request out of this rule.
	Keys []KeyFunc
	// Limiter returns the limiter of a key, which has the keys together and is empty where there are none: any limiter, such as
	//
	//	func(key string) limit.Limiter { return shared.For(key) }
	//
	// where shared is a *limit.Shared. With nil it is the RRateLimiter of the Client that has the name of the rule and the key. It is called in the
	// requests' goroutines. When it panics or returns nil, or its limiter panics, the request cannot be decided.
	Limiter func(key string) limit.Limiter
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

// New returns a Middleware that limits requests to r by limiters whose names begin with name, which is also that of the
// policy in the header fields, where it has no braces: printable ASCII.
//
// The rate of the Middleware that began last counts for all servers. It is set where a limiter has another one, and the permits that
// are taken stay so; the others follow, see [Middleware.Start]. With [WithStoredRates] a rate that a limiter has counts instead. A rate without a KeepAlive gets one of ten minutes or an interval, whichever is longer: without one each
// client that was ever seen would stay in Redis forever.
//
// Errors: ratelimiter.ErrInvalidArgument for a name, a rate or an option that cannot be.
func New(client *ratelimiter.Client, name string, r ratelimiter.Rate, opts ...Option) (*Middleware, error) {
	return NewRules(client, []Rule{{Name: name, Rate: r}}, opts...)
}

// NewRules returns a Middleware of several limits, or of one of another algorithm than RRateLimiter's. A request passes if all
// rules grant it, and takes its permits of all of them or of none:
//
//   - The limiters are looked at (Peek) first, all at once. If one would reject, nothing is taken.
//   - Then RRateLimiters are asked together, by [ratelimiter.Client.TryAcquireAll], and after them those of Rule.Limiter one by
//     one, in the order of the rules. If one of the latter rejects now, because others took its permits since, the RRateLimiters get theirs
//     back. Only what another limiter of Rule.Limiter has granted before it stays taken.
//
// That costs a request two round trips, and each limiter two calls, of which a rejected request makes the first. A rejection is cached for each rule,
// see [WithCachedRejections]. The rates are as those of [New]. The client may be nil if every rule has a Limiter.
//
// Errors: ratelimiter.ErrInvalidArgument for a rule or an option that cannot be.
func NewRules(client *ratelimiter.Client, rules []Rule, opts ...Option) (*Middleware, error) {
	m := &Middleware{client: client, cfg: config{longest: time.Second, known: time.Second}}
	for _, o := range opts {
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
		case names[r.Name]:
			return nil, invalid("%sanother rule is named %q, too", at, r.Name)
		case client == nil && r.Limiter == nil:
			return nil, invalid("%sthe client is nil", at)
		}
		names[r.Name] = true
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
	if r.Limiter == nil || r.Rate != (ratelimiter.Rate{}) {
		rates.Check(r.Rate, func(field, format string, args ...any) {
			faults = append(faults, fmt.Errorf("rate.%s: %s", field, fmt.Sprintf(format, args...)))
		})
	}
	if r.Limiter == nil && r.Rate.KeepAlive == 0 {
		checked.Rate.KeepAlive, checked.anyKeepAlive = max(10*time.Minute, r.Rate.Interval), true
	}
	return checked, errors.Join(faults...)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ratelimiter.ErrInvalidArgument, fmt.Sprintf(format, args...))
}
