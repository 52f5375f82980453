// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/goredisson/ratelimiter"
)

// A Transport is an [http.RoundTripper] that keeps requests within the limits of its rules. It waits until the
// limiters grant a request, and passes it unchanged to its base. If it rejects a request, it closes its body. The
// response reaches the caller unchanged: the detectors see a copy of its start.
//
// There is one exception. If a detector or a [Limit.Settle] needs the body of the response, the Accept-Encoding that
// is sent offers only what the Transport can read: "gzip, br, zstd" becomes "gzip", and "identity" if nothing else is
// left. The Transport leaves a request without the field alone, and one whose signature covers it. If a response
// still arrives in another coding, [EventUnread] and [EventUnsettled] report that.
//
// A Transport limits when requests leave. They may arrive closer together than they left. If the platform punishes
// that, leave some headroom or space the requests by Rate.MinGap: [Transport.DelaySpread] shows how much is needed. A
// request that fails on its way has spent its permits, because it may have arrived.
//
// A request may also arrive twice for the permits of one. If the platform closes an idle connection while a request is
// sent on it, an [http.Transport] sends that again on another connection, where it cannot know whether the first was
// received. By itself it goes on like that for as long as there are such connections; here, twice is the most. It does
// so with GET, HEAD, OPTIONS and TRACE, and with requests that have an Idempotency-Key, but not with any other POST. If
// the platform punishes it, set DisableKeepAlives of the base, or leave some headroom.
//
// Each hop of a redirect is a request of its own. The zero Transport is not usable, and rejects every request with
// [ratelimiter.ErrInvalidArgument]; make one with [New]. A Transport is safe for concurrent use. It has one
// goroutine for each response whose body is being read ahead, and a timer for each limiter that cools down while Redis
// cannot be told; that ends with the Client.
type Transport struct {
	client   *ratelimiter.Client
	cfg      config
	set      atomic.Pointer[ruleSet]
	sets     atomic.Uint64 // how many there were
	limiters *limiters
	delays   delays
}

// New returns a Transport whose limiters are those of client, which the caller closes. The client may be nil if every
// limit of the rules is a [Limit.Quota] alone, such as a *limit.Local: then nothing needs a Redis. New returns
// [ratelimiter.ErrInvalidArgument] for an option that is out of range, and with a [*FieldError] for each field of a
// rule that is wrong.
func New(client *ratelimiter.Client, opts ...Option) (*Transport, error) {
	t := &Transport{client: client, limiters: newLimiters(client), cfg: config{
		base:        http.DefaultTransport,
		maxWait:     -1,
		peek:        maxPeek,
		hold:        50 * time.Millisecond,
		backOff:     time.Second,
		maxBackOff:  time.Minute,
		maxCoolDown: 31 * 24 * time.Hour,
		maxRetry:    defaultMaxRetryAfter,
	}}
	for _, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("%w: an Option is nil", ratelimiter.ErrInvalidArgument)
		}
		o(&t.cfg)
	}
	if err := t.cfg.validate(); err != nil {
		return nil, err
	}
	if client == nil && len(t.cfg.rules) == 0 {
		return nil, fmt.Errorf("%w: the client is nil, and there are no rules that do without one", ratelimiter.ErrInvalidArgument)
	}
	if err := t.SetRules(t.cfg.rules...); err != nil {
		return nil, err
	}
	return t, nil
}

// made reports whether New returned t.
func (t *Transport) made() bool { return t != nil && t.limiters != nil }

// errNotMade is the error of a Transport that is nil or the zero value.
var errNotMade = fmt.Errorf("%w: the Transport is not one that New returned", ratelimiter.ErrInvalidArgument)

// A ruleSet is the rules of a Transport at one time. Only the Transport and the requests that began with it hold it.
type ruleSet struct {
	id    uint64 // of this set and no other, for what must not hold the set itself
	rules []*rule
	index index
}

// SetRules replaces all rules, including those of profiles. A request that has begun, or waits, is completed under
// the old rules. The Transport keeps what it knows of limiters, such as their bans. A limiter keeps the rate that it
// has in Redis, and [EventRateDiffers] reports if the new rules say otherwise. If a rule is wrong, SetRules returns
// ratelimiter.ErrInvalidArgument with a [*FieldError] for each wrong field, and the old rules stay.
func (t *Transport) SetRules(rules ...Rule) error {
	if !t.made() {
		return errNotMade
	}
	compiled, err := compileAll(rules)
	if t.client == nil {
		err = errors.Join(err, checkAlone(rules))
	}
	if err != nil {
		return err
	}
	t.set.Store(&ruleSet{t.sets.Add(1), compiled, newIndex(compiled)})
	return nil
}

