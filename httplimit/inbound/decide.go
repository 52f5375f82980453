// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/http/rates"
)

// Decide decides as [Middleware.Handler] does, but without net/http: for other frameworks, remote procedure calls and
// queues. For each rule, the keys together name the limiter of the request, such as a client's address; without a key
// it is the limiter with the name of the rule. Weight has the meaning that it has in [WithWeight].
//
// Decide calls neither the KeyFuncs nor the functions of WithWeight and Rule.Weight: each rule takes weight. It calls the functions of WithFailures and
// WithDecisions with a nil request. Both ctx and WithDecisionTime bound the decision. With a nil ctx it is OutcomeFailedClosed,
// and its Err is ratelimiter.ErrInvalidArgument.
func (m *Middleware) Decide(ctx context.Context, weight int64, keys ...string) Decision {
	if !m.made() {
		return notMade
	}
	if ctx == nil {
		return m.reported(nil, Decision{Outcome: OutcomeFailedClosed, Err: invalid("the context is nil")})
	}
	key := ""
	for _, k := range keys {
		key += keyPart(k)
	}
	spends := make([]spend, len(m.rules))
	for i, rule := range m.rules {
		spends[i] = rule.spend(key)
		spends[i].weight = weight
	}
	return m.reported(nil, m.decide(ctx, nil, spends))
}

// DecideRequest decides as [Middleware.Handler] does, and writes nothing. It is for frameworks with a request type of
// their own: the caller makes an http.Request with the parts that the KeyFuncs and the function of [WithWeight] read.
// Both the context of r and WithDecisionTime bound the decision.
func (m *Middleware) DecideRequest(r *http.Request) Decision {
	if !m.made() {
		return notMade
	}
	spends, err := m.spends(r)
	if err != nil {
		return m.reported(r, m.undecided(r.Context(), r, m.rules[0].spend(""), err))
	}
	return m.reported(r, m.decide(r.Context(), r, spends))
}

// notMade is the decision of a Middleware that is nil or the zero value.
var notMade = Decision{Outcome: OutcomeFailedClosed, Err: invalid("the Middleware is not one that New returned")}

// made reports whether New returned m.
func (m *Middleware) made() bool { return m != nil && len(m.rules) > 0 }

// reported completes a decision and calls the function of WithDecisions.
func (m *Middleware) reported(r *http.Request, d Decision) Decision {
	if d.Policy == "" {
		d.Policy = m.rules[0].Name
	}
	d.Policy, d.DryRun, d.fields = policyName(d.Policy), m.cfg.dryRun, &m.cfg
	if m.cfg.decided != nil {
		if p := contain("the function of WithDecisions", func() { m.cfg.decided(r, d) }); p != nil {
			m.fail(r, p)
		}
	}
	return d
}

// decide decides about a request; r is nil for Decide.
func (m *Middleware) decide(ctx context.Context, r *http.Request, spends []spend) Decision {
	spends = slices.DeleteFunc(spends, func(s spend) bool { return s.weight == 0 })
	if len(spends) == 0 {
		return Decision{Outcome: OutcomeUnlimited}
	}
	for _, s := range spends {
		if err := checkWeight(s.weight); err != nil {
			return Decision{Policy: s.rule.Name, Outcome: OutcomeRejected, Limiter: s.name, Err: err}
		}
	}
	bounded, cancel := context.WithTimeout(ctx, m.cfg.longest)
	defer cancel()
	var parts []part
	if len(spends) == 1 {
		parts = []part{m.allow(bounded, spends[0])}
	} else {
		parts = m.allowAll(bounded, spends)
	}
	for _, p := range parts {
		m.compareRate(r, &p)
	}
	p := tightest(parts)
	if p.err != nil {
		return m.undecided(ctx, r, p.spend, m.late(ctx, &p))
	}
	d := Decision{Policy: p.rule.Name, Outcome: OutcomeGranted, Limiter: p.name, Result: p.result, Degraded: degraded(parts), parts: parts}
	if !p.result.Granted {
		d.Outcome, d.Degraded = OutcomeRejected, p.result.Degraded
		d.RetryAfter = time.Duration(min(rates.WholeSeconds(p.result.Wait), math.MaxInt64/int64(time.Second))) * time.Second
	}
	return d
}

// late returns the error of p. If it is the end of a context, it says which limiter had not replied, and what ended the wait.
func (m *Middleware) late(ctx context.Context, p *part) error {
	if errors.Is(p.err, ratelimiter.ErrUnavailable) || !errors.Is(p.err, context.DeadlineExceeded) && !errors.Is(p.err, context.Canceled) {
		return p.err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("inbound: the request's context ended before limiter %q replied: %w", p.name, p.err)
	}
	return fmt.Errorf("inbound: limiter %q did not reply within %v, see WithDecisionTime: %w", p.name, m.cfg.longest, p.err)
}

// tightest returns the part that decides: the one with the longest wait among those that reject, otherwise one that
// failed, otherwise the one with the fewest permits left, as far as that is known.
func tightest(parts []part) part {
	best := parts[0]
	for _, p := range parts[1:] {
		switch {
		case p.rejected() && (!best.rejected() || p.result.Wait > best.result.Wait),
			p.err != nil && best.granted(),
			p.granted() && best.granted() && p.fewer(best):
			best = p
		}
	}
	return best
}

// fewer reports whether fewer permits are left than of another part, as far as that is known.
func (p *part) fewer(than part) bool {
	if tells := p.tells(); !tells || !than.tells() {
		return tells && !than.tells()
	}
	return p.result.Available < than.result.Available
}

// degraded reports whether a limiter's outage policy decided a part of a request that passes.
func degraded(parts []part) bool {
	return slices.ContainsFunc(parts, func(p part) bool { return p.result.Degraded })
}

// checkWeight returns an error for a weight that no limiter can grant. Such a request is rejected even if the policy
// fails open: otherwise a client with requests that are too heavy, or of unknown weight, would get past the limit.
func checkWeight(weight int64) error {
	switch {
	case weight < 0:
		return fmt.Errorf("%w: the weight of the request is not known (%d)", ratelimiter.ErrInvalidArgument, weight)
	case weight > rates.MaxPermits:
		return fmt.Errorf("%w: a request of weight %d, where no rate has more than %d permits",
			ratelimiter.ErrPermitsExceedRate, weight, int64(rates.MaxPermits))
	}
	return nil
}

// outagePolicy returns the policy of m, or that of the Client if m has none.
func (m *Middleware) outagePolicy() ratelimiter.OutagePolicy {
	switch {
	case m.cfg.outage != nil:
		return *m.cfg.outage
	case m.client != nil:
		return m.client.OutagePolicy()
	}
	return ratelimiter.FailClosed()
}

// undecided returns the decision about a request that the limiter of s did not decide.
func (m *Middleware) undecided(ctx context.Context, r *http.Request, s spend, err error) Decision {
	d := Decision{Policy: s.rule.Name, Outcome: OutcomeFailedClosed, Limiter: s.name, Err: err, RetryAfter: time.Second}
	if errors.Is(err, ratelimiter.ErrPermitsExceedRate) {
		d.Outcome, d.RetryAfter = OutcomeRejected, 0
		return d
	}
	if ctx.Err() == nil {
		m.fail(r, err)
		if m.outagePolicy() == ratelimiter.FailOpen() && !errors.Is(err, ratelimiter.ErrOverloaded) {
			d.Outcome, d.RetryAfter = OutcomeFailedOpen, 0
		}
	}
	return d
}
