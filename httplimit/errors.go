// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrRejected is the error of a request that the Transport rejected. It was not sent to the platform. With
// [WithRetry] an earlier attempt may have been sent and throttled, but it was not executed.
var ErrRejected = errors.New("httplimit: rejected before it was sent")

// A Reason says why a request was rejected: [ReasonWait], [ReasonCoolDown], [ReasonHost], [ReasonContext],
// [ReasonUnavailable] or [ReasonRule]. In an [Event] it may also be the platform's reason.
type Reason string

// The reasons of an [Error].
const (
	ReasonWait        Reason = "no permit in time"          // the permits take longer than the request may wait
	ReasonCoolDown    Reason = "cool-down"                  // as ReasonWait, because of a cool-down that this process knows of
	ReasonHost        Reason = "cool-down of the host"      // as ReasonCoolDown, but only for the host that throttled
	ReasonContext     Reason = "the request's context"      // the context ended while the request waited
	ReasonUnavailable Reason = "no answer from the limiter" // Redis is unavailable, and the outage policy is closed
	ReasonRule        Reason = "a rule cannot be applied"   // a name or a weight that cannot be used, a limiter without a rate
)

// A bound says which setting bounds the wait of a request.
type bound string

// The bounds of a wait; the smallest that applies to a request counts.
const (
	boundDeadline  bound = "the deadline of its context"
	boundContext   bound = "ContextWithMaxWait"
	boundTransport bound = "WithMaxWait"
	boundDefault   bound = "DefaultMaxWait" // for a request with none of the others
)

// An Error says why a request was rejected before it was sent: errors.Is(err, [ErrRejected]) holds for every Error.
// http.Client wraps it in a *url.Error. errors.As finds the Error in that; its text contains the URL of the request:
// see [Redact].
type Error struct {
	// Limiter is the name in Redis of the limiter that rejected the request, or empty if none did.
	Limiter string
	// Wait is the shortest time after which that limiter can grant the request, or 0 if it is not known.
	Wait time.Duration
	// MaxWait is how long the request was allowed to wait; the text of the Error says what set that bound. It is 0 unless
	// the wait was too long.
	MaxWait time.Duration
	boundBy bound
	// Reason is one of the reasons above.
	Reason Reason
	// Err is the cause, or nil. It is the context's error, which is context.DeadlineExceeded also if the deadline left
	// too little time for the wait, or an error of the limiter such as ratelimiter.ErrUnavailable.
	Err error
}

// Error returns the reason, the limiter, the wait with its bound, and the cause.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(ErrRejected.Error())
	b.WriteString(": " + string(e.Reason))
	if e.Limiter != "" {
		fmt.Fprintf(&b, " (limiter %q", e.Limiter)
		if e.Wait > 0 {
			fmt.Fprintf(&b, ", %v to wait", e.Wait.Round(time.Millisecond))
		}
		b.WriteString(")")
	}
	if e.boundBy != "" {
		fmt.Fprintf(&b, ", %v allowed by %s", e.MaxWait.Round(time.Millisecond), e.boundBy)
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// Is reports whether target is ErrRejected.
func (e *Error) Is(target error) bool { return target == ErrRejected }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Timeout reports whether the deadline of the request's context was too early for the wait, as in net.Error. It
// returns false if another bound ended the wait, and for a rejection by a rule.
func (e *Error) Timeout() bool { return errors.Is(e.Err, context.DeadlineExceeded) }
