// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter"
)

// The rate that counts for a rule, in all servers, is that of the limiter which has the name of the rule alone. Each Middleware sets it once,
// when it begins, and from then on goes by it: so the last one to begin decides, and two of different rates do not set
// theirs in turns. Where the limiter of a key has another rate, the rate that counts is set.

const (
	// lookEvery is how often a Middleware that is in use looks which rate counts, beside the times when it meets a limiter that
	// has another one, and lookAgain how soon after it could not.
	lookEvery, lookAgain = 10 * time.Second, time.Second
	// maxLooks is how many limiters of keys, which have another rate, are looked after at once.
	maxLooks = 16
)

// A fleetRate is which rate counts for a rule, as far as is known.
type fleetRate struct {
	mu     sync.Mutex
	rate   ratelimiter.Rate // another one than that of the rule; zero for none
	began  bool             // that of the rule has been set
	looks  int
	due    time.Time // when to look again
	failed time.Time // when a look last failed
	news   error     // to be told with a request
}

// keepsStored reports whether the rates that limiters have stay.
func (c *config) keepsStored() bool { return c.stored || c.dryRun }

// now returns the rate that counts for the rule.
func (r *rule) now() ratelimiter.Rate {
	r.fleet.mu.Lock()
	defer r.fleet.mu.Unlock()
	if r.fleet.rate.Permits > 0 {
		return r.fleet.rate
	}
	return r.Rate
}

// Start sets the rates of the rules in Redis, where they are others, and the permits that are taken stay so. Without it the first requests
// do that, some of which may be decided by the old rate. The rate of the Middleware that began last counts: others learn of it within
// ten seconds, go by it, and tell the function of [WithFailures]. The rate of a rule with keys is that of the limiter which has its
// name alone; the limiter of a key gets it with its next request, which is decided by its old one. What an operator sets there
// later, with SetRate or rrl, counts as well until another Middleware begins.
//
// With [WithStoredRates] or [WithDryRun] Start sets a rate only where there is none, and returns [ErrRateDiffers] where there is
// another one. Other errors are those of [ratelimiter.RateLimiter.SetRate].
func (m *Middleware) Start(ctx context.Context) error {
	var list []error
	for _, r := range m.rules {
		if r.Limiter == nil {
			list = append(list, m.begin(ctx, r))
		}
	}
	return errors.Join(list...)
}

// begin sets the rate of a rule.
func (m *Middleware) begin(ctx context.Context, r *rule) error {
	l := m.client.RateLimiter(r.Name)
	is, err := l.Rate(ctx)
	switch {
	case errors.Is(err, ratelimiter.ErrNotInitialized):
		_, err = l.TrySetRate(ctx, r.now())
	case err != nil || !r.differs(is, r.Rate):
	case m.cfg.keepsStored():
		err = rateError(r, r.Name, "it is "+is.String())
	default:
		if _, err = l.UpdateRate(ctx, r.Rate, ratelimiter.KeepState()); err == nil {
			r.fleet.tell(rateError(r, r.Name, fmt.Sprintf("it was %v and is set now", is)))
		}
	}
	if err == nil {
		r.fleet.mu.Lock()
		defer r.fleet.mu.Unlock()
		r.fleet.began, r.fleet.rate = true, ratelimiter.Rate{}
	}
	return err
}

// look learns which rate counts for a rule, or sets it to begin with.
func (m *Middleware) look(ctx context.Context, r *rule) error {
	r.fleet.mu.Lock()
	began := r.fleet.began
	r.fleet.mu.Unlock()
	if !began {
		return m.begin(ctx, r)
	}
	l, want := m.client.RateLimiter(r.Name), r.now()
	is, err := l.Rate(ctx)
	switch {
	case errors.Is(err, ratelimiter.ErrNotInitialized): // lost, or expired
		_, err = l.TrySetRate(ctx, want)
	case err == nil && r.differs(is, want):
		r.fleet.mu.Lock()
		r.fleet.rate = is
		r.fleet.mu.Unlock()
		r.fleet.tell(rateError(r, r.Name, fmt.Sprintf("it was %v; another one has set %v since, which counts until a middleware begins", want, is)))
	}
	return err
}

// tell has the function of WithFailures told with the next request.
func (f *fleetRate) tell(news error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.news = news
}

// claim reports whether the caller is to look, and returns what is to be told. It is for a look that is due, or because a limiter
// has another rate than the one that counts.
func (f *fleetRate) claim(differs, keyed bool) (look bool, news error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	news, f.news = f.news, nil
	now, most := time.Now(), 1
	if differs && keyed {
		most = maxLooks
	}
	look = f.looks < most && (differs || !now.Before(f.due)) && now.Sub(f.failed) >= lookAgain
	if look {
		f.looks++
	}
	return look, news
}

// looked ends a look.
func (f *fleetRate) looked(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks--
	if now := time.Now(); err == nil {
		f.due = now.Add(lookEvery)
	} else {
		f.failed = now
	}
}

// followRate sees to it that a limiter which was asked for so many permits, and the process, go by the rate that counts.
func (m *Middleware) followRate(req *http.Request, p *part, weight int64) {
	r, want := p.rule, p.rule.now()
	differs := errors.Is(p.err, ratelimiter.ErrPermitsExceedRate) && weight <= want.Permits ||
		p.result.Rate.Permits > 0 && r.differs(p.result.Rate, want)
	look, news := r.fleet.claim(differs, p.key != "")
	if news != nil {
		m.fail(req, news)
	}
	if !look {
		return
	}
	name, is, keyed := p.name, p.result.Rate, p.key != ""
	go func() { // no request waits for it
		ctx, cancel := context.WithTimeout(context.Background(), m.cfg.longest)
		defer cancel()
		err := m.look(ctx, r)
		if now := r.now(); err == nil && differs && keyed && r.differs(is, now) {
			_, err = m.client.RateLimiter(name).UpdateRate(ctx, now, ratelimiter.KeepState())
		}
		r.fleet.looked(err)
	}()
}
