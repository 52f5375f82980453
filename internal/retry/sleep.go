// SPDX-License-Identifier: Apache-2.0

package retry

import (
	"context"
	"time"
)

// Sleep blocks for d and returns nil, or returns the error of ctx as soon as ctx is done.
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

// SleepOr blocks for d or until one of the channels is closed.
func SleepOr(d time.Duration, one, other <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-one:
	case <-other:
	}
}
