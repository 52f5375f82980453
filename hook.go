// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// A Hook has functions that a Client calls as it works, for metrics and traces; see [WithHook]. Functions that
// are nil are not called.
//
// They are called without locks, in the goroutine of the request or call that they are about, and calls of them
// may overlap. They must not block. If one of them panics, Event of all Hooks is called with an event of kind
// [Panicked], and nothing else happens.
type Hook struct {
	// Request is called exactly once for each request for permits, when it has ended, whether with permits,
	// without them, or with an error. The context is that of the request.
	Request func(context.Context, RequestInfo)
	// Waiting is called with delta 1 when a request that may wait begins, and with delta -1 when it has ended.
	// It is not called for a request whose arguments are invalid.
	Waiting func(limiter string, delta int)
	// Call is called once for each attempt at a script call, when Redis has replied or the attempt has failed.
	// The requests of many callers may share a call.
	Call func(CallInfo)
	// Event is called with every event of the Client, for logs, metrics and alarms. On a ring an outage is that of
	// one shard. On a cluster it is that of one limiter, or of several limiters whose names hash alike. Otherwise it
	// is that of the whole Client. The two events of an outage that ends at once may be delivered in either order;
	// their Time is right in any case.
	Event func(Event)
}

// WithHook adds a Hook to those that a Client calls. Without any, requests are not timed. The modules
// otelratelimiter and prometheusratelimiter have ready-made ones, and [LogHook] writes a log.
func WithHook(h Hook) Option {
	return func(c *config) { c.hooks = append(c.hooks, h) }
}

// An Operation is a way to ask for permits.
type Operation string

// The operations of the requests that a [Hook] is told of.
const (
	OperationAllow   Operation = "allow"   // Allow, or TryAcquire that does not wait
	OperationAcquire Operation = "acquire" // Acquire, or TryAcquire that waits
	OperationAll     Operation = "all"     // TryAcquireAll and AcquireAll
	OperationPeek    Operation = "peek"    // Peek
	OperationReserve Operation = "reserve" // the method of that name in package limit
)

// A RequestOutcome is how a request ended.
type RequestOutcome string

// The outcomes of the requests that a [Hook] is told of.
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
	// Limiter is the name of the limiter, as RateLimiter.Name returns it. For OperationAll it is the limiter
	// that rejected, or the first one.
	Limiter   string
	Operation Operation
	Outcome   RequestOutcome
	// Permits is how many permits were asked for, of all limiters together. For OperationAll it is 0 if a demand
	// is invalid.
	Permits int64
	// Begin is when the request was made, by the clock of this process, and Duration how long it took.
	Begin    time.Time
	Duration time.Duration
	// Degraded reports that Redis was unavailable and an [OutagePolicy] decided.
	Degraded bool
	// Replied reports that a reply of Redis decided the request. Available, Rate and ClockSkew are those of the
	// reply, as in a [Result].
	Replied   bool
	Available int64
	Rate      Rate
	ClockSkew time.Duration
	// CallContext has the values of the context in which the call was made whose reply decided the request: that of
	// the first of the requests that shared it, under which the redis client traces the call. It is never canceled,
	// and nil if no call was made for the request, or it was a Peek or one for several limiters.
	CallContext context.Context
	// Err is the error that the request returned.
	Err error
}

// A CallInfo describes an attempt at a script call.
type CallInfo struct {
	// Script is the name of the script, such as "acquire".
	Script string
	// Limiter is the name of the limiter, or the first of several.
	Limiter string
	// Requests is how many requests share the call, at least 1.
	Requests int64
	Duration time.Duration
	// Refunded is how many permits the call gave back that were granted to requests which had ended. Permits
	// that nobody could give back are free after one interval.
	Refunded int64
	// Healed is what the call put right of what it found in Redis. It is zero for nearly every call.
	Healed Healed
	// Err is nil if Redis executed the script without an error.
	Err error
}

