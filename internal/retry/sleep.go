package retry

import (
	"context"
	"time"
)

// Sleep blocks for d and returns nil, or returns the error of ctx as soon as
// ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// SleepOr blocks for d, or until one of the channels is closed.
func SleepOr(d time.Duration, one, other <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-one:
	case <-other:
	}
}
