// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// A Hook holds functions that a Client calls, unless they are nil, for metrics and traces; see [WithHook]. It calls
// them without holding a lock, in the goroutine of the request or call in question, and the calls may overlap. They
// must not block or call a limiter. If one panics, all Hooks of the Client get an event of kind [Panicked], and nothing else happens.
type Hook struct {
	// Started is called once, by New.
	Started func(ClientInfo)
	// Request is called exactly once for each request for permits, when it has ended, with its context.
	Request func(context.Context, RequestInfo)
	// Waiting is called with delta 1 when a valid request that may wait begins, and with delta -1 when it has ended.
	Waiting func(limiter string, delta int)
	// Call is called once for each attempt at a script call, when it has ended. Many requests may share one.
	Call func(CallInfo)
	// Event is called with every event. The two events of an outage that ends at once may arrive in either order; their
	// Time is right.
	Event func(Event)
}

// WithHook adds a Hook to those that a Client calls: otelratelimiter and prometheusratelimiter provide some for
// metrics, and [LogHook] one that writes a log. By default there is none, and requests are not timed.
func WithHook(h Hook) Option {
	return func(c *config) { c.hooks = append(c.hooks, h) }
}

// An Operation says how permits were asked for. It is [OperationAllow], [OperationAcquire], [OperationAll],
// [OperationPeek] or [OperationReserve].
type Operation string

const (
	OperationAllow   Operation = "allow"   // Allow, or TryAcquire that does not wait
	OperationAcquire Operation = "acquire" // Acquire, or TryAcquire that waits
	OperationAll     Operation = "all"     // TryAcquireAll and AcquireAll
	OperationPeek    Operation = "peek"    // Peek
	OperationReserve Operation = "reserve" // the method of that name in package limit
)

// A RequestOutcome is how a request ended. It is [RequestGranted], [RequestRejected], [RequestTimeout],
// [RequestCanceled] or [RequestError].
type RequestOutcome string

const (
	RequestGranted  RequestOutcome = "granted"
	RequestRejected RequestOutcome = "rejected" // at once, because it does not wait or its time is known to be too short
	RequestTimeout  RequestOutcome = "timeout"  // its time or the deadline of its context was over
	RequestCanceled RequestOutcome = "canceled" // its context was
	RequestError    RequestOutcome = "error"
)

// A RequestInfo describes a request for permits that has ended. A Peek is granted if its permits could have
// been acquired.
type RequestInfo struct {
	// Limiter is the name of the limiter. For OperationAll it is the limiter that rejected, or that of the first
	// demand.
	Limiter   string
	Operation Operation
	Outcome   RequestOutcome
	// Permits is how many were requested, for OperationAll by all demands together, or 0 if one is invalid.
	Permits int64
	// Begin is when the request was made, by the clock of this process, and Duration how long it took.
	Begin    time.Time
	Duration time.Duration
	// Degraded reports that an [OutagePolicy] decided the request.
	Degraded bool
	// Replied reports that a reply of Redis decided the request. Then Available, Rate and ClockSkew are from that
	// reply, as in a [Result].
	Replied   bool
	Available int64
	Rate      Rate
	ClockSkew time.Duration
	// CallContext has the values of the context under which the redis client traced the call: that of the first request
	// that shared it. It is never canceled, and nil without a call, for a Peek, and for several limiters.
	CallContext context.Context
	Err         error // that the request returned
}

// A ClientInfo is what identifies a Client in Redis.
type ClientInfo struct {
	ID string // as [Client.ID] returns it
	// Process is four hexadecimal digits by which rrl and the page know the Client, as in "Go 28d0": those of the ID if
	// that is a UUID, otherwise random ones; with [WithRedisson316] the last two are 00.
	Process string
}

// A CallInfo describes one attempt at a script call.
type CallInfo struct {
	Script  string // such as "acquire"
	Limiter string // or the first of several
	// Requests is how many requests share the call.
	Requests int64
	Duration time.Duration
	// Refunded is how many permits the call gave back because the requests that they were granted to had ended.
	Refunded int64
	// Healed is what the call repaired, zero for nearly every call.
	Healed Healed
	// Err is nil if Redis executed the script without an error.
	Err error
}

// Healed counts the permits that a call has repaired, unless its reply was lost. The fields are named after the checks
// of rrl doctor, which docs/findings.md explains.
type Healed struct {
	// Value is the rate if the number of permits left was missing or no whole number, and was rebuilt from the grants.
	Value int64
	// Lost is how many permits were neither left nor in use. They are free again.
	Lost int64
	// Surplus is by how many the permits left and in use exceeded the rate. They were removed.
	Surplus int64
	// Clock is how many permits were found dated ahead of the clock. They are free one interval later.
	Clock int64
}

// hooks are the Hooks of a Client.
type hooks []Hook

