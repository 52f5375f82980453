// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"net/http"

	"github.com/goredisson/ratelimiter/httplimit/internal/envelope"
	"github.com/goredisson/ratelimiter/httplimit/internal/guard"
)

// A PanicError is a panic of a function that this package was given: of a rule, a detector, the function of
// [WithEvents], a request's GetBody or a response's body. The Transport contains it:
//
//   - a request is rejected when a function of its rules panics, since what it spends is not known;
//   - a detector that panics has no say in that response, and the others are asked;
//   - an event at which the function of WithEvents panics is lost;
//   - a request whose GetBody panics is not sent again;
//   - a body that panics while it is read ahead ends with the PanicError.
//
// [EventPanic] tells of each. A panic of the base's RoundTrip is the caller's, as without a Transport.
type PanicError = guard.PanicError

// contain calls f, and tells of its panic by an event like e.
func (t *Transport) contain(e *Event, fn string, f func()) *PanicError {
	p := guard.Call(fn, f)
	if p != nil {
		t.panicked(e, p)
	}
	return p
}

func (t *Transport) panicked(like *Event, p *PanicError) {
	e := *like
	e.Kind, e.Err = EventPanic, p
	t.emit(e)
}

// emit tells the function of WithEvents. When that panics it is told so once; of a second panic nobody is left to
// be told.
func (t *Transport) emit(e Event) {
	if t.cfg.events == nil {
		return
	}
	if p := guard.Call("the function of WithEvents", func() { t.cfg.events(e) }); p != nil {
		e.Kind, e.Err = EventPanic, p
		_ = guard.Call("", func() { t.cfg.events(e) })
	}
}

// detect asks d, which has no say when it panics and somebody is there to be told.
func (r *Response) detect(d Detector) (v Verdict) {
	if r.panicked == nil {
		return d.Detect(r)
	}
	if p := guard.Call("Detector.Detect", func() { v = d.Detect(r) }); p != nil {
		r.panicked(p)
		return Verdict{}
	}
	return v
}

// needsBody asks the detectors whether they need the body of a response. One that panics does not.
func (c *call) needsBody(list []Detector, status int, header http.Header) bool {
	for _, d := range list {
		if f, ok := d.(first); ok {
			if c.needsBody(f, status, header) {
				return true
			}
			continue
		}
		needs := false
		c.t.contain(&c.event, "BodySelector.NeedsBody", func() { needs = envelope.NeedsBody(d, status, header) })
		if needs {
			return true
		}
	}
	return false
}
