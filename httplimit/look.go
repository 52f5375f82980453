// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// A BodySelector is a [Detector] that decides which responses it needs the body of. Other detectors get the start of
// every body that is text: JSON, XML, HTML, plain text, or a body without a Content-Type. They do not get streams of
// events or lines, nor files or parts of files, which have a Content-Disposition, a Content-Range or status 206.
type BodySelector interface {
	NeedsBody(status int, header http.Header) bool
}

// An answer is a platform's response and the verdict on it.
type answer struct {
	response *http.Response
	body     *peekedBody // nil when nothing was read ahead
	ended    bool        // all of the body was read, or there is none
	verdict  Verdict
	until    time.Time // when calls may go on, if it was throttled
}

// look shows the response to the detectors. The caller of RoundTrip gets the response of the answer in place of resp.
func (c *roundTrip) look(resp *http.Response) *answer {
	a := &answer{response: resp}
	if len(c.plan.detectors) == 0 {
		return a
	}
	if _, ok := resp.Body.(io.Writer); ok {
		return a // a connection that was handed over, as with 101
	}
	seen := Response{Request: c.req, Status: resp.StatusCode, Header: resp.Header, maxRetryAfter: c.t.cfg.maxRetry,
		panicked: func(p *PanicError) { c.t.panicked(&c.event, p) }}
	if resp.Body == nil || resp.Body == http.NoBody {
		seen.Complete, a.ended = true, true
		c.judge(a, seen)
		return a
	}
	needed := c.needsBody(c.plan.detectors, resp.StatusCode, resp.Header)
	if !needed {
		if c.judge(a, seen); !a.verdict.Throttled || c.t.cfg.retries == 0 {
			return a
		}
	}
	a.body = readAhead(resp, c.t.cfg.peek, seen.panicked)
	a.response = a.body.out
	var late func(body []byte, complete bool, cut error)
	if needed {
		header := resp.Header.Clone() // from now on resp.Header is the caller's
		late = func(body []byte, complete bool, cut error) {
			seen := seen
			seen.Header = header
			c.show(&seen, body, complete, cut)
			// In the goroutine that reads ahead nobody else recovers what a hook of the redis client panics with.
			c.t.contain(&c.event, "telling Redis of a cool-down", func() { c.judge(&answer{}, seen) })
		}
	}
	if !a.body.wait(c.req.Context(), c.t.cfg.hold, late) {
		return a
	}
	a.ended = a.body.err == io.EOF
	if needed {
		c.show(&seen, a.body.buf, a.body.complete(), a.body.cut())
		c.judge(a, seen)
	}
	return a
}

// judge asks the detectors for their verdict and begins the cool-downs that follow from it.
func (c *roundTrip) judge(a *answer, seen Response) {
	seen.Now = time.Now() // and not when the header came: a late body counts from its end
	switch v := first(c.plan.detectors).Detect(&seen); {
	case v.Throttled && c.other != "":
		v.Ignored = "host " + c.other + " answered, after a redirect"
		c.ignored(v, seen.Status)
	case v.Throttled:
		a.verdict, a.until = v, c.throttled(v, seen.Status)
	case v.Ignored != "":
		c.ignored(v, seen.Status)
	}
}

// ignored emits the event of a response that looks like a penalty and is not taken for one.
func (c *roundTrip) ignored(v Verdict, status int) {
	e := c.event
	e.Kind, e.Status, e.Reason, e.Scope, e.Host = EventIgnored, status, Reason(v.Reason), v.Scope, c.host()
	e.Err = errors.New("httplimit: no rejection: " + v.Ignored)
	c.t.emit(e)
}

// show sets the start of the body, decoded when the caller asked for a coding itself, since net/http leaves the decoding
// to the caller then. A body that cannot be decoded is not shown. An event tells of such a body, and of one that was cut.
func (c *roundTrip) show(r *Response, body []byte, complete bool, cut error) {
	if cut != nil {
		defer c.unread(r.Status, fmt.Errorf("httplimit: not all of the body was looked at: %w", cut))
	}
	r.Body, r.Complete = body, complete
	coding := contentCoding(r.Header)
	if coding == "" || len(body) == 0 {
		r.Complete = complete && coding == ""
		return
	}
	r.Body, r.Complete = nil, false
	source, err := decoded(coding, bytes.NewReader(body))
	if err == nil {
		// Bounded: some hundred bytes can decode to gigabytes.
		var plain []byte
		plain, err = io.ReadAll(io.LimitReader(source, maxPeek+1))
		r.Complete = complete && err == nil && len(plain) <= maxPeek
		r.Body = plain[:min(len(plain), maxPeek)]
	}
	if err != nil && cut == nil && (complete || !errors.Is(err, io.ErrUnexpectedEOF)) {
		c.unread(r.Status, fmt.Errorf("httplimit: the body was not looked at: %w", err))
	}
}

// unread emits the event of a response of which the detectors did not see what they needed.
func (c *roundTrip) unread(status int, err error) {
	e := c.event
	e.Kind, e.Status, e.Host, e.Err = EventUnread, status, c.host(), err
	c.t.emit(e)
}
