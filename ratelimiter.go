// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"fmt"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
)

// A RateLimiter is a handle of a limiter in Redis. All users of the same name share the limiter: other values of this
// type, other processes, and Java programs that use Redisson's RRateLimiter.
//
// It allows Rate.Permits permits within any window of length Rate.Interval (a sliding log). Permits become free again
// one interval after they were acquired. Callers of one Client that wait are served first come, first served; the order
// among callers of several Clients is undefined. The limiter counts its grants, and not what callers do with them:
// requests of two intervals may reach another server together.
//
// Methods such as [RateLimiter.OnOutage] return another handle of the limiter. Calls of a handle that was made with an
// argument out of range, of the zero value and of nil return ErrInvalidArgument. Methods are safe for concurrent use.
type RateLimiter struct {
	client *Client
	name   string
	err    error            // why the limiter cannot be used, or nil
	redis  redisson.Limiter // reads and writes what Redis holds
	handle engine.Handle    // the callers of this process that want permits
	want   engine.Request   // what its requests have in common
	rate   *Rate            // that it sets where there is none, or nil
}

// A RateOption configures [RateLimiter.SetRate] and [RateLimiter.UpdateRate], like RateLimiterArgs in Redisson 4.4.0
// and later.
type RateOption func(*rateOptions)

type rateOptions struct{ keepState bool }

// KeepState returns a RateOption that keeps the permits in use, unless the limiter gets another type. Those acquired
// within the new interval count against the new rate; if they exceed it, nothing is granted until enough have expired.
// The default is to start with all permits free.
func KeepState() RateOption {
	return func(o *rateOptions) { o.keepState = true }
}

// do carries out an operation that op returns for l, if calls can be made.
func do[T any](ctx context.Context, l *RateLimiter, op func(*redisson.Limiter) permit.Op[T]) (result T, err error) {
	if err = l.ready(ctx); err != nil {
		return result, err
	}
	return link.Do(ctx, &l.handle.Link, op(&l.redis))
}

// Name returns the name that was passed to [Client.RateLimiter], before any name mapping.
func (l *RateLimiter) Name() string { return l.made().name }

// TrySetRate sets the limiter's rate if it has none, and reports whether it did. It returns ErrInvalidArgument for a
// rate that is out of range, and the common errors, such as ErrUnavailable.
func (l *RateLimiter) TrySetRate(ctx context.Context, r Rate) (bool, error) {
	if err := l.checkRate(ctx, r); err != nil {
		return false, err
	}
	set, err := link.Do(ctx, &l.handle.Link, l.redis.TrySetRate(r.permit()))
	if set {
		l.handle.Changed()
	}
	return set, err
}

// SetRate sets the limiter's rate, whether or not it has one. Unless [KeepState] is given, it forgets the permits in
// use: all of an [Overall] limiter, and those of this client of a [PerClient] limiter. A TTL of the limiter stays if
// r.KeepAlive is 0; see [Admin.ClearExpire].
//
// If the permits of other clients of a PerClient limiter may not fit the new rate, SetRate finds them as
// [Admin.Clients] does and makes them fit. Without the right to SCAN, clients of this package adapt when they next
// acquire, but Redisson's may use up what they had left.
//
// SetRate returns the same errors as [RateLimiter.TrySetRate]. After one from Redis, ErrUnavailable or ctx.Err() the
// rate may or may not have been set, and other clients may not fit it yet; see [Admin.Heal].
func (l *RateLimiter) SetRate(ctx context.Context, r Rate, opts ...RateOption) error {
	_, err := l.setRate(ctx, r, false, opts)
	return err
}

// UpdateRate is like [RateLimiter.SetRate] but only changes a limiter that has a rate, and reports whether it did, like
// updateRate in Redisson 4.4.0 and later. It returns the same errors, such as ErrUnavailable.
func (l *RateLimiter) UpdateRate(ctx context.Context, r Rate, opts ...RateOption) (bool, error) {
	return l.setRate(ctx, r, true, opts)
}

func (l *RateLimiter) setRate(ctx context.Context, r Rate, mustExist bool, opts []RateOption) (bool, error) {
	if err := l.checkRate(ctx, r); err != nil {
		return false, err
	}
	var o rateOptions
	for _, opt := range opts {
		if opt == nil {
			return false, invalid("the rate of %q was set with a RateOption that is nil", l.name)
		}
		opt(&o)
	}
	did, err := link.Do(ctx, &l.handle.Link, l.redis.SetRate(r.permit(), mustExist, o.keepState))
	if did.Set {
		l.wasReset()
	}
	if err != nil && did.Set && !did.Fits {
		err = fmt.Errorf("%w (the rate is set, but what other clients have left may be more than it)", err)
	}
	return did.Set, err
}

// wasReset wakes the callers of this Client that wait for the limiter, also those that wait for others in a list with it.
func (l *RateLimiter) wasReset() {
	l.handle.Changed()
	l.client.lists.Reset(l.handle.Key)
}

// Rate returns the limiter's rate. It returns ErrNotInitialized if the limiter has none, whereas Redisson's getConfig
// returns a rate of 0 since 3.18.0, ErrMalformed, or a common error, such as ErrUnavailable.
func (l *RateLimiter) Rate(ctx context.Context) (Rate, error) {
	r, err := do(ctx, l, (*redisson.Limiter).Rate)
	return rateOf(r), err
}

// AvailablePermits returns how many permits a call could acquire now, from 0 to the rate. It changes nothing in Redis,
// whereas Redisson's availablePermits reclaims expired permits, removes the TTL of the permits, and can return more
// than the rate. It returns ErrNotInitialized, ErrMalformed, ErrConflict, or a common error, such as ErrUnavailable.
func (l *RateLimiter) AvailablePermits(ctx context.Context) (int64, error) {
	return do(ctx, l, (*redisson.Limiter).Available)
}

// Release gives permits back before their interval is over, by shrinking or removing the newest grants, and never more
// than are in use. Redisson's release, since 3.52.0, leaves the grants in place, so the same permits become free again
// when the grants expire.
//
// Release returns ErrInvalidArgument if permits is not in 1..2^32-1, ErrNotInitialized, ErrMalformed, ErrConflict, or a
// common error. After ErrConflict, ErrUnavailable or an error from Redis, some or all of the permits may have been
// given back.
func (l *RateLimiter) Release(ctx context.Context, permits int64) error {
	if err := l.checkPermits(ctx, permits); err != nil {
		return err
	}
	left, err := link.Do(ctx, &l.handle.Link, l.redis.Release(permits))
	if left < permits {
		l.handle.Changed()
	}
	return err
}

func (l *RateLimiter) checkRate(ctx context.Context, r Rate) error {
	if err := l.ready(ctx); err != nil {
		return err
	}
	return r.validate()
}
