// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"io"
	"net/http"
	"time"

	"github.com/goredisson/ratelimiter/httplimit/internal/envelope"
)

// mayRetry reports whether the request may be sent again, in time. A rejection by a gateway was not executed. A 503
// and its like may come from a server that gave up halfway, or from a proxy that stopped waiting for one. The request
// may have been executed, so it is sent again only if it may be executed twice.
func (c *roundTrip) mayRetry(a *answer) bool {
	if a.response.StatusCode >= 500 && !repeatable(c.req) {
		return false
	}
	if !a.verdict.Throttled || a.verdict.Banned || envelope.IsDoubted(a.verdict.Until, a.verdict.Asked) || !a.ended || c.t.cfg.dryRun {
		return false
	}
	return time.Until(a.until) < c.patience(c.req.Context()).wait
}

// repeatable reports whether a request may be executed twice: its method is idempotent (RFC 9110 §9.2.2), or the header
// has an Idempotency-Key, by which net/http too knows such requests.
func repeatable(r *http.Request) bool {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return len(r.Header["Idempotency-Key"]) > 0 || len(r.Header["X-Idempotency-Key"]) > 0
}

// again returns a copy of the request with a new body. It reports false if it cannot get one.
func (c *roundTrip) again() (*http.Request, bool) {
	r := c.acceptReadable(c.req.WithContext(c.req.Context()))
	if r.Body == nil || r.Body == http.NoBody {
		return r, true
	}
	if r.GetBody == nil {
		return nil, false
	}
	var body io.ReadCloser
	var err error
	if p := c.t.contain(&c.event, "Request.GetBody", func() { body, err = r.GetBody() }); p != nil || err != nil {
		return nil, false
	}
	r.Body = body
	return r, true
}

// pause waits for the end of the penalty in a. Its error is an *Error.
func (c *roundTrip) pause(a *answer) error {
	wait := time.Until(a.until)
	e := c.event
	e.Kind, e.Wait, e.Until, e.Reason, e.Status = EventRetry, wait, a.until, Reason(a.verdict.Reason), a.response.StatusCode
	c.t.emit(e)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.req.Context().Done():
		err := c.failed(c.req.Context().Err())
		c.rejected(err)
		return err
	}
}