// Healed counts the permits of a limiter whose state a call has found broken and put right. The fields are named after
// the checks of rrl doctor in docs/findings.md, which says what each state does to callers of Redisson and where it
// comes from. If Redis executed a call and its reply was lost, what it healed is not counted.
type Healed struct {
	// Value is the rate if the number of permits left was missing while some were in use, or was no whole number.
	// It was rebuilt from the grants.
	Value int64
	// Lost is how many permits were neither left nor in use. They are free again.
	Lost int64
	// Surplus is how many more permits were left and in use than the rate allows. They are gone.
	Surplus int64
	// Clock is how many permits grants hold whose date was found ahead of the clock for the first time. They are
	// free one interval later, whatever their date.
	Clock int64
}

// hooks are the Hooks of a Client.
type hooks []Hook

// each calls f with each Hook, and reports panics.
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

// waiting tells that the number of requests that may wait has changed.
func (h hooks) waiting(limiter string, delta int) {
	h.each(limiter, func(h *Hook) {
		if h.Waiting != nil {
			h.Waiting(limiter, delta)
		}
	})
}

// ended tells that a request has ended. If it has no error and no permits, its outcome is rejected.
func (h hooks) ended(ctx context.Context, r *RequestInfo, granted bool, rejected RequestOutcome, err error) {
	if ctx == nil { // which is the error
		ctx = context.Background()
	}
	r.Duration, r.Err = time.Since(r.Begin), err
	r.Outcome = RequestOutcome(permit.Outcome(granted, string(rejected), err))
	h.each(r.Limiter, func(h *Hook) {
		if h.Request != nil {
			h.Request(ctx, *r)
		}
	})
}

// learn copies what a reply told.
func (r *RequestInfo) learn(reply *permit.Reply) {
	r.Replied, r.Available, r.Rate, r.ClockSkew = true, reply.Available, rateOf(reply.Rate), reply.Skew
	r.CallContext = reply.Context
}

func (l *RateLimiter) acquireHooked(ctx context.Context, want engine.Request) (got engine.Outcome, err error) {
	h := l.client.hooks
	r := RequestInfo{Limiter: l.name, Operation: OperationAllow, Permits: want.Permits, Begin: time.Now()}
	rejected := RequestRejected
	if want.Wait {
		r.Operation = OperationAcquire
	}
	if err = l.checkPermits(ctx, want.Permits); err == nil {
		if want.Wait {
			h.waiting(l.name, 1)
		}
		got, err = l.pass(ctx, want)
		if want.Wait {
			h.waiting(l.name, -1)
			if time.Since(r.Begin) >= want.Timeout {
				rejected = RequestTimeout
			}
		}
		r.Degraded = got.Degraded
		if err == nil && got.Reply != nil {
			r.learn(got.Reply)
			r.Available = got.Available
		}
	}
	h.ended(ctx, &r, err == nil && got.Granted, rejected, err)
	return got, err
}

func (l *RateLimiter) peekHooked(ctx context.Context, permits int64) (a permit.Reply, err error) {
	r := RequestInfo{Limiter: l.name, Operation: OperationPeek, Permits: permits, Begin: time.Now()}
	granted := false
	if err = l.checkPermits(ctx, permits); err == nil {
		if a, err = l.in(true).Peek(ctx, permits); err == nil {
			granted = a.Granted[0] > 0
			r.learn(&a)
		}
	}
	l.client.hooks.ended(ctx, &r, granted, RequestRejected, err)
	return a, err
}

func (c *Client) acquireAllHooked(ctx context.Context, wait bool, deadline time.Time, demands []Demand, own *[]*Grant) (got AllResult, err error) {
	h := c.hooks
	r := RequestInfo{Operation: OperationAll, Begin: time.Now()}
	rejected := RequestRejected
	if len(demands) > 0 && demands[0].Limiter != nil {
		r.Limiter = demands[0].Limiter.name
	}
	distinct, err := c.distinct(ctx, demands)
	if err == nil {
		first := r.Limiter
		for _, d := range distinct {
			r.Permits += d.Permits
		}
		if wait {
			h.waiting(first, 1)
		}
		got, err = c.acquireDistinct(ctx, wait, deadline, distinct, own)
		if wait {
			h.waiting(first, -1)
			if !time.Now().Before(deadline) {
				rejected = RequestTimeout
			}
		}
		if r.Degraded = got.Degraded; got.Limiter != nil {
			r.Limiter = got.Limiter.name
		}
	}
	h.ended(ctx, &r, got.Granted, rejected, err)
	return got, err
}
