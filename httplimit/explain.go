// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// ContextWithReason returns a context for one call of an SDK, and a function that adds the reason of a rejection to the
// error of that call. It is for SDKs that send a rejected request again until their time is up, and then return only the
// context's error:
//
//	ctx, explain := httplimit.ContextWithReason(ctx)
//	err := explain(ask(ctx)) // ask calls the SDK
//	var rejected *httplimit.Error
//	if errors.As(err, &rejected) {
//		return fmt.Errorf("not sent because of %s: %w", rejected.Limiter, err)
//	}
//
// Once a request with that context is rejected, later ones are rejected at once with the same [*Error], so the SDK's
// retries do not wait again. explain returns err itself if it is nil, if it contains the reason already, or if
// nothing was rejected. The SDK must pass the context on to its requests.
func ContextWithReason(ctx context.Context) (explained context.Context, explain func(error) error) {
	w := new(firstRejection)
	return context.WithValue(ctx, reasonKey{}, w), func(err error) error {
		e := w.Load()
		if err == nil || e == nil || errors.Is(err, ErrRejected) {
			return err
		}
		return fmt.Errorf("%w: %w", err, e)
	}
}

type reasonKey struct{}

// A firstRejection is that of a call of an SDK.
type firstRejection struct{ atomic.Pointer[Error] }

// firstOf returns the firstRejection of a request's context, or nil.
func firstOf(ctx context.Context) *firstRejection {
	w, _ := ctx.Value(reasonKey{}).(*firstRejection)
	return w
}

// earlier returns the rejection of an earlier request.
func (w *firstRejection) earlier() (*Error, bool) {
	if w == nil {
		return nil, false
	}
	e := w.Load()
	return e, e != nil
}

// note keeps the rejection for the requests that follow.
func (w *firstRejection) note(err error) {
	var e *Error
	if w != nil && errors.As(err, &e) {
		w.CompareAndSwap(nil, e)
	}
}
