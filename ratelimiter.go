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
// A RateLimiter allows Rate.Permits permits within any window of length Rate.Interval (a sliding log). A request asks
// for 1 to Rate.Permits permits, which become free again one interval after they were acquired. Callers of one Client
// that wait are served first come, first served; the order among callers of several Clients is undefined. The limiter
// counts its grants, and not what callers do with them: 20 calls granted at one instant may reach another server
// together with 20 that are granted an interval later.
//
// The zero value is not usable; use [Client.RateLimiter] to make one. Calls of the zero value, or of nil, return
// ErrInvalidArgument. Methods are safe for concurrent use.
type RateLimiter struct {
	client *Client
	name   string
	err    error            // why the limiter cannot be used, or nil
	redis  redisson.Limiter // reads and writes what Redis holds
	handle engine.Handle    // the callers of this process that want permits
	want   engine.Request   // what its requests have in common
	rate   *Rate            // that it sets where there is none, or nil
}

// A RateOption configures [RateLimiter.SetRate] and [RateLimiter.UpdateRate], as RateLimiterArgs does in
// Redisson 4.4.0 and later.
type RateOption func(*rateOptions)

type rateOptions struct{ keepState bool }

// KeepState returns a RateOption that keeps the permits in use. Those acquired within the new interval count against
// the new rate. If they exceed it, no permit is granted until enough of them have expired. Permits are never kept
// when the limiter gets another type. The default is to forget them and start with all permits free.
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

// TrySetRate sets the limiter's rate if it has none, and reports whether it did. A limiter that has a rate is left
// unchanged. Callers of this Client that wait for the limiter ask again at once.
//
// TrySetRate returns ErrInvalidArgument for a rate that is out of range, ctx.Err(), ErrClosed, ErrUnavailable,
// ErrOverloaded, or an error from Redis.
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
// r.KeepAlive is 0; see [Admin.ClearExpire]. Callers of this Client that wait for the limiter ask again at
// once.
//
// The other clients of a PerClient limiter have to fit the new rate, too. SetRate sees to that itself if it lowers
// the rate, or sets it with KeepState where there was none. It first takes the permits that a client has left, and
// then those of its oldest grants. It looks for the clients' keys as [Admin.Clients] does, which takes some
// seconds for a million keys, and ignores keys that hold anything but the permits of a client. If Redis does not
// allow SCAN, the other clients of this package adapt when they next acquire, but Redisson's may use up what was left
// to them. With KeepState it looks for them, too, if the interval becomes longer, because their keys may have a TTL that was
// enough for the old one. Any other rate needs no such search: clients adapt when they next acquire.
//
// SetRate returns the same errors as [RateLimiter.TrySetRate]. After an error from Redis, ErrUnavailable, or an error
// of ctx, the rate may or may not have been set. If it was lowered, the permits of other clients may not fit it yet;
// [Admin.Heal] makes those of one client fit.
func (l *RateLimiter) SetRate(ctx context.Context, r Rate, opts ...RateOption) error {
	_, err := l.setRate(ctx, r, false, opts)
	return err
}

// UpdateRate is like [RateLimiter.SetRate] but only changes a limiter that has a rate, and reports whether it did. It
// returns the same errors, such as ErrUnavailable and ErrOverloaded. It corresponds to updateRate in Redisson 4.4.0
// and later.
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
		l.handle.Changed()
	}
	if err != nil && !did.Fits {
		err = fmt.Errorf("%w (the rate is set, but what other clients have left may be more than it)", err)
	}
	return did.Set, err
}

// Rate returns the limiter's rate. It returns ErrNotInitialized if the limiter has none, whereas Redisson's getConfig
// returns a rate of 0 since 3.18.0. Other errors are ErrMalformed, ctx.Err(), ErrClosed, ErrUnavailable,
// ErrOverloaded, and those from Redis.
func (l *RateLimiter) Rate(ctx context.Context) (Rate, error) {
	r, err := do(ctx, l, (*redisson.Limiter).Rate)
	return rateOf(r), err
}

// AvailablePermits returns how many permits a call could acquire now, from 0 to the rate. It changes nothing in
// Redis. Redisson's availablePermits, in contrast, reclaims expired permits, removes the TTL of the permits, and can
// return more than the rate.
//
// AvailablePermits returns ErrNotInitialized, ErrMalformed, ErrConflict, ctx.Err(), ErrClosed, ErrUnavailable,
// ErrOverloaded, or an error from Redis.
func (l *RateLimiter) AvailablePermits(ctx context.Context) (int64, error) {
	return do(ctx, l, (*redisson.Limiter).Available)
}

// Release gives permits back before their interval is over, by shrinking or removing the newest grants. It never
// gives back more permits than are in use. Redisson's release, since 3.52.0, leaves the grants in place, so the same
// permits become free again when the grants expire. Callers of this Client that wait for the limiter ask again at
// once.
//
// Release returns ErrInvalidArgument if permits is not in 1..2^32-1, ErrNotInitialized, ErrMalformed, ErrConflict,
// ctx.Err(), ErrClosed, ErrUnavailable, ErrOverloaded, or an error from Redis. After ErrConflict, ErrUnavailable or
// an error from Redis, all, some or none of the permits may have been given back.
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