// each calls f with each Hook, and reports panics to all Hooks.
func (h hooks) each(limiter string, f func(*Hook)) {
	retry.Each(h, f, func(_ int, err error) {
		e := Event{Kind: Panicked, Limiter: limiter, Time: time.Now(), Err: err}
		retry.Each(h, e.to, func(int, error) {}) // if that panics as well, it is not reported
	})
}

func (e Event) to(h *Hook) {
	if h.Event != nil {
		h.Event(e)
	}
}

// observe returns the function that the engine calls with its events, or nil if nobody wants them.
func (h hooks) observe() func(link.Event) {
	if len(h) == 0 {
		return nil
	}
	return func(ev link.Event) {
		e := eventOf(ev)
		h.each(e.Limiter, e.to)
	}
}

// mixed returns the function that reports that the layouts of a limiter are mixed, or nil if nobody wants to know. With long,
// the Client writes the layout of Redisson 3.16.4 to 3.16.8.
func (h hooks) mixed(long bool) func(limiter string) {
	if len(h) == 0 {
		return nil
	}
	return func(limiter string) {
		found, advice := "has grants in the layout of Redisson 3.16.4 to 3.16.8", "if they use it, make every Go client of it with WithRedisson316, and use no other Redisson"
		if long {
			found, advice = "has grants in a layout that Redisson 3.16.4 to 3.16.8 cannot read",
				"if they use it, make every Go client of it with WithRedisson316, and use no other Redisson; if they no longer use it, make this one without"
		}
		err := fmt.Errorf("ratelimiter: %q %s, whose calls fail beside any other (data string too short): %s", limiter, found, advice)
		e := Event{Kind: LayoutsMixed, Limiter: limiter, Time: time.Now(), Err: err}
		h.each(limiter, e.to)
	}
}

// ofRequests reports whether a Hook wants to know of requests.
func (h hooks) ofRequests() bool {
	return slices.ContainsFunc(h, func(h Hook) bool { return h.Request != nil || h.Waiting != nil })
}

// called returns the function that is called after each attempt at a script call, or nil if nobody wants to know.
func (h hooks) called() func(permit.Call) {
	if !slices.ContainsFunc(h, func(h Hook) bool { return h.Call != nil }) {
		return nil
	}
	return func(c permit.Call) {
		h.each(c.Limiter, func(h *Hook) {
			if h.Call != nil {
				h.Call(CallInfo{Script: c.Script, Limiter: c.Limiter, Requests: c.Requests, Duration: c.Duration,
					Refunded: c.Refunded, Healed: Healed(c.Healed), Err: c.Err})
			}
		})
	}
}

// started tells the Hooks what identifies the Client.
func (h hooks) started(c ClientInfo) {
	h.each("", func(h *Hook) {
		if h.Started != nil {
			h.Started(c)
		}
	})
}

// waiting tells the Hooks that the number of requests that may wait has changed by delta.
func (h hooks) waiting(limiter string, delta int) {
	h.each(limiter, func(h *Hook) {
		if h.Waiting != nil {
			h.Waiting(limiter, delta)
		}
	})
}

// A hookedRequest is a request for permits that is reported to the Hooks.
type hookedRequest struct {
	RequestInfo
	hooks  hooks
	ctx    context.Context
	waitOf string // the limiter under whose name it waits; empty if it does not
}

// begin tells the Hooks that a request begins; waits says that it is valid and may wait.
func (h hooks) begin(ctx context.Context, op Operation, limiter string, permits int64, waits bool) *hookedRequest {
	r := &hookedRequest{RequestInfo{Limiter: limiter, Operation: op, Permits: permits, Begin: time.Now()}, h, ctx, ""}
	if ctx == nil { // which is the error
		r.ctx = context.Background()
	}
	if waits {
		r.waitOf = limiter
		h.waiting(limiter, 1)
	}
	return r
}

// end tells the Hooks that the request has ended; timeout is how long it was allowed to wait.
func (r *hookedRequest) end(granted bool, timeout time.Duration, err error) {
	rejected := RequestRejected
	if r.waitOf != "" {
		r.hooks.waiting(r.waitOf, -1)
		if time.Since(r.Begin) >= timeout {
			rejected = RequestTimeout
		}
	}
	r.Duration, r.Err = time.Since(r.Begin), err
	r.Outcome = RequestOutcome(permit.Outcome(granted, string(rejected), err))
	r.hooks.each(r.Limiter, func(h *Hook) {
		if h.Request != nil {
			h.Request(r.ctx, r.RequestInfo)
		}
	})
}

// learn copies what a reply of Redis says.
func (r *RequestInfo) learn(reply *permit.Reply) {
	r.Replied, r.Available, r.Rate, r.ClockSkew = true, reply.Available, rateOf(reply.Rate), reply.Skew
	r.CallContext = reply.Context
}
