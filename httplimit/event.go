// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"net/http"
	"time"
)

// An EventKind says what happened.
type EventKind string

// The kinds of events, in the order in which a request may meet them.
const (
	// EventRateDiffers: the limiter has another rate than its Limit says, and keeps it unless [WithRuleRates]; Reason
	// has both. It is looked for
	// when the Transport first uses the limiter, behind the response.
	EventRateDiffers EventKind = "rate differs"
	// EventAdmitted: the permits were granted after Wait, and the request is sent.
	EventAdmitted EventKind = "admitted"
	// EventDegraded: the outage policy admitted the request during an outage of Redis. It comes before EventAdmitted.
	EventDegraded EventKind = "degraded"
	// EventRejected: nothing was sent; Err is the *Error. With DryRun it was sent all the same.
	EventRejected EventKind = "rejected"
	// EventIgnored: an answer looks like a rejection for Reason and is not taken for one, since Err: it is
	// not the envelope of the platform's gateway, or another host gave it. Nothing cools down.
	EventIgnored EventKind = "penalty ignored"
	// EventThrottled: the platform throttled the request, until Until as far as it is known; Reason,
	// Scope, Banned and Status say how. Asked is set when the platform asked for more than that.
	EventThrottled EventKind = "throttled"
	// EventCoolDown: Limiter grants nothing before Until, in the whole fleet. When Err is set Redis
	// could not be told, and only this process obeys until it can be. With DryRun nobody does.
	EventCoolDown EventKind = "cool-down"
	// EventHostCoolDown: Limiter does not cool down, because requests to other hosts spend it too.
	// Those of this process to Host wait until Until.
	EventHostCoolDown EventKind = "host cool-down"
	// EventPanic: a function that the Transport was given panicked; Err is the [*PanicError], which says what
	// became of the request.
	EventPanic EventKind = "panic"
	// EventUnsettled: the permits of Limiter could not be settled because of Err, and stay what was spent, or not: the
	// reply may have been lost.
	EventUnsettled EventKind = "unsettled"
	// EventRetry: the throttled request is sent again after Wait.
	EventRetry EventKind = "retry"
)

// An Event tells the function of [WithEvents] what happened, for logs and metrics. Fields that a kind does not use are
// zero.
type Event struct {
	Kind    EventKind
	Request *http.Request // the caller's; not to be changed. Its URL may hold secrets: see RedactURL.
	Rules   []string      // the names of the rules that matched; not to be changed
	Limiter string        // the one it is about, by its name in Redis
	Wait    time.Duration // how long the request waited, would have to, or will
	Until   time.Time     // the end of a penalty, by this process' clock
	Asked   time.Time     // what the platform asked for, when Until is earlier or not known
	Host    string        // the one that answered, in lower case and without its port
	Scope   Scope         // which of the platform's limits
	Banned  bool          // a penalty that further calls make worse
	Status  int           // of the platform's answer
	Attempt int           // 1 for the first time that the request is sent
	Reason  Reason        // the platform's, or one of an Error's reasons
	DryRun  bool          // nothing was held up
	Err     error
}
