// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"sync"
	"time"
)

// arrive starts callers one after another and returns when each got its permit, in order of arrival.
func arrive(ctx context.Context, callers int, stagger time.Duration, acquire func(context.Context) error) ([]time.Time, error) {
	returned := make([]time.Time, callers)
	errs := make([]error, callers)
	var waiting sync.WaitGroup
	began := time.Now()
	for i := range callers {
		waiting.Go(func() {
			errs[i] = acquire(ctx)
			returned[i] = time.Now()
		})
		time.Sleep(time.Until(began.Add(time.Duration(i+1) * stagger)))
	}
	waiting.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return returned, nil
}
