package ratelimiter

import (
	"context"
	"errors"
	"fmt"

	"github.com/goredisson/ratelimiter/internal/redisscript"
	"github.com/redis/go-redis/v9"
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
	keys   keys
	bucket *bucket
	err    error
	policy *OutagePolicy // nil for FailClosed
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
	n, err := l.run(ctx, trySetRateScript, []string{l.keys.hash},
		r.Permits, r.Interval.Milliseconds(), r.KeepAlive.Milliseconds(), r.Type.wire(), r.MinGap.Milliseconds())
	if err != nil {
		return false, err
	}
	if n[0] == 1 {
		l.changed()
	}
	return n[0] == 1, nil
}

// SetRate gives the limiter a rate, whether or not it has one, and forgets the permits in use unless
// [KeepState]: those of all, and those of this client. Other clients' PER_CLIENT permits cannot be
// named; they adapt to the new rate as those clients go on acquiring. A KeepAlive of 0 leaves a TTL
// that the limiter has; see [RateLimiter.ClearExpire].
//
// Callers of this Client that wait for the limiter ask again at once. Errors are those of TrySetRate;
// after one of Redis' or the connection's, the rate may or may not have been set.
func (l *RateLimiter) SetRate(ctx context.Context, r Rate, opts ...RateOption) error {
	_, err := l.setRate(ctx, r, 0, opts)
	return err
}

// UpdateRate is SetRate for a limiter that has a rate: it answers false, and changes nothing, when
// there is none. Errors are those of SetRate. Redisson: updateRate, since 4.4.0.
func (l *RateLimiter) UpdateRate(ctx context.Context, r Rate, opts ...RateOption) (bool, error) {
	return l.setRate(ctx, r, flagMustExist, opts)
}

func (l *RateLimiter) setRate(ctx context.Context, r Rate, flags int, opts []RateOption) (bool, error) {
	if err := l.checkRate(ctx, r); err != nil {
		return false, err
	}
	var o rateOptions
	for _, opt := range opts {
		opt(&o)
	}
	if o.keepState {
		flags |= flagKeepState
	}
	if l.client.cfg.memberFormat == MemberLc0I {
		flags |= flagSetLc0I
	}
	n, err := l.run(ctx, setRateScript, l.keys.all(r.Type), r.Permits, r.Interval.Milliseconds(),
		r.KeepAlive.Milliseconds(), r.Type.wire(), l.client.now(), flags, r.MinGap.Milliseconds())
	if err != nil {
		return false, err
	}
	if n[0] == 0 {
		return false, nil
	}
	if len(n) > 1 && n[1] == 1 {
		// They are too many for one call. The script has set value to 0, so that whatever happens here no permit is
		// granted too many.
		err = l.audit(ctx, r.Type, true)
	}
	l.learn(r.Type)
	l.changed()
	return true, err
}

// Rate is the limiter's rate. Without one it answers ErrNotInitialized, where Redisson's getConfig
// answers a rate of 0 since 3.18.0. Errors: also ErrMalformed, ctx.Err(), ErrClosed, ErrUnavailable, and
// those of Redis.
func (l *RateLimiter) Rate(ctx context.Context) (Rate, error) {
	if err := l.ready(ctx); err != nil {
		return Rate{}, err
	}
	cmd := redis.NewMapStringStringCmd(ctx, "hgetall", l.keys.hash)
	hash, err := redisscript.Leavable(ctx, func() (map[string]string, error) {
		_ = l.client.rdb.Process(ctx, cmd)
		return cmd.Result()
	})
	if err != nil {
		return Rate{}, l.wrap(ctx, "rate", err)
	}
	r, err := parseRate(hash)
	if err != nil {
		return Rate{}, fmt.Errorf("%w (%q)", err, l.name)
	}
	return r, nil
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
	err := l.withType("available", func(typ RateType) (err error) {
		n, err = l.countAvailable(ctx, typ)
		return err
	})
	return n, err
}

