// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/httplimit/internal/envelope"
)

// maxPeek is the largest number of bytes of a response's body that a Detector sees, unless WithPeek says less.
const maxPeek = 64 << 10

// A Response is what a [Detector] sees of a platform's response: its status, its header and the start of its body. A
// Detector must not change it or keep it.
type Response struct {
	// Request is the request that was sent. Its body has been read.
	Request *http.Request
	// Status is the status code, such as 200.
	Status int
	// Header is the response's header. It is the caller's too.
	Header http.Header
	// Body is the start of the body, at most 64 KiB, see [WithPeek]. If net/http has left a gzip or deflate Content-Encoding in
	// place, Body is decoded, as far as the bytes that were read allow.
	Body []byte
	// Complete reports whether Body is the whole body.
	Complete bool
	// Now is when the response arrived, by this process' clock.
	Now time.Time

	object        *envelope.Object  // of Body, parsed by the first Detector that asks
	maxRetryAfter time.Duration     // of WithMaxRetryAfter; 0: the default
	panicked      func(*PanicError) // is told when a Detector panics; nil: the panic is the caller's
}

func init() {
	envelope.ObjectOf = func(response any) *envelope.Object { return response.(*Response).json() }
}

// json returns the body's outermost object, without members when there is none.
func (r *Response) json() *envelope.Object {
	if r.object == nil {
		r.object = envelope.ParseObject(r.Body, r.Complete)
	}
	return r.object
}

// A Verdict says what a platform's response means for the caller's rate. The zero Verdict says that the
// request was not throttled.
type Verdict struct {
	// Throttled reports that the platform rejected the request because of a limit, and did not execute it.
	Throttled bool
	// Until is when calls may go on. It is zero if the platform did not say and the Detector has no default. The Detectors
	// of this module take no platform's word for more than a day, and have tighter bounds for most limits.
	Until time.Time
	// Banned reports a penalty that further calls make worse.
	Banned bool
	// Scope says which of the platform's limits was exceeded; it is empty if that is not known.
	Scope Scope
	// Reason is a short text for errors and events, usually the platform's code.
	Reason string
	// Asked is when the platform asked calls to go on, if Until is earlier or zero because such a wait is bounded.
	// Otherwise it is zero. It is for events.
	Asked time.Time
	// Ignored says why a response that looks like a rejection is not taken for one, such as "the body is a file". Then
	// Throttled is false, and Reason says which rejection it looks like. It is for events.
	Ignored string
}

// A Scope names one of a platform's limits, and connects a [Verdict] with the [Limit] in question. Package platform
// defines those of its detectors and profiles; you may make up others.
type Scope string

// maxPenalty bounds how long a platform's text or header can make a fleet wait. An Until read from it is never before
// Response.Now, and never more than maxPenalty after it. Only monthly quotas may last longer, because their end is
// known without the platform's word.
const maxPenalty = envelope.MaxPenalty

// A Detector decides from a platform's response whether the platform throttled the request. Detect is called once for
// each response, by several goroutines at once, and must not block. If it panics, its verdict is ignored: see
// [PanicError].
type Detector interface{ Detect(*Response) Verdict }

// A DetectorFunc is a function that is a [Detector].
type DetectorFunc func(*Response) Verdict

// Detect calls f.
func (f DetectorFunc) Detect(r *Response) Verdict { return f(r) }

// First returns a Detector that asks several detectors. Its verdict is the first that is Throttled, otherwise the
// first with Ignored set, otherwise the zero Verdict. Put detectors that are more certain, or that know a longer
// penalty, first.
func First(detectors ...Detector) Detector { return first(slices.Clone(detectors)) }

// checkDetector checks a Detector, and those in a [First]. One that is nil would panic at each response.
func checkDetector(d Detector, p problems) {
	if v := reflect.ValueOf(d); !v.IsValid() || (v.Kind() == reflect.Pointer || v.Kind() == reflect.Func) && v.IsNil() {
		p.add("", "it is nil")
		return
	}
	switch d := d.(type) {
	case first:
		for i, d := range d {
			checkDetector(d, p.in("[%d]", i))
		}
	case Signature:
		d.check(p)
	case *Signature:
		d.check(p)
	}
}

type first []Detector

func (f first) Detect(r *Response) Verdict {
	var ignored Verdict
	for _, d := range f {
		v := r.detect(d)
		if v.Throttled {
			return v
		}
		if ignored.Ignored == "" && v.Ignored != "" {
			ignored = v
		}
	}
	return ignored
}

func (f first) NeedsBody(status int, header http.Header) bool {
	for _, d := range f {
		if envelope.NeedsBody(d, status, header) {
			return true
		}
	}
	return false
}

// A headerDetector is a detector that never needs the body.
type headerDetector struct{ DetectorFunc }

func (headerDetector) NeedsBody(int, http.Header) bool { return false }

// bounded returns the verdict with an Until that is d after the response, where d is limited to 0..most.
func (v Verdict) bounded(r *Response, d, most time.Duration) Verdict {
	v.Until, v.Asked = envelope.Bounded(r.Now, d, most)
	return v
}
