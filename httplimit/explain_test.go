// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

var errSDK = errors.New("an SDK's own")

// TestContextWithReason checks that the error of an SDK that hides the Transport's has the reason again, and that the requests that
// the SDK sends after a rejection do not wait.
func TestContextWithReason(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		tr := w.transport(base(ok), rules(w.limit("reason", 1, time.Minute)))
		get(t, tr, "http://x/")
		deadline, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		ctx, explain := ContextWithReason(deadline)
		require.NoError(t, explain(nil))
		require.Equal(t, errSDK, explain(errSDK), "nothing was rejected")

		send := func(ctx context.Context) error {
			_, err := tr.RoundTrip(request(t, "GET", "http://x/", nil).WithContext(ctx))
			return err
		}
		first := send(ctx)
		require.ErrorIs(t, first, ErrRejected)
		require.Equal(t, first, explain(first), "it has the reason already")
		began := time.Now()
		require.Equal(t, first, send(ctx))
		require.Zero(t, time.Since(began))

		hidden := explain(errSDK)
		var e *Error
		require.ErrorIs(t, hidden, errSDK)
		require.ErrorIs(t, hidden, ErrRejected)
		require.ErrorAs(t, hidden, &e)
		require.Equal(t, boundDeadline, e.boundBy)
		require.InDelta(t, 50*time.Second, e.Wait, float64(100*time.Millisecond))
		require.NoError(t, send(ContextWithMaxWait(t.Context(), time.Minute)), "of another context")

		ended, end := context.WithCancel(t.Context())
		end()
		ctx, explain = ContextWithReason(ended)
		require.ErrorIs(t, send(ctx), context.Canceled)
		require.ErrorAs(t, explain(errSDK), &e)
		require.Equal(t, ReasonContext, e.Reason)
	})
}

// TestRejectionResponse checks which rejections become responses, and that they are told from the platform's.
func TestRejectionResponse(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		tr := w.transport(base(ok), rules(w.limit("respond", 1, time.Hour)), WithRejectionResponse(), WithMaxWait(0))
		resp, _ := get(t, tr, "http://x/")
		_, rejected := RejectionOf(resp)
		require.False(t, rejected, "the platform's")
		_, rejected = RejectionOf(nil)
		require.False(t, rejected)

		body := &closer{}
		req := request(t, "POST", "http://x/", nil)
		req.Body = body
		resp = redistest.Must((&http.Client{Transport: tr}).Do(req))(t)
		defer func() { require.NoError(t, resp.Body.Close()) }()
		require.EqualValues(t, 1, body.closed.Load())
		require.Equal(t, "429 Too Many Requests", resp.Status)
		require.Equal(t, "3600", resp.Header.Get("Retry-After"))
		require.Equal(t, "false", resp.Header.Get("X-Should-Retry"))
		require.Equal(t, "false", resp.Header.Get("Stripe-Should-Retry"))
		var problem struct {
			Status int
			Detail string
		}
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&problem))
		require.Equal(t, 429, problem.Status)
		require.Equal(t, string(ReasonWait), problem.Detail)
		e, rejected := RejectionOf(resp)
		require.True(t, rejected)
		require.Equal(t, boundTransport, e.boundBy)

		ended, end := context.WithCancel(t.Context())
		end()
		_, err := tr.RoundTrip(request(t, "GET", "http://x/", nil).WithContext(ended))
		require.ErrorIs(t, err, context.Canceled)
		broken := w.transport(base(ok), WithRejectionResponse(), rules(w.limit("respond", 1, time.Hour)), WithRules(Rule{Name: "weight",
			Limits: []Limit{{Name: w.key + "weight", Rate: w.limit("", 1, time.Hour).Rate, WeightFunc: func(*http.Request) int64 { return -1 }}}}))
		_, err = broken.RoundTrip(request(t, "GET", "http://x/", nil))
		require.ErrorIs(t, err, ErrRejected)

		require.NoError(t, w.client.Close())
		resp, _ = get(t, tr, "http://x/")
		require.Equal(t, 503, resp.StatusCode)
		e, rejected = RejectionOf(resp)
		require.True(t, rejected)
		require.Equal(t, ReasonUnavailable, e.Reason)
	})
}

// TestRejectionForm checks that a rejection has the form of the first rule that has one, with the fields of every
// rejection and a wait even where none is known. A form that panics leaves the default one, and is reported.
func TestRejectionForm(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var waits []time.Duration
		form := func(name string) RejectionForm {
			return func(e *Error) (http.Header, []byte) {
				waits = append(waits, e.Wait)
				e.Wait = 0 // of its own copy
				return http.Header{"Content-Type": {"text/" + name}}, []byte(name)
			}
		}
		rejected := func(rules ...Rule) (*http.Response, string) {
			limit := Rule{Limits: []Limit{w.limit("form", 1, time.Hour)}}
			return get(t, w.transport(base(ok), WithRejectionResponse(), WithMaxWait(0), WithRules(limit), WithRules(rules...)), "http://x/")
		}
		with := func(f RejectionForm, permits int64) Rule {
			return Rule{Limits: []Limit{w.limit("other", permits, time.Hour)}, Rejection: f}
		}
		resp, text := rejected(with(form("first"), 9))
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, "ok", text)

		resp, text = rejected(with(form("first"), 9), with(form("second"), 9))
		require.Equal(t, "first", text)
		require.EqualValues(t, 5, resp.ContentLength)
		require.Equal(t, http.Header{"Content-Type": {"text/first"}, "Retry-After": {"3600"}, "X-Should-Retry": {"false"},
			"Stripe-Should-Retry": {"false"}}, resp.Header)
		e, _ := RejectionOf(resp)
		require.Equal(t, time.Hour, e.Wait)

		_ = w.taken()
		_, text = rejected(with(func(*Error) (http.Header, []byte) { panic("form") }, 9))
		require.Contains(t, text, `"title":"The limit is used up"`)
		require.Equal(t, []EventKind{EventRejected, EventPanicked}, w.kinds())

		c := &roundTrip{t: w.transport(base(ok), WithRejectionResponse()), req: request(t, "GET", "http://x/", nil), plan: &plan{rejection: form("unknown")}}
		resp = redistest.Must(c.rejection(&Error{Reason: ReasonWait}))(t)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, []time.Duration{time.Hour, time.Second}, waits, "a wait that is not known is what Retry-After says")

		require.NoError(t, w.client.Close())
		resp, text = rejected(with(form("first"), 9))
		require.Equal(t, 503, resp.StatusCode)
		require.Contains(t, text, "cannot be checked")
	})
}