// countAvailable adds up over as many calls as it takes, at the instant of the first.
func (l *RateLimiter) countAvailable(ctx context.Context, typ RateType) (int64, error) {
	for range 3 {
		side, members, permits, now := "", int64(0), int64(0), l.client.now()
		for changed := false; !changed; {
			raw, err := l.send(ctx, availableScript, l.keys.of(typ), typ.wire(), now, side, members, permits)
			if err != nil {
				return 0, err
			}
			r, ok := raw.([]any)
			if !ok || len(r) == 0 {
				return 0, l.badReply(availableScript, raw)
			}
			n := make([]int64, len(r))
			for i, v := range r {
				if n[i], ok = v.(int64); !ok && i != 2 {
					return 0, l.badReply(availableScript, raw)
				}
			}
			if n[0] == statusStartOver {
				changed = true
			} else if err := l.statusError(n); err != nil {
				return 0, err
			} else if len(r) == 4 && n[1] == 1 {
				return n[2], nil
			} else if side, ok = r[min(2, len(r)-1)].(string); ok && len(r) == 6 {
				members, permits, now = n[3], n[4], n[5]
			} else {
				return 0, l.badReply(availableScript, raw)
			}
		}
	}
	return 0, fmt.Errorf("ratelimiter: available of %q: its permits change faster than they can be counted", l.name)
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
	err := l.withType("release", func(typ RateType) error {
		for left > 0 {
			n, err := l.run(ctx, releaseScript, l.keys.of(typ), typ.wire(), left,
				l.client.cfg.clientKeyTTL.Milliseconds(), l.client.now())
			if err == nil {
				err = l.statusError(n)
			}
			if err == nil && len(n) != 3 {
				err = l.badReply(releaseScript, n)
			}
			if err != nil {
				return err
			}
			left = n[1]
		}
		return nil
	})
	if left < permits {
		l.changed()
	}
	return err
}

// Exists says whether the limiter has a rate. Errors: ctx.Err(), ErrClosed, ErrUnavailable, and those of
// Redis.
func (l *RateLimiter) Exists(ctx context.Context) (bool, error) {
	if err := l.ready(ctx); err != nil {
		return false, err
	}
	cmd := redis.NewIntCmd(ctx, "exists", l.keys.hash)
	n, err := redisscript.Leavable(ctx, func() (int64, error) {
		_ = l.client.rdb.Process(ctx, cmd)
		return cmd.Result()
	})
	return n == 1, l.wrap(ctx, "exists", err)
}

// Delete removes the limiter, the permits in use of all and those of this client, and answers whether
// there was anything to remove. A cool-down ends with it, for the callers of all processes: should the limiter
// be set again, another client of a PER_CLIENT limiter finds its own permits as [RateLimiter.LiftCoolDown]
// leaves them. Callers of this Client that wait for it ask again at once, and get ErrNotInitialized. Errors: ctx.Err(), ErrClosed, and those of Redis.
func (l *RateLimiter) Delete(ctx context.Context) (bool, error) {
	if err := l.ready(ctx); err != nil {
		return false, err
	}
	n, err := l.run(ctx, deleteScript, l.keys.all(Overall))
	if err != nil {
		return false, err
	}
	l.changed()
	return n[0] == 1, nil
}

// maxFlips is how often a call follows a type that changes under it.
const maxFlips = 3

func (l *RateLimiter) flipping(op string) error {
	return fmt.Errorf("ratelimiter: %s of %q: its type changed %d times under the call", op, l.name, maxFlips)
}

// withType runs f with the type that the hash has, as far as that is known: the one that the last call
// was told, and when a script answers that it is the other, that.
func (l *RateLimiter) withType(op string, f func(RateType) error) error {
	typ := l.hint()
	for flips := 0; ; flips++ {
		err := f(typ)
		var other *otherTypeError
		if !errors.As(err, &other) {
			return err
		}
		if flips == maxFlips {
			return l.flipping(op)
		}
		typ = other.typ
		l.learn(typ)
	}
}

func (l *RateLimiter) checkRate(ctx context.Context, r Rate) error {
	if err := l.ready(ctx); err != nil {
		return err
	}
	return r.validate()
}

// wrap names the limiter in an error of a plain command, which is ErrUnavailable where Redis was not
// reached; context errors come through unchanged.
func (l *RateLimiter) wrap(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return l.failed(op, redisscript.Classify(err), err)
}
