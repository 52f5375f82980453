package inbound

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit/internal/keyname"
	"github.com/goredisson/ratelimiter/httplimit/internal/rates"
)

// An Answer is what [Middleware.Decide] returns.
type Answer struct {
	Decision
	// Result is what the limiter replied: what is left, and the rate. It is zero where the limiter was not asked, or did
	// not reply.
	Result ratelimiter.Result
	// RetryAfter is when the request may come again, in whole seconds; 0 where that is now or never.
	RetryAfter time.Duration
}

// Decide decides as [Middleware.Handler] does, without net/http: for other frameworks, remote procedure calls and queues. The
// request is one of the limiter that the keys together name, such as a client's address; without a key it is one of the limiter
// that has the name of the Middleware. Its weight is as [WithWeight] has it, which is not called, as the KeyFuncs are not. The
// functions of WithFailures and WithDecisions are told with a nil request. ctx bounds the decision, beside WithDecisionTime.
func (m *Middleware) Decide(ctx context.Context, weight int64, keys ...string) Answer {
	name := m.name
	for _, k := range keys {
		name += ":" + keyname.Part(k, true)
	}
	a := m.answer(ctx, nil, name, weight)
	a.DryRun = m.cfg.dryRun
	m.decide(nil, a.Decision)
	return a
}

// answer decides about a request of that weight, which is nil for Decide.
func (m *Middleware) answer(ctx context.Context, r *http.Request, name string, weight int64) Answer {
	if weight == 0 {
		return Answer{Decision: Decision{Outcome: OutcomeUnlimited}}
	}
	if err := checkWeight(weight); err != nil {
		return Answer{Decision: Decision{Outcome: OutcomeRejected, Limiter: name, Err: err}}
	}
	bounded, cancel := context.WithTimeout(ctx, m.cfg.longest)
	defer cancel()
	// A limiter without a rate is new, has expired, or somebody has deleted it. To ask first spares a list of those that
	// have one, and leaves the first word to the outage policy when Redis is unavailable.
	limiter := m.client.RateLimiter(name).CachedRejections(m.cfg.known).WithRate(m.rate)
	if m.cfg.outage != nil {
		limiter = limiter.OnOutage(*m.cfg.outage)
	}
	result, err := limiter.Allow(bounded, weight)
	if err != nil {
		if errors.Is(err, ratelimiter.ErrPermitsExceedRate) && weight <= m.rate.Permits {
			m.tellRate(r, name, ratelimiter.Rate{}, err.Error())
		}
		return m.undecided(ctx, r, name, err)
	}
	if !result.Degraded && result.Rate != m.rate {
		m.compareRate(r, name, result.Rate)
	}
	a := Answer{Decision: Decision{Outcome: OutcomeGranted, Limiter: name, Degraded: result.Degraded}, Result: result}
	if !result.Granted {
		a.Outcome = OutcomeRejected
		a.RetryAfter = time.Duration(min(rates.WholeSeconds(result.Wait), math.MaxInt64/int64(time.Second))) * time.Second
	}
	return a
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
	if m.cfg.outage != nil {
		return *m.cfg.outage
	}
	return m.client.OutagePolicy()
}

// undecided returns the answer to a request for which Redis gave no decision.
func (m *Middleware) undecided(ctx context.Context, r *http.Request, name string, err error) Answer {
	a := Answer{Decision: Decision{Outcome: OutcomeClosed, Limiter: name, Err: err}, RetryAfter: time.Second}
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
