// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/goredisson/ratelimiter/httplimit/internal/rates"
)

// WithRejectionResponse makes a rejected request return a response in place of an [*Error], for SDKs that hide errors of
// their transport: 429 with Retry-After when the wait is too long, 503 when the limiter does not answer. Both have
// X-Should-Retry and Stripe-Should-Retry: false, by which some SDKs know not to send again, and a problem of RFC 9457 as
// their body, with the fields by which SDKs know an error: error, errcode and code. [RejectionOf] tells such a response
// from the platform's. Of a request whose context has ended, and of a rule that cannot be applied, it remains an error. The
// default is to return the error.
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

// rejection returns what RoundTrip returns for a request that was rejected because of err.
func (c *call) rejection(err error) (*http.Response, error) {
	var e *Error
	if !c.t.cfg.respond || !errors.As(err, &e) {
		return nil, err
	}
	status, title := http.StatusTooManyRequests, "The limit is used up"
	switch e.Reason {
	case ReasonContext, ReasonRule:
		return nil, err
	case ReasonUnavailable:
		status, title = http.StatusServiceUnavailable, "The limit cannot be checked now"
	}
	body, jsonErr := json.Marshal(map[string]any{
		"title": title, "status": status, "detail": string(e.Reason), "limiter": e.Limiter,
		// OpenAI, Anthropic and Stripe; WeCom and DingTalk; Feishu. Some SDKs take a body without them for a success.
		"error":   map[string]string{"type": "rate_limit_error", "code": "rejected", "message": e.Error()},
		"errcode": status, "errmsg": e.Error(),
		"code": status, "msg": e.Error(),
	})
	if jsonErr != nil {
		return nil, errors.Join(err, jsonErr)
	}
	return &http.Response{
		Status: strconv.Itoa(status) + " " + http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{
			"Content-Type":        {"application/problem+json"},
			"Retry-After":         {strconv.FormatInt(rates.WholeSeconds(e.Wait), 10)},
			"Stripe-Should-Retry": {"false"},
			"X-Should-Retry":      {"false"},
		},
		ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
		Request: c.req.WithContext(context.WithValue(c.req.Context(), rejectionKey{}, e)),
	}, nil
}
