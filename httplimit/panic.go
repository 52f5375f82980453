// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"net/http"

	"github.com/goredisson/ratelimiter/httplimit/internal/envelope"
	"github.com/goredisson/ratelimiter/httplimit/internal/guard"
)

// A PanicError is a panic of foreign code that this package called: a function of a rule, a detector, the function of
// [WithEvents], a request's GetBody or a response's body. The Transport recovers it:
//
//   - a request is rejected when a function of its rules panics, because it is not known what the request spends;
//   - the verdict of a detector that panics is ignored, and the others are asked;
//   - if a limit's Settle panics, the permits keep the number that was spent;
//   - an event at which the function of WithEvents panics is lost;
//   - a rejection whose form panics has the default form;
//   - a request whose GetBody panics is not sent again;
//   - a body that panics while it is read ahead ends with the PanicError.
//
// [EventPanicked] reports each. A panic of the base's RoundTrip reaches the caller, as without a Transport.
//
// Its fields are:
//
//	Func  string // what panicked, such as "Limit.Key"
//	Value any    // what it panicked with; Unwrap returns it if it is an error
//	Stack []byte // the stack of the goroutine at that moment, as debug.Stack formats it
type PanicError = guard.PanicError

// contain calls f, and reports its panic by an event like e.
func (t *Transport) contain(e *Event, fn string, f func()) *PanicError {
	p := guard.Call(fn, f)
	if p != nil {
		t.panicked(e, p)
	}
	return p
}

func (t *Transport) panicked(like *Event, p *PanicError) {
	e := *like
	e.Kind, e.Err = EventPanicked, p
	t.emit(e)
}

// emit calls the function of WithEvents. If it panics, emit reports that to it once; a second panic is dropped.
func (t *Transport) emit(e Event) {
	if t.cfg.events == nil {
		return
	}
	if p := guard.Call("the function of WithEvents", func() { t.cfg.events(e) }); p != nil {
		e.Kind, e.Err = EventPanicked, p
		_ = guard.Call("", func() { t.cfg.events(e) })
	}
}

// detect asks d. If d panics, its verdict is ignored and the panic is reported; without a function that it can be
// reported to, the panic goes on.
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
func (c *roundTrip) needsBody(list []Detector, status int, header http.Header) bool {
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
