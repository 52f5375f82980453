// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/goredisson/ratelimiter"
)

// An operation is a call of a public method. It returns how many permits it was granted, and an error also if the
// answer makes no sense.
type operation struct {
	name   string
	grants bool // it takes permits, or only looks: it changes nothing that allows more of them
	call   func(ctx context.Context, c *ratelimiter.Client, name string) (granted int64, err error)
}

// hurries reports whether the operation has a timeout, within which a busy machine need not reply, or even send. That is then
// ErrUnavailable or ErrOverloaded, and no outage.
func (op operation) hurries() bool { return strings.HasSuffix(op.name, " ms") }

// only makes an operation of a call that is granted nothing.
func only(f func(ctx context.Context, l *ratelimiter.RateLimiter) error) func(context.Context, *ratelimiter.Client, string) (int64, error) {
	return func(ctx context.Context, c *ratelimiter.Client, name string) (int64, error) {
		return 0, f(ctx, c.RateLimiter(name))
	}
}

// does is only, for a call whose result is not looked at.
func does[T any](f func(a ratelimiter.Admin, ctx context.Context) (T, error)) func(context.Context, *ratelimiter.Client, string) (int64, error) {
	return only(func(ctx context.Context, l *ratelimiter.RateLimiter) error { return errOf(f(l.Admin(), ctx)) })
}

func errOf[T any](_ T, err error) error { return err }

func told(permits int64, ok bool, err error) (int64, error) {
	if !ok || err != nil {
		return 0, err
	}
	return permits, nil
}

var errUnsound = errors.New("an unsound answer")

func sound(r ratelimiter.Result, err error) error {
	if err == nil && (r.Available < 0 || r.Available > r.Rate.Permits || r.Wait < 0 || r.Granted && r.Wait > 0 || !r.Granted && r.Wait == 0) {
		return fmt.Errorf("%w: %+v", errUnsound, r)
	}
	return err
}

// What the operations set: other numbers than those of the states.
var (
	newRate    = ratelimiter.Rate{Permits: 5, Interval: 100 * time.Millisecond}
	pacedRate  = ratelimiter.Rate{Permits: 5, Interval: 100 * time.Millisecond, MinGap: 2 * time.Millisecond}
	clientRate = ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 5, Interval: 100 * time.Millisecond}
)

