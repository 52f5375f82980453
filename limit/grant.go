// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
)

// ErrCannotSettle is returned by AllowGrant and WaitGrant of a limiter whose grants cannot be settled, before anything is
// taken. One that grants in advance ([LeakyQueue], [SmoothBursty], [SmoothWarmingUp]) has told later callers their turns
// already, which no settlement can move. In a [SlidingLog] each grant has the sum of all before it, so that a change of one
// would be a change of all later ones; a ratelimiter.RateLimiter is a log whose grants can be settled.
var ErrCannotSettle = errors.New("limit: grants of this algorithm cannot be settled")

// A Grant is permits that one call was granted, and that it may settle: for work whose cost is known only when it is done,
// such as the tokens of a language model. It has the methods of a ratelimiter.Grant, for what is kept in other keys. It is
// safe for concurrent use. A Grant that is never settled stays what was granted.
type Grant struct {
	limiter    grantor
	permits    int64
	ofPolicy   bool // an outage policy has granted them, so that the limiter knows nothing of them
	settlement calls.Settlement
	settled    retry.Settlement // to what was used
}

// A grantor is a Shared or a Local, as its grants know it.
type grantor interface {
	Limiter
	label() string
	settle(context.Context, *calls.Settlement) error
	setting() (*calls.Setting, error) // or why it cannot be used
	ask(context.Context, ratelimiter.Operation, calls.Demand) (calls.Outcome, error)
}

func newGrant(l grantor, n int64, o calls.Outcome) *Grant {
	return &Grant{limiter: l, permits: n, ofPolicy: o.Degraded, settlement: calls.Settlement{Permits: n, Mark: o.Mark}}
}

func checkSettles(n *calls.Setting) error {
	if !n.Settles() {
		return fmt.Errorf("%w: %T", ErrCannotSettle, n.Algorithm)
	}
	return nil
}

func allowGrant(ctx context.Context, l grantor, n int64) (*Grant, ratelimiter.Result, error) {
	by, err := l.setting()
	if err == nil {
		err = checkSettles(by)
	}
	if err != nil {
		return nil, ratelimiter.Result{}, err
	}
	o, err := l.ask(ctx, ratelimiter.OperationAllow, calls.Demand{N: n, Spend: true})
	if err != nil || !o.Granted {
		return nil, o.Result, err
	}
	return newGrant(l, n, o), o.Result, nil
}

func waitGrant(ctx context.Context, l grantor, n int64) (*Grant, error) {
	by, err := l.setting()
	if err == nil {
		err = checkSettles(by)
	}
	if err != nil {
		return nil, err
	}
	o, err := waitFor(ctx, l, n, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	return newGrant(l, n, o), nil
}

// AllowGrant is Allow with a [Grant] that can be settled, which is nil if the permits were not granted. It has the same
// errors, and [ErrCannotSettle].
func (s *Shared) AllowGrant(ctx context.Context, n int64) (g *Grant, r ratelimiter.Result, err error) {
	return allowGrant(ctx, s, n)
}

// WaitGrant is [Wait] with a [Grant] that can be settled. It has the same errors, and [ErrCannotSettle].
func (s *Shared) WaitGrant(ctx context.Context, n int64) (*Grant, error) { return waitGrant(ctx, s, n) }

// AllowGrant is as that of a [Shared].
func (l *Local) AllowGrant(ctx context.Context, n int64) (g *Grant, r ratelimiter.Result, err error) {
	return allowGrant(ctx, l, n)
}

// WaitGrant is as that of a [Shared].
func (l *Local) WaitGrant(ctx context.Context, n int64) (*Grant, error) { return waitGrant(ctx, l, n) }

func (l *Local) label() string { return signature(l.by) }

func (l *Local) settle(_ context.Context, s *calls.Settlement) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.(calls.Settler).Settle(l.nowLocked(), l.idLocked(), s)
	return nil
}

// Permits returns how many permits were granted, 0 if g is nil.
func (g *Grant) Permits() int64 {
	if g == nil {
		return 0
	}
	return g.permits
}

// Cancel gives the permits back, as if they had not been granted. It is Settle(ctx, 0).
func (g *Grant) Cancel(ctx context.Context) error { return g.Settle(ctx, 0) }

// Settle makes the grant one of the permits that were used.
//
// If actual is less than was granted, Settle gives the rest back at once, except for what has become available by itself
// since: of a window nothing once it has ended, and of a bucket nothing of what has been refilled for this grant. If other
// grants were settled meanwhile it may be less still, and it is nothing if the limiter was reset, its key was lost, or the
// clock of Redis was put back. So Bound holds. Callers of
// this process that wait with the same parameters are served at once, and others within a second.
//
// If actual is more, Settle takes the difference now, however many permits are left. The limiter may then owe permits, and
// grants none until it is even: a window until it ends (the next window of a [SlidingCounter] counts them as it counts all
// permits), a bucket until they have been refilled. A window or an [IntervalBucket] owes up to 2^32-1 permits, and the
// others as many as they count exactly. Bound does not include them.
//
// A grant that an outage policy made ([WithOutagePolicy]) stays what the policy granted: Settle sends nothing and returns nil.
//
// Settle returns ratelimiter.ErrInvalidArgument if actual is not in 0..2^32-1, ratelimiter.ErrSettled, ctx.Err(),
// ratelimiter.ErrUnavailable, or an error from Redis. If ctx had ended before the call, the grant is as before, and may be settled to
// any number. After any other of the last three it may or may not have been settled.
// Make the same call again to be sure: it settles the grant at most once, and returns ErrUnavailable if Redis can no longer
// tell; see [Shared]. A call with another number returns ErrSettled.
func (g *Grant) Settle(ctx context.Context, actual int64) error {
	if g == nil || g.limiter == nil {
		return calls.Invalid("the Grant is not one that AllowGrant or WaitGrant returned")
	}
	if err := calls.ContextError(ctx); err != nil {
		return err
	}
	if actual < 0 || actual > calls.MaxPermits {
		return calls.Invalid("settled %d permits of %s, which is not in 0..%d", actual, g.limiter.label(), int64(calls.MaxPermits))
	}
	first, ok := g.settled.Begin(actual)
	if !ok {
		return ratelimiter.ErrSettled
	}
	if first { // a call that its caller has left may still read it
		g.settlement.By = actual - g.permits
	}
	var err error
	if actual != g.permits && !g.ofPolicy {
		err = g.limiter.settle(ctx, &g.settlement)
	}
	g.settled.End(err)
	return err
}
