// SPDX-License-Identifier: Apache-2.0

package ratelimitertest

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter"
)

// A Fake has the methods Allow, TryAcquire and Acquire of a *ratelimiter.RateLimiter, and needs no Redis. It has none of the
// others by which permits are acquired, such as [ratelimiter.RateLimiter.AcquireGrant]; for these use [NewClient]. The zero value grants everything. It is
// safe for concurrent use.
type Fake struct {
	// Reply, if it is set, answers each request for permits. A Result that is not granted makes Acquire, and TryAcquire as long
	// as its timeout allows, sleep for its Wait, at least for a millisecond, and ask again. An error ends the request.
	Reply func(ctx context.Context, permits int64) (ratelimiter.Result, error)

	mu      sync.Mutex
	granted int64
}

// Granted returns how many permits have been granted.
func (f *Fake) Granted() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.granted
}

// Allow returns what Reply returns. Before it does so it returns ratelimiter.ErrInvalidArgument and ctx.Err() as a RateLimiter does.
func (f *Fake) Allow(ctx context.Context, permits int64) (ratelimiter.Result, error) {
	if ctx == nil || permits < 1 || permits > math.MaxUint32 {
		return ratelimiter.Result{}, fmt.Errorf("%w: the context is nil, or %d permits are not in 1..2^32-1", ratelimiter.ErrInvalidArgument, permits)
	}
	if err := ctx.Err(); err != nil {
		return ratelimiter.Result{}, err
	}
	r, err := ratelimiter.Result{Granted: true}, error(nil)
	if f.Reply != nil {
		r, err = f.Reply(ctx, permits)
	}
	if err == nil && r.Granted {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.granted += permits
	}
	return r, err
}

// TryAcquire asks until the permits are granted or timeout is over, and reports whether they were. It returns the errors of Reply, and
// ctx.Err() as soon as ctx is done.
func (f *Fake) TryAcquire(ctx context.Context, permits int64, timeout time.Duration) (bool, error) {
	begin := time.Now()
	for {
		r, err := f.Allow(ctx, permits)
		if err != nil || r.Granted || timeout <= 0 {
			return r.Granted && err == nil, err
		}
		wait := max(r.Wait, time.Millisecond)
		left := timeout - time.Since(begin)
		t := time.NewTimer(min(wait, left))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return false, ctx.Err()
		}
		if wait > left {
			return false, nil
		}
	}
}

// Acquire asks until the permits are granted. It returns the errors of Reply, and ctx.Err() as soon as ctx is done.
func (f *Fake) Acquire(ctx context.Context, permits int64) error {
	const ever = 1<<63 - 1
	_, err := f.TryAcquire(ctx, permits, ever)
	return err
}