// operations are all public methods that talk to Redis, and their variants.
var operations = []operation{
	{"Allow", true, func(ctx context.Context, c *ratelimiter.Client, name string) (int64, error) {
		r, err := c.RateLimiter(name).Allow(ctx, 1)
		return told(1, r.Granted, sound(r, err))
	}},
	{"Allow 3", true, func(ctx context.Context, c *ratelimiter.Client, name string) (int64, error) {
		r, err := c.RateLimiter(name).Allow(ctx, 3)
		return told(3, r.Granted, sound(r, err))
	}},
	{"TryAcquire", true, func(ctx context.Context, c *ratelimiter.Client, name string) (int64, error) {
		ok, err := c.RateLimiter(name).TryAcquire(ctx, 1, 0)
		return told(1, ok, err)
	}},
	{"TryAcquire 200 ms", true, func(ctx context.Context, c *ratelimiter.Client, name string) (int64, error) {
		ok, err := c.RateLimiter(name).TryAcquire(ctx, 2, 200*time.Millisecond)
		return told(2, ok, err)
	}},
	{"Acquire", true, func(ctx context.Context, c *ratelimiter.Client, name string) (int64, error) {
		return told(1, true, c.RateLimiter(name).Acquire(ctx, 1))
	}},
	{"TryAcquireAll", true, func(ctx context.Context, c *ratelimiter.Client, name string) (int64, error) {
		r, err := c.TryAcquireAll(ctx, 0, all(c, name)...)
		return told(1, r.Granted, err)
	}},
	{"TryAcquireAll 200 ms", true, func(ctx context.Context, c *ratelimiter.Client, name string) (int64, error) {
		r, err := c.TryAcquireAll(ctx, 200*time.Millisecond, all(c, name)...)
		return told(1, r.Granted, err)
	}},
	{"AcquireAll", true, func(ctx context.Context, c *ratelimiter.Client, name string) (int64, error) {
		return told(1, true, c.AcquireAll(ctx, all(c, name)...))
	}},
	{"Peek", true, only(func(ctx context.Context, l *ratelimiter.RateLimiter) error { return sound(l.Peek(ctx, 1)) })},
	{"AvailablePermits", true, only(func(ctx context.Context, l *ratelimiter.RateLimiter) error {
		n, err := l.AvailablePermits(ctx)
		if err == nil && n < 0 {
			return fmt.Errorf("%w: %d available", errUnsound, n)
		}
		return err
	})},
	{"Rate", true, only(func(ctx context.Context, l *ratelimiter.RateLimiter) error {
		r, err := l.Rate(ctx)
		if err == nil && (r.Permits < 1 || r.Interval < time.Millisecond) {
			return fmt.Errorf("%w: %+v", errUnsound, r)
		}
		return err
	})},
	{"Inspect", true, does(ratelimiter.Admin.Inspect)},
	{"Exists", true, does(ratelimiter.Admin.Exists)},
	{"TTL", true, does(ratelimiter.Admin.TTL)},
	{"ExpireTime", true, does(ratelimiter.Admin.ExpireTime)},
	{"CoolDownUntil", true, does(ratelimiter.Admin.CoolDownUntil)},
	{"TrySetRate", true, only(func(ctx context.Context, l *ratelimiter.RateLimiter) error { return errOf(l.TrySetRate(ctx, newRate)) })},
	{"Release", false, only(func(ctx context.Context, l *ratelimiter.RateLimiter) error { return l.Release(ctx, 1) })},
	{"Release 1000", false, only(func(ctx context.Context, l *ratelimiter.RateLimiter) error { return l.Release(ctx, 1000) })},
	{"SetRate", false, only(func(ctx context.Context, l *ratelimiter.RateLimiter) error { return l.SetRate(ctx, newRate) })},
	{"SetRate KeepState", false, only(func(ctx context.Context, l *ratelimiter.RateLimiter) error {
		return l.SetRate(ctx, newRate, ratelimiter.KeepState())
	})},
	{"SetRate MinGap", false, only(func(ctx context.Context, l *ratelimiter.RateLimiter) error { return l.SetRate(ctx, pacedRate) })},
	{"UpdateRate", false, only(func(ctx context.Context, l *ratelimiter.RateLimiter) error {
		return errOf(l.UpdateRate(ctx, clientRate))
	})},
	{"UpdateRate KeepState", false, only(func(ctx context.Context, l *ratelimiter.RateLimiter) error {
		return errOf(l.UpdateRate(ctx, newRate, ratelimiter.KeepState()))
	})},
	{"Expire", false, only(func(ctx context.Context, l *ratelimiter.RateLimiter) error {
		return errOf(l.Admin().Expire(ctx, time.Hour))
	})},
	{"ExpireAt", false, only(func(ctx context.Context, l *ratelimiter.RateLimiter) error {
		return errOf(l.Admin().ExpireAt(ctx, time.Now().Add(time.Hour), ratelimiter.IfNotSet()))
	})},
	{"ClearExpire", false, does(ratelimiter.Admin.ClearExpire)},
	{"CoolDown", false, only(func(ctx context.Context, l *ratelimiter.RateLimiter) error {
		return l.CoolDown(ctx, time.Now().Add(50*time.Millisecond))
	})},
	{"CoolDown Reopen", false, only(func(ctx context.Context, l *ratelimiter.RateLimiter) error {
		return l.CoolDown(ctx, time.Now().Add(30*time.Millisecond), ratelimiter.Reopen(30*time.Millisecond))
	})},
	{"LiftCoolDown", false, does(ratelimiter.Admin.LiftCoolDown)},
	{"Delete", false, does(ratelimiter.Admin.Delete)},
}

// beside is a sound limiter that lists ask for beside another.
const beside = "beside"

func all(c *ratelimiter.Client, name string) []ratelimiter.Demand {
	return []ratelimiter.Demand{{Limiter: c.RateLimiter(name), Permits: 1}, {Limiter: c.RateLimiter(beside), Permits: 1}}
}

// named reports whether err is one that a caller can tell from others.
func named(err error) bool {
	var reply redis.Error
	return errors.Is(err, ratelimiter.ErrNotInitialized) || errors.Is(err, ratelimiter.ErrMalformed) ||
		errors.Is(err, ratelimiter.ErrPermitsExceedRate) || errors.Is(err, ratelimiter.ErrInvalidArgument) ||
		errors.Is(err, ratelimiter.ErrConflict) ||
		errors.Is(err, context.DeadlineExceeded) || errors.As(err, &reply)
}

// broken reports whether err says that the connection or Redis failed.
func broken(err error) bool {
	var op net.Error
	return errors.Is(err, ratelimiter.ErrUnavailable) || errors.Is(err, ratelimiter.ErrOverloaded) || errors.Is(err, io.EOF) || errors.As(err, &op) || errors.Is(err, redis.ErrPoolTimeout)
}

// safely calls f and turns a panic into an error.
func safely(f func() (int64, error)) (n int64, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("a panic: %v", v)
		}
	}()
	return f()
}

// kind returns the name of an error.
func kind(err error) string {
	for name, is := range map[string]error{
		"ErrUnavailable": ratelimiter.ErrUnavailable, "ErrOverloaded": ratelimiter.ErrOverloaded, "ErrNotInitialized": ratelimiter.ErrNotInitialized, "ErrMalformed": ratelimiter.ErrMalformed,
		"ErrPermitsExceedRate": ratelimiter.ErrPermitsExceedRate, "ErrInvalidArgument": ratelimiter.ErrInvalidArgument,
		"ErrConflict": ratelimiter.ErrConflict,
	} {
		if errors.Is(err, is) {
			return name
		}
	}
	var reply redis.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "context.DeadlineExceeded"
	case errors.As(err, &reply):
		return "an error of Redis"
	}
	return "an error of the connection"
}
