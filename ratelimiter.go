package ratelimiter

import (
	"context"
	"errors"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
)

// A RateLimiter is a limiter in Redis, shared by all that use its name: other values of this type,
// other processes, and Java programs through Redisson's RRateLimiter.
//
// It allows Rate.Permits within any window of Rate.Interval: a sliding log. A request takes 1 to
// Rate.Permits permits, which come back one interval after they were acquired. The callers of one
// Client that wait are served first come, first served; those of several are in no particular order. It
// counts what it grants, not what its callers then do: 20 calls granted at one instant may reach
// somebody else's server together with 20 granted an interval later.
//
// The zero value is not usable; make one with [Client.RateLimiter]. Its methods are safe for
// concurrent use.
type RateLimiter struct {
	client *Client
	name   string
	err    error            // why the name cannot be used
	redis  redisson.Limiter // what lies in Redis
	handle engine.Handle    // who waits for it
	policy *outage.Policy   // nil for FailClosed
}

// A RateOption changes what SetRate and UpdateRate do. Redisson: RateLimiterArgs, since 4.4.0.
type RateOption func(*rateOptions)

type rateOptions struct{ keepState bool }

// KeepState keeps the permits in use: those acquired within the new interval count against the new
// rate. Where they are more than it has, no permit is granted until enough have expired. The state of
// another type is not kept. The default is to forget them and start with all permits.
func KeepState() RateOption {
	return func(o *rateOptions) { o.keepState = true }
}

// Name is the name that the limiter was made with.
func (l *RateLimiter) Name() string { return l.name }

// TrySetRate gives the limiter a rate unless it has one, and answers whether it did. A limiter that
// has one is left as it is.
//
// Errors: ErrInvalidArgument for a rate out of its range, ctx.Err(), ErrClosed, and those of Redis.
func (l *RateLimiter) TrySetRate(ctx context.Context, r Rate) (bool, error) {
	if err := l.checkRate(ctx, r); err != nil {
		return false, err
	}
	set, err := l.redis.TrySetRate(ctx, r.permit())
	if set {
		l.handle.Changed()
	}
	return set, err
}

// SetRate gives the limiter a rate, whether or not it has one, and forgets the permits in use unless
// [KeepState]: those of all, and those of this client. Other clients' PER_CLIENT permits cannot be
// named; they adapt to the new rate as those clients go on acquiring. A KeepAlive of 0 leaves a TTL
// that the limiter has; see [RateLimiter.ClearExpire].
//
// Callers of this Client that wait for the limiter ask again at once. Errors are those of TrySetRate;
// after one of Redis' or the connection's, the rate may or may not have been set.
func (l *RateLimiter) SetRate(ctx context.Context, r Rate, opts ...RateOption) error {
	_, err := l.setRate(ctx, r, false, opts)
	return err
}

// UpdateRate is SetRate for a limiter that has a rate: it answers false, and changes nothing, when
// there is none. Errors are those of SetRate. Redisson: updateRate, since 4.4.0.
func (l *RateLimiter) UpdateRate(ctx context.Context, r Rate, opts ...RateOption) (bool, error) {
	return l.setRate(ctx, r, true, opts)
}

func (l *RateLimiter) setRate(ctx context.Context, r Rate, mustExist bool, opts []RateOption) (bool, error) {
	if err := l.checkRate(ctx, r); err != nil {
		return false, err
	}
	var o rateOptions
	for _, opt := range opts {
		opt(&o)
	}
	set, err := l.redis.SetRate(ctx, r.permit(), mustExist, o.keepState)
	if set {
		l.handle.LearnType(permit.Type(r.Type))
		l.handle.Changed()
	}
	return set, err
}

// Rate is the limiter's rate. Without one it answers ErrNotInitialized, where Redisson's getConfig
// answers a rate of 0 since 3.18.0. Errors: also ErrMalformed, ctx.Err(), ErrClosed, ErrUnavailable, and
// those of Redis.
func (l *RateLimiter) Rate(ctx context.Context) (Rate, error) {
	if err := l.ready(ctx); err != nil {
		return Rate{}, err
	}
	r, err := l.redis.Rate(ctx)
	return rateOf(r), err
}

// AvailablePermits is how many permits a call could acquire now, 0 to the rate. It changes nothing in
// Redis, where Redisson's availablePermits reclaims, drops the TTL of the permits and can answer more
// than the rate.
//
// Errors: ErrNotInitialized, ErrMalformed, ctx.Err(), ErrClosed, and those of Redis.
func (l *RateLimiter) AvailablePermits(ctx context.Context) (int64, error) {
	if err := l.ready(ctx); err != nil {
		return 0, err
	}
	var n int64
	err := l.withType("available", func(typ permit.Type) (err error) {
		n, err = l.redis.Available(ctx, typ)
		return err
	})
	return n, err
}

// Release gives permits back before their interval is over: the newest grants become smaller or go.
// It gives back no more than are in use. Redisson: release, since 3.52.0, which leaves the grants in
// place, so that the permits come back a second time when they expire.
//
// Callers of this Client that wait for the limiter ask again at once. Errors: ErrInvalidArgument for
// permits outside 1..2^32-1, ErrNotInitialized, ErrMalformed, ctx.Err(), ErrClosed, and those of
// Redis, after which the permits, or part of them, may or may not have been given back.
func (l *RateLimiter) Release(ctx context.Context, permits int64) error {
	if err := l.checkPermits(ctx, permits); err != nil {
		return err
	}
	left := permits
	err := l.withType("release", func(typ permit.Type) (err error) {
		for left > 0 && err == nil {
			left, err = l.redis.Release(ctx, typ, left)
		}
		return err
	})
	if left < permits {
		l.handle.Changed()
	}
	return err
}

// Exists says whether the limiter has a rate. Errors: ctx.Err(), ErrClosed, ErrUnavailable, and those of
// Redis.
func (l *RateLimiter) Exists(ctx context.Context) (bool, error) {
	if err := l.ready(ctx); err != nil {
		return false, err
	}
	return l.redis.Exists(ctx)
}

// Delete removes the limiter, the permits in use of all and those of this client, and answers whether
// there was anything to remove. A cool-down ends with it, for the callers of all processes: should the limiter
// be set again, another client of a PER_CLIENT limiter finds its own permits as [RateLimiter.LiftCoolDown]
// leaves them. Callers of this Client that wait for it ask again at once, and get ErrNotInitialized. Errors: ctx.Err(), ErrClosed, and those of Redis.
func (l *RateLimiter) Delete(ctx context.Context) (bool, error) {
	if err := l.ready(ctx); err != nil {
		return false, err
	}
	deleted, err := l.redis.Delete(ctx)
	if err == nil {
		l.handle.Changed()
	}
	return deleted, err
}

// withType runs f with the type that the limiter has, as far as that is known: the one that the last call
// was told, and when f returns that it is the other, that.
func (l *RateLimiter) withType(op string, f func(permit.Type) error) error {
	typ := l.handle.Type()
	for changes := 0; ; changes++ {
		err := f(typ)
		var other *permit.WrongTypeError
		if !errors.As(err, &other) {
			return err
		}
		if changes == permit.MaxTypeChanges {
			return permit.TypeKeepsChanging(op, l.name)
		}
		typ = other.Type
		l.handle.LearnType(typ)
	}
}

func (l *RateLimiter) checkRate(ctx context.Context, r Rate) error {
	if err := l.ready(ctx); err != nil {
		return err
	}
	return r.validate()
}
