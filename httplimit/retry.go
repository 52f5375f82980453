package httplimit

import (
	"io"
	"net/http"
	"time"

	"github.com/goredisson/ratelimiter/httplimit/internal/envelope"
)

// mayRetry says whether the request was surely not executed and may be sent again in time.
func (c *call) mayRetry(a *answer) bool {
	if !a.verdict.Throttled || a.verdict.Banned || envelope.IsDoubted(a.verdict.Until, a.verdict.Asked) || !a.ended || c.t.cfg.dryRun {
		return false
	}
	limit, _ := c.patience(c.req.Context())
	return time.Until(a.until) < limit
}

// again is the request once more, with a body of its own: a copy, since the first one is the caller's.
func (c *call) again() (*http.Request, bool) {
	r := c.req.WithContext(c.req.Context())
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

// pause waits until the penalty of a is over. Its error is an *Error.
func (c *call) pause(a *answer) error {
	wait := time.Until(a.until)
	e := c.event
	e.Kind, e.Wait, e.Until, e.Reason, e.Status = EventRetry, wait, a.until, a.verdict.Reason, a.response.StatusCode
	c.t.emit(e)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.req.Context().Done():
		err := c.failed(c.req.Context().Err())
		c.refused(err)
		return err
	}
}
