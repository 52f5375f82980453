// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit/internal/rates"
)

// An Answer is what [Middleware.Decide] returns.
type Answer struct {
	Decision
	// Result is what the limiter replied: what is left, and the rate. It is zero where the limiter was not asked, or did
	// not reply. Of several rules it is that of Decision.Policy.
	Result ratelimiter.Result
	// RetryAfter is when the request may come again, in whole seconds; 0 where that is now or never.
	RetryAfter time.Duration

	parts  []part
	fields *config // nil for none
}

// Decide decides as [Middleware.Handler] does, without net/http: for other frameworks, remote procedure calls and queues. The
// request is one of the limiter that the keys together name, such as a client's address, for each rule; without a key it is one of the limiter
// that has the name of the Middleware. Its weight is as [WithWeight] has it, which is not called, as the KeyFuncs are not. The
// functions of WithFailures and WithDecisions are told with a nil request. ctx bounds the decision, beside WithDecisionTime.
func (m *Middleware) Decide(ctx context.Context, weight int64, keys ...string) Answer {
	key := ""
	for _, k := range keys {
		key += keyPart(k)
	}
	spends := make([]spend, len(m.rules))
	for i, rule := range m.rules {
		spends[i] = rule.spend(key)
	}
	return m.decided(nil, m.answer(ctx, nil, spends, weight))
}

// DecideRequest decides as [Middleware.Handler] does, and writes nothing: for frameworks that have a request of their own, of which
// the caller makes one of net/http with what the KeyFuncs and the function of [WithWeight] look at. The context of r
// bounds the decision, beside WithDecisionTime.
func (m *Middleware) DecideRequest(r *http.Request) Answer {
	spends, weight, err := m.spends(r)
	if err != nil {
		return m.decided(r, m.undecided(r.Context(), r, m.rules[0].spend(""), err))
	}
	return m.decided(r, m.answer(r.Context(), r, spends, weight))
}

// decided completes an answer and tells the function of WithDecisions.
func (m *Middleware) decided(r *http.Request, a Answer) Answer {
	a.DryRun, a.fields = m.cfg.dryRun, &m.cfg
	if a.Policy == "" {
		a.Policy = m.rules[0].Name
	}
	m.decide(r, a.Decision)
	return a
}

// answer decides about a request of that weight, which is nil for Decide.
func (m *Middleware) answer(ctx context.Context, r *http.Request, spends []spend, weight int64) Answer {
	if weight == 0 || len(spends) == 0 {
		return Answer{Decision: Decision{Outcome: OutcomeUnlimited}}
	}
	if err := checkWeight(weight); err != nil {
		return Answer{Decision: Decision{Policy: spends[0].rule.Name, Outcome: OutcomeRejected, Limiter: spends[0].name, Err: err}}
	}
	bounded, cancel := context.WithTimeout(ctx, m.cfg.longest)
	defer cancel()
	var parts []part
	if len(spends) == 1 {
		parts = []part{m.allow(bounded, spends[0], weight)}
	} else {
		parts = m.allowAll(bounded, spends, weight)
	}
	for _, p := range parts {
		m.compareRate(r, &p, weight)
	}
	p := tightest(parts)
	if p.err != nil {
		return m.undecided(ctx, r, p.spend, p.err)
	}
	a := Answer{Result: p.result, parts: parts, Decision: Decision{Policy: p.rule.Name, Outcome: OutcomeGranted, Limiter: p.name, Degraded: p.result.Degraded}}
	if !p.result.Granted {
		a.Outcome = OutcomeRejected
		a.RetryAfter = time.Duration(min(rates.WholeSeconds(p.result.Wait), math.MaxInt64/int64(time.Second))) * time.Second
	}
	return a
}

// tightest returns the part that decides: of those that reject the one with the longest wait, otherwise one that failed,
// otherwise the one of which the fewest permits are left.
func tightest(parts []part) part {
	best := parts[0]
	for _, p := range parts[1:] {
		switch {
		case p.rejected() && (!best.rejected() || p.result.Wait > best.result.Wait),
			p.err != nil && best.granted(),
			p.granted() && best.granted() && p.result.Available < best.result.Available:
			best = p
		}
	}
	return best
}

// checkWeight returns an error for a weight that no limiter can grant. Such a request is rejected and not undecided:
// a client whose requests are too heavy, or do not tell how heavy they are, must not get past a limit that fails open.
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

// undecided returns the answer to a request about which the limiter of s gave no decision.
func (m *Middleware) undecided(ctx context.Context, r *http.Request, s spend, err error) Answer {
	a := Answer{Decision: Decision{Policy: s.rule.Name, Outcome: OutcomeClosed, Limiter: s.name, Err: err}, RetryAfter: time.Second}
	if errors.Is(err, ratelimiter.ErrPermitsExceedRate) {
		a.Outcome, a.RetryAfter = OutcomeRejected, 0
		return a
	}
	if ctx.Err() == nil {
		m.fail(r, err)
		if m.outagePolicy() == ratelimiter.FailOpen() {
			a.Outcome, a.RetryAfter = OutcomeOpen, 0
		}
	}
	return a
}
