package limit

import (
	"context"
	"math"
	"time"
)

// leastWait keeps a limiter that refuses without a wait from being asked all the time.
const leastWait = time.Millisecond

// Wait takes n permits of l and waits for them as long as it takes. It answers nil when they may be used.
//
// When ctx is done it answers ctx.Err(), and context.DeadlineExceeded as soon as it is known that the
// permits take longer than ctx's deadline; permits that were handed out ahead of their time are spent
// then. Further errors are those of l.
//
// Those who wait stand in no line: whoever asks first when permits are there gets them, so that small
// calls can keep a large one waiting. Only the limiters that hand out permits ahead of their time
// ([LeakyQueue], [SmoothBursty], [SmoothWarmingUp]) serve first come, first served, and an [Adapter] the
// callers of one ratelimiter.Client.
func Wait(ctx context.Context, l Limiter, n int64) error {
	_, err := wait(ctx, l, n, math.MaxInt64)
	return err
}

// WaitTimeout is Wait for at most timeout: it answers whether the permits may be used. It answers false as
// soon as it is known that they take longer, and then has spent nothing. With timeout <= 0 it asks once.
// Errors are those of Wait.
func WaitTimeout(ctx context.Context, l Limiter, n int64, timeout time.Duration) (bool, error) {
	return wait(ctx, l, n, max(timeout, 0))
}

func wait(ctx context.Context, l Limiter, n int64, timeout time.Duration) (bool, error) {
	if a, ok := l.(*Adapter); ok {
		return a.wait(ctx, n, timeout)
	}
	ahead := ahead(l)
	begin := time.Now()
	for {
		left, byContext := timeLeft(ctx, timeout-time.Since(begin))
		var r Result
		var err error
		if ahead != nil {
			r, err = ahead.Reserve(ctx, n, left)
		} else {
			r, err = l.Allow(ctx, n)
		}
		if err != nil {
			return false, err
		}
		if r.Granted {
			err := sleep(ctx, r.Wait)
			return err == nil, err
		}
		pause := r.Wait
		if pause <= 0 {
			pause = leastWait
		}
		due := pause
		if ahead != nil {
			// Its wait is until there is a turn within left. The turn itself comes when one could go at
			// once, and does not come nearer while left passes.
			p, err := l.Peek(ctx, n)
			if err != nil {
				return false, err
			}
			due = max(due, p.Wait)
		}
		if due > left {
			return tooLate(byContext)
		}
		if err := sleep(ctx, pause); err != nil {
			return false, err
		}
	}
}

// timeLeft returns the lesser of timeout and the time until ctx's deadline, and whether it is the latter.
func timeLeft(ctx context.Context, timeout time.Duration) (left time.Duration, byContext bool) {
	if d, ok := ctx.Deadline(); ok && time.Until(d) < timeout {
		return time.Until(d), true
	}
	return timeout, false
}

// tooLate returns the outcome of a wait that would take longer than the time left.
func tooLate(byContext bool) (bool, error) {
	if byContext {
		return false, context.DeadlineExceeded
	}
	return false, nil
}

// ahead is l when it can hand out permits ahead of their time.
func ahead(l Limiter) Reserver {
	if a, ok := l.(interface{ Algorithm() Algorithm }); ok && !a.Algorithm().reserves() {
		return nil
	}
	r, _ := l.(Reserver)
	return r
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
