// SPDX-License-Identifier: Apache-2.0

package redistest

import "context"

// Ungated is a redisson.Gate that makes one attempt at each call, whatever is known about Redis.
type Ungated struct{}

// Gated makes the attempt.
func (Ungated) Gated(_ context.Context, _ string, attempt func(replay bool) error) error {
	return attempt(false)
}

// Read makes the attempt.
func (u Ungated) Read(ctx context.Context, op string, attempt func(replay bool) error) error {
	return u.Gated(ctx, op, attempt)
}