// RoundTrip waits for the permits that the request's rules demand, sends the request, and returns the platform's
// response. If the limiters reject the request, it sends nothing and returns an [*Error], or the response of
// [WithRejectionResponse]. It returns the base's errors unchanged, or one that wraps that of a request which an
// http.Transport has sent twice.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if !t.made() {
		closeBody(req)
		return nil, errNotMade
	}
	if req.URL == nil {
		return t.cfg.base.RoundTrip(req) // which says so
	}
	p, err := t.plan(req)
	c := &roundTrip{t: t, req: req, plan: p, event: Event{Request: req, Rules: p.rules, DryRun: t.cfg.dryRun}}
	if err != nil {
		var p *PanicError
		if errors.As(err, &p) {
			t.panicked(&c.event, p)
		}
		c.rejected(err)
		if !t.cfg.dryRun {
			closeBody(req)
			return c.rejection(err)
		}
	}
	return c.run()
}

// CloseIdleConnections closes the idle connections of the base, if the base has a method of that name.
func (t *Transport) CloseIdleConnections() {
	if !t.made() {
		return
	}
	if b, ok := t.cfg.base.(interface{ CloseIdleConnections() }); ok {
		b.CloseIdleConnections()
	}
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close() // the request is rejected whatever Close returns
	}
}

// A roundTrip is one call of [Transport.RoundTrip].
type roundTrip struct {
	t     *Transport
	req   *http.Request
	plan  *plan
	event Event     // what all events of the round trip have in common
	sent  time.Time // when it was admitted last

	grants      []*ratelimiter.Grant // that are settled at the end of the body
	quotaGrants []quotaGrant         // of the quotas
	quotaKept   bool                 // a quota granted what cannot be given back
	answered    bool                 // Redis has answered for its limiters
	other       string               // the host that answered after the base followed a redirect; "" when it is the request's
}

func (c *roundTrip) run() (*http.Response, error) {
	send := c.acceptReadable(c.req)
	var last *answer // what the platform throttled, kept while it is tried again
	for attempt := 1; ; attempt++ {
		c.event.Attempt = attempt
		if err := c.admit(); err != nil {
			closeBody(send)
			if last != nil && c.req.Context().Err() == nil {
				return last.response, nil
			}
			return c.rejection(err)
		}
		var sendings sendings
		resp, err := c.t.cfg.base.RoundTrip(sendings.of(send))
		err = sendings.explain(err)
		arrived := time.Now()
		if c.answered {
			c.compareRates()
		}
		if err != nil || resp == nil { // with neither, http.Client has an error of its own
			c.unsettled(cmp.Or(err, errNoResponse))
			return nil, err
		}
		if !c.sent.IsZero() {
			c.t.delays.note(c.plan.host, arrived.Sub(c.sent), arrived)
		}
		c.other = redirected(c.req, resp)
		resp.Request = c.req
		a := c.look(resp)
		if attempt > c.t.cfg.retries || !c.mayRetry(a) {
			c.settleAtEnd(a)
			return a.response, nil
		}
		again, ok := c.again()
		if !ok {
			c.settleAtEnd(a)
			return a.response, nil
		}
		c.settleThrottled(a)
		a.body.closeBody()
		if err := c.pause(a); err != nil {
			closeBody(again)
			return nil, err
		}
		send, last = again, a
	}
}

// redirected returns the host that gave the response when the base followed a redirect to another host, otherwise
// "". A base that sends to another host without a redirect, such as a gateway, speaks for the host of the request.
func redirected(req *http.Request, resp *http.Response) string {
	r := resp.Request
	if r == nil || r.URL == nil || r.Response == nil || bareHost(r.URL.Host) == bareHost(req.URL.Host) {
		return ""
	}
	return bareHost(r.URL.Host)
}

// host returns the host that gave the response, for events.
func (c *roundTrip) host() string {
	switch {
	case c.other != "":
		return c.other
	case c.plan.host != "":
		return c.plan.host
	}
	return bareHost(c.req.URL.Host)
}

// context returns the request's context without its cancellation, bounded: Redis is told of a cool-down also when the
// caller has gone.
func (c *roundTrip) context(bound time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(c.req.Context()), bound)
}
