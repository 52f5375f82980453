package inbound

import (
	"errors"
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit/internal/keyname"
	"github.com/goredisson/ratelimiter/httplimit/internal/rates"
)

// New returns a Middleware that limits requests to r by limiters whose names begin with name, which is also that of the
// policy in the header fields, where it has no braces: printable ASCII. Where a limiter has a rate already, that one counts, and the
// function of [WithFailures] is told so by [ErrRateDiffers]. A rate without a KeepAlive gets one of ten minutes or an interval, whichever is longer: without one each
// client that was ever seen would stay in Redis forever.
//
// Errors: ratelimiter.ErrInvalidArgument for a name, a rate or an option that cannot be.
func New(client *ratelimiter.Client, name string, r ratelimiter.Rate, opts ...Option) (*Middleware, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ratelimiter.ErrInvalidArgument, fmt.Sprintf(format, args...))
	}
	m := &Middleware{client: client, name: name, rate: r, cfg: config{longest: time.Second, known: time.Second}}
	for _, o := range opts {
		o(&m.cfg)
	}
	var ok bool
	if m.policy, ok = sfString(policyName(name)); !ok || policyName(name) == "" {
		return nil, bad("a middleware's name is printable ASCII, and not braces alone: %q", name)
	}
	switch {
	case client == nil:
		return nil, bad("the client is nil")
	case m.cfg.keyed && len(m.cfg.hashKey) < keyname.MinKey:
		return nil, bad("WithHashKey: a key of %d bytes is shorter than %d", len(m.cfg.hashKey), keyname.MinKey)
	case m.cfg.longest <= 0:
		return nil, bad("WithDecisionTime: %v is not positive", m.cfg.longest)
	case m.cfg.known < 0:
		return nil, bad("WithCachedRejections: %v is negative", m.cfg.known)
	case m.cfg.headers < HeadersAlways || m.cfg.headers > HeadersNever:
		return nil, bad("WithHeaders: %d is none of HeadersAlways, HeadersRejected and HeadersNever", m.cfg.headers)
	}
	for _, k := range m.cfg.keys {
		if k == nil {
			return nil, bad("WithKeys: a key is nil")
		}
	}
	var faults []error
	rates.Check(r, func(field, format string, args ...any) {
		faults = append(faults, fmt.Errorf("rate.%s: %s", field, fmt.Sprintf(format, args...)))
	})
	if len(faults) > 0 {
		return nil, bad("%v", errors.Join(faults...))
	}
	if m.cfg.outage != nil {
		if err := m.cfg.outage.Validate(); err != nil {
			return nil, err
		}
	}
	if r.KeepAlive == 0 {
		m.rate.KeepAlive, m.anyKeepAlive = max(10*time.Minute, r.Interval), true
	}
	return m, nil
}
