// SPDX-License-Identifier: Apache-2.0

package permit

import "context"

// An Op is an operation on a limiter in one call or several, made once.
type Op[T any] struct {
	Name  string // in errors
	Reads bool   // it reclaims nothing
	Asks  bool   // it only asks, though it may reclaim what has expired
	// Step makes one attempt at the next call, and reports whether more follow. After an error it may make the same call again.
	Step func(ctx context.Context) (result T, more bool, err error)
}

// Run carries out the operation with one attempt at each call. It returns the result of the last call.
func (op Op[T]) Run(ctx context.Context) (result T, err error) {
	for more := true; more && err == nil; {
		result, more, err = op.Step(ctx)
	}
	return result, err
}
