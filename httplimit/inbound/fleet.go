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

// The effective rate of a rule, in all servers, is that of the limiter with the name of the rule alone. Each
// Middleware sets it once, when it begins, and obeys it from then on. So the last one to begin decides, and two with
// different rates do not overwrite each other in turns. A limiter of a key that has another rate is set to the
// effective rate.

const (
	// lookEvery is how often a Middleware in use looks up the effective rate; it also does so when it meets a limiter
	// with another rate. lookAgain is how soon it looks again if that failed.
	lookEvery, lookAgain = 10 * time.Second, time.Second
	// maxLooks is how many limiters of keys with another rate are set at once.
	maxLooks = 16
)

// A fleetRate is the effective rate of a rule, as far as it is known.
type fleetRate struct {
	mu     sync.Mutex
	rate   ratelimiter.Rate // another one than that of the rule; zero for none
	began  bool             // that of the rule has been set
	looks  int
	due    time.Time // when to look again
	failed time.Time // when a look last failed
	news   error     // to be told with a request
}

// keepsStored reports whether limiters keep the rates that they have.
func (c *config) keepsStored() bool { return c.stored || c.dryRun }

// now returns the effective rate of the rule.
func (r *rule) now() ratelimiter.Rate {
	r.fleet.mu.Lock()
	defer r.fleet.mu.Unlock()
	if r.fleet.rate.Permits > 0 {
		return r.fleet.rate
	}
	return r.Rate
}

// Start sets the rates of the rules in Redis; permits in use stay in use. Without Start the first requests set the
// rates, and the old rate may decide some of them. The rate of the Middleware that began last counts: others learn of
// it within ten seconds, obey it, and report it to the function of [WithFailures].
//
// The rate of a rule with keys is that of the limiter that has the rule's name alone. The limiter of a key gets it
// with its next request, which its old rate decides. A rate that an operator sets there later, with SetRate or rrl,
// counts as well until another Middleware begins.
//
// With [WithStoredRates] or [WithDryRun] Start sets a rate only if there is none, and returns [ErrRateDiffers] if
// there is another one. Other errors are those of [ratelimiter.RateLimiter.SetRate].
func (m *Middleware) Start(ctx context.Context) error {
	if !m.made() {
		return notMade.Err
	}
	var list []error
	for _, r := range m.rules {
		if r.LimiterFor == nil {
			list = append(list, m.begin(ctx, r))
		}
	}
	return errors.Join(list...)
}

// maxRaces bounds how often a rate is read again because others have set or removed it in the meantime.
const maxRaces = 3

// stored returns the rate of a limiter, and sets it to want if there is none. It reads again what it has set: others
// may have been faster, or have left a part of a rate.
func stored(ctx context.Context, l *ratelimiter.RateLimiter, want ratelimiter.Rate) (is ratelimiter.Rate, err error) {
	for range maxRaces {
		if is, err = l.Rate(ctx); !errors.Is(err, ratelimiter.ErrNotInitialized) {
			return is, err
		}
		if _, failed := l.TrySetRate(ctx, want); failed != nil {
			return is, failed
		}
	}
	return is, err
}

// begin sets the rate of a rule.
func (m *Middleware) begin(ctx context.Context, r *rule) error {
	l := m.client.RateLimiter(r.Name)
	is, err := stored(ctx, l, r.now())
	for range maxRaces {
		if err != nil || !r.differs(is, r.Rate) {
			break
		}
		if m.cfg.keepsStored() {
			err = rateError(r, r.Name, "it is "+is.String())
			break
		}
		var set bool
		if set, err = l.UpdateRate(ctx, r.Rate, ratelimiter.KeepState()); set {
			r.fleet.tell(rateError(r, r.Name, fmt.Sprintf("it was %v and is set now", is)))
			break
		}
		if err == nil { // it has been removed since
			is, err = stored(ctx, l, r.now())
		}
	}
	if err == nil {
		r.fleet.mu.Lock()
		defer r.fleet.mu.Unlock()
		r.fleet.began, r.fleet.rate = true, ratelimiter.Rate{}
	}
	return err
}

// look reads the effective rate of a rule, or sets it if this Middleware has yet to begin.
func (m *Middleware) look(ctx context.Context, r *rule) error {
	r.fleet.mu.Lock()
	began := r.fleet.began
	r.fleet.mu.Unlock()
	if !began {
		return m.begin(ctx, r)
	}
	l, want := m.client.RateLimiter(r.Name), r.now()
	is, err := stored(ctx, l, want) // it may be lost, or have expired
	if err == nil && r.differs(is, want) {
		r.fleet.mu.Lock()
		r.fleet.rate = is
		r.fleet.mu.Unlock()
		r.fleet.tell(rateError(r, r.Name, fmt.Sprintf("it was %v; another one has set %v since, which counts until a middleware begins", want, is)))
	}
	return err
}

// tell has the next request report news to the function of WithFailures.
func (f *fleetRate) tell(news error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.news = news
}

// claim reports whether the caller has to look up the rate, and returns an error to report. It has to if a look is
// due, or if a limiter has another rate than the effective one.
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

// looked notes the end of a look.
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

// followRate makes a limiter that has been asked, and the process, obey the effective rate.
func (m *Middleware) followRate(req *http.Request, p *part) {
	r, want := p.rule, p.rule.now()
	differs := errors.Is(p.err, ratelimiter.ErrPermitsExceedRate) && p.weight <= want.Permits ||
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
