// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"net/http"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/httplimit/internal/envelope"
)

// MaxPeek is how many bytes of a response's body a Detector sees at most, unless WithPeek says less.
const MaxPeek = 64 << 10

// A Response is what a [Detector] sees of a platform's response: its status, its header and the start of its body. A
// Detector must not change it or keep it.
type Response struct {
	// Request is the request that was sent. Its body has been read.
	Request *http.Request
	// Status is the status code, such as 200.
	Status int
	// Header is the response's header. It is the caller's too.
	Header http.Header
	// Body is the start of the body, at most MaxPeek bytes. A gzip or deflate Content-Encoding that
	// net/http has left in place is undone, as far as the bytes that were read go.
	Body []byte
	// Complete says that Body is all of the body.
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
	// Throttled says that the platform rejected the request because of a limit, and did not execute it.
	Throttled bool
	// Until is when calls may go on. It is zero when the platform did not say and the Detector knows
	// no number.
	Until time.Time
	// Banned says that it is a penalty which further calls make worse.
	Banned bool
	// Scope says which of the platform's limits was met; empty when that is not known.
	Scope Scope
	// Reason is short, for errors and events: the platform's code, as a rule.
	Reason string
	// Asked is when the platform, or who speaks in its name, asked calls to go on, where Until is earlier
	// or zero because such a wait is bounded; otherwise it is zero. It is for events.
	Asked time.Time
	// Ignored says why an answer that looks like a rejection is none, such as "the body is a file". It is
	// for events; Throttled is false then, and Reason says what it looks like.
	Ignored string
}

// A Scope names one of a platform's limits, so that a [Verdict] finds the [Limit] that it speaks of.
// Package platform has those of its detectors and profiles; others may be made up.
type Scope string

// MaxPenalty bounds what a platform's text or header can make a fleet wait: an Until read from it is
// never before Response.Now and never more than this after it. Each detector has a tighter bound for each
// of its limits, and what an Until was before is in [Verdict.Asked]. Only quotas of a month, whose end is
// known without the platform's word, may be longer.
const MaxPenalty = 24 * time.Hour

// A Detector decides from a platform's response whether the platform throttled the request. Detect is called once for
// each response, by several goroutines at once, and must not block. When it panics it has no say: see [PanicError].
type Detector interface{ Detect(*Response) Verdict }

// A DetectorFunc is a function that is a [Detector].
type DetectorFunc func(*Response) Verdict

// Detect calls f.
func (f DetectorFunc) Detect(r *Response) Verdict { return f(r) }

// First returns a Detector whose verdict is that of the first of the detectors that says Throttled, otherwise of the
// first that says Ignored, otherwise the zero Verdict. Detectors that are surer, or that know a longer penalty, should
// come first.
func First(detectors ...Detector) Detector { return first(slices.Clone(detectors)) }

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

// A selective is a detector that says from the status and the header whether it needs the body.
type selective struct {
	DetectorFunc
	needs func(status int, header http.Header) bool
}

func (s selective) NeedsBody(status int, header http.Header) bool { return s.needs(status, header) }

// bounded returns the verdict with an Until that is d after the response, within 0 and most.
func (v Verdict) bounded(r *Response, d, most time.Duration) Verdict {
	v.Until, v.Asked = envelope.Bounded(r.Now, d, most)
	return v
}
