// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"net/http"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/internal/envelope"
)

// An answer is a Response with the methods that the detectors here share.
type answer struct{ *httplimit.Response }

// detector returns a Detector that calls f.
func detector(f func(answer) httplimit.Verdict) httplimit.DetectorFunc {
	return func(r *httplimit.Response) httplimit.Verdict { return f(answer{r}) }
}

// A selective is a detector that says from the status and the header whether it needs the body.
type selective struct {
	httplimit.DetectorFunc
	needs func(status int, header http.Header) bool
}

func (s selective) NeedsBody(status int, header http.Header) bool { return s.needs(status, header) }

// json returns the body's outermost object, without members when there is none.
func (r answer) json() *envelope.Object { return envelope.ObjectOf(r.Response) }

// exact reports whether the body is all there, small, and one object with no members but those of the names.
func (r answer) exact(names ...string) bool {
	return r.Complete && len(r.Body) <= envelope.MaxSize && r.json().Only(names...)
}

// outside returns why the response is outside the envelope; "" when it is not.
func (r answer) outside(e envelope.Envelope) string { return e.Outside(r.Status, r.Header) }

// served reports whether the path is one where the platform serves what users uploaded.
func (r answer) served(e envelope.Envelope) bool { return e.Serves(r.Request, r.Status) }

// after returns the instant d after the response, within 0 and MaxPenalty.
func (r answer) after(d time.Duration) time.Time {
	return envelope.After(r.Now, d, envelope.MaxPenalty)
}

// serverNow returns what the platform's clock showed when it sent the response, and left how long it is until it shows t.
func (r answer) serverNow() time.Time { return envelope.ServerNow(r.Header, r.Now) }

// monthEnd returns when the month ends in China: the one Until that may be more than MaxPenalty away. The month is that of
// the platform's clock, and no month has more than 31 days, whatever that clock shows.
func (r answer) monthEnd() time.Time {
	now := r.serverNow().In(shanghai)
	return r.Now.Add(time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, shanghai).Sub(now))
}

func (r answer) left(t time.Time) time.Duration { return envelope.Left(r.Header, r.Now, t) }

// bounded returns the verdict with an Until that is d after the response, within 0 and most.
func (r answer) bounded(v httplimit.Verdict, d, most time.Duration) httplimit.Verdict {
	v.Until, v.Asked = envelope.Bounded(r.Now, d, most)
	return v
}

// doubted returns the verdict of a response that is not trusted to begin a long cool-down: the Transport's back-off
// chooses the length, and begins with a second.
func doubted(v httplimit.Verdict) httplimit.Verdict {
	v.Asked, v.Until, v.Banned = v.Until, time.Time{}, false
	return v
}

// ignored returns the verdict of a response that looks like a refusal and is not taken for one.
func ignored(reason, why string) httplimit.Verdict {
	return httplimit.Verdict{Reason: reason, Ignored: why}
}
