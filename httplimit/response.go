// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/goredisson/ratelimiter/internal/http/rates"
)

// WithRejectionResponse makes RoundTrip return a response for a rejected request, in place of an [*Error]. It is for
// SDKs that hide the errors of their transport. The status is 429 with Retry-After if the wait is too long, and 503
// if the limiter does not reply.
//
// Both responses have X-Should-Retry: false and Stripe-Should-Retry: false, which tell some SDKs not to send the
// request again. The body is a problem of RFC 9457 with the fields by which SDKs recognize an error: error, errcode
// and code. A rule with [Rule.Rejection], such as those of most profiles, gives its platform's form to a 429 instead,
// for SDKs that take their wait from it. [RejectionOf] tells such a response from the platform's. If the request's
// context has ended, or a rule cannot be applied, RoundTrip still returns the error. The default is to return the error.
func WithRejectionResponse() Option { return func(c *config) { c.respond = true } }

// RejectionOf returns why the Transport rejected the request, if resp is a response of [WithRejectionResponse].
func RejectionOf(resp *http.Response) (*Error, bool) {
	if resp == nil || resp.Request == nil {
		return nil, false
	}
	e, ok := resp.Request.Context().Value(rejectionKey{}).(*Error)
	return e, ok
}

type rejectionKey struct{}

// The registered types of these problems.
const (
	quotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	reducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// A RejectionForm returns the header and the body of a platform's own response to a request of which there were too
// many, for a rejection because of e, whose Wait is positive. The status is 429, and the response has the Retry-After
// and the other fields of [WithRejectionResponse] unless header sets them. The caller may change what it returns.
// Package platform has those of some platforms.
type RejectionForm func(e *Error) (header http.Header, body []byte)

// rejection returns what RoundTrip returns for a request that was rejected because of err.
func (c *roundTrip) rejection(err error) (*http.Response, error) {
	var e *Error
	if !c.t.cfg.respond || !errors.As(err, &e) {
		return nil, err
	}
	status, title, problem := http.StatusTooManyRequests, "The limit is used up", quotaExceeded
	switch e.Reason {
	case ReasonContext, ReasonRule:
		return nil, err
	case ReasonUnavailable:
		status, title, problem = http.StatusServiceUnavailable, "The limit cannot be checked now", reducedCapacity
	}
	header := http.Header{
		"Content-Type":        {"application/problem+json"},
		"Retry-After":         {strconv.FormatInt(rates.WholeSeconds(e.Wait), 10)},
		"Stripe-Should-Retry": {"false"},
		"X-Should-Retry":      {"false"},
	}
	body, jsonErr := json.Marshal(map[string]any{
		"type": problem, "title": title, "status": status, "detail": string(e.Reason), "limiter": e.Limiter,
		// OpenAI, Anthropic and Stripe; WeCom and DingTalk; Feishu. Some SDKs take a body without them for a success.
		"error":   map[string]string{"type": "rate_limit_error", "code": "rejected", "message": e.Error()},
		"errcode": status, "errmsg": e.Error(),
		"code": status, "msg": e.Error(),
	})
	if jsonErr != nil {
		return nil, errors.Join(err, jsonErr)
	}
	if c.plan.rejection != nil && status == http.StatusTooManyRequests {
		shown := *e
		if shown.Wait <= 0 { // not known: what Retry-After says
			shown.Wait = time.Second
		}
		c.t.contain(&c.event, "Rule.Rejection", func() {
			var own http.Header
			own, body = c.plan.rejection(&shown)
			maps.Copy(header, own)
		})
	}
	return &http.Response{
		Status: strconv.Itoa(status) + " " + http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        header,
		ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
		Request: c.req.WithContext(context.WithValue(c.req.Context(), rejectionKey{}, e)),
	}, nil
}
