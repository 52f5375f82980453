// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"net/http"
	"time"
)

// An EventKind says what happened. It is [EventRateDiffers], [EventGranted], [EventDegraded], [EventRejected],
// [EventIgnored], [EventUnread], [EventThrottled], [EventCoolDown], [EventHostCoolDown], [EventPanicked],
// [EventUnsettled] or [EventRetry].
type EventKind string

// The kinds of events, in the order in which a request may meet them.
const (
	// EventRateDiffers: the limiter has another rate than its Limit says, and keeps it unless [WithRuleRates] is set;
	// Reason has both rates. The Transport compares them when it first uses the limiter, after the response or the
	// rejection.
	EventRateDiffers EventKind = "rate differs"
	// EventGranted: the permits were granted after Wait, and the request is sent.
	EventGranted EventKind = "granted"
	// EventDegraded: the outage policy granted the permits during an outage of Redis. It comes before EventGranted.
	EventDegraded EventKind = "degraded"
	// EventRejected: nothing was sent, and Err is the *Error. With DryRun the request was sent anyway.
	EventRejected EventKind = "rejected"
	// EventIgnored: the response looks like a rejection for Reason, but is not taken for one. Err says why: it is not
	// the envelope of the platform's gateway, or another host sent it. Nothing cools down.
	EventIgnored EventKind = "penalty ignored"
	// EventUnread: a detector needed the response's body and did not see all of its start. Err says why: it has a
	// content coding that cannot be read, is damaged or cut, or the caller closed it before it had arrived. It is not
	// known whether the body reported a penalty.
	EventUnread EventKind = "body not read"
	// EventThrottled: the platform throttled the request, until Until if that is known; Reason, Scope, Banned and
	// Status have the details. Asked is set if the platform asked for more than Until.
	EventThrottled EventKind = "throttled"
	// EventCoolDown: Limiter grants nothing before Until, in the whole fleet. If Err is set, Redis could not be told,
	// and only this process obeys until Redis can be told. With DryRun no process obeys.
	EventCoolDown EventKind = "cool-down"
	// EventHostCoolDown: Limiter does not cool down, because requests to other hosts spend it too. This process's
	// requests to Host wait until Until.
	EventHostCoolDown EventKind = "host cool-down"
	// EventPanicked: a function that was passed to the Transport panicked. Err is the [*PanicError], which says what
	// became of the request.
	EventPanicked EventKind = "panicked"
	// EventUnsettled: the permits of Limiter keep the number that was spent at first, because of Err. Either the
	// number used is not known, because the caller did not read the body to its end, the body could not be read, or
	// [Limit.Settle] returned -1. Or Redis could not be told, or its reply was lost; in the latter case the permits
	// may be settled.
	EventUnsettled EventKind = "unsettled"
	// EventRetry: the throttled request is sent again after Wait.
	EventRetry EventKind = "retry"
)

// An Event describes what happened to a request, whereas a ratelimiter.Event is about a Client and its Redis; the function of [WithEvents] gets it, for logs and metrics. Fields
// that a kind does not use are zero.
type Event struct {
	Kind    EventKind
	Request *http.Request // the caller's; do not modify it. Its URL may contain secrets: see RedactURL.
	Rules   []string      // the names of the rules that matched; do not modify them
	Limiter string        // the name in Redis of the limiter in question
	Wait    time.Duration // how long the request waited, would have to wait, or will wait
	Until   time.Time     // the end of a penalty, by this process' clock
	Asked   time.Time     // the end that the platform asked for, if Until is earlier or not known
	Host    string        // the host that responded, in lower case and without its port
	Scope   Scope         // which of the platform's limits was exceeded
	Banned  bool          // a penalty that further calls make worse
	Status  int           // the status code of the platform's response
	Attempt int           // 1 if the request is sent for the first time
	Reason  Reason        // the platform's reason, or one of an Error's reasons
	DryRun  bool          // the request was not held up
	Err     error
}
