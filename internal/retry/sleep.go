// Package retry has what waits between one attempt and the next.
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
