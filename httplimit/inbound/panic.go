// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"net/http"

	"github.com/goredisson/ratelimiter/httplimit/internal/guard"
)

// A PanicError is a panic of a [KeyFunc], or of a function of [WithWeight], [WithFailures] or
// [WithDecisions]. A request whose key
// or weight cannot be told for it is undecided: see [WithOutagePolicy].
type PanicError = guard.PanicError

// contain calls f and returns its panic. One of http.ErrAbortHandler goes on: who panics with it asks the server to
// drop the connection.
func contain(fn string, f func()) *PanicError {
	p := guard.Call(fn, f)
	if p != nil && p.Value == any(http.ErrAbortHandler) {
		panic(http.ErrAbortHandler)
	}
	return p
}

// fail tells the function of WithFailures. When that panics it is told so once; of a second panic nobody is left to
// be told.
func (m *Middleware) fail(r *http.Request, err error) {
	if m.cfg.failed == nil {
		return
	}
	if p := contain("the function of WithFailures", func() { m.cfg.failed(r, err) }); p != nil {
		_ = contain("", func() { m.cfg.failed(r, p) })
	}
}

// spends returns the limiters that the request spends, none for a request that is not limited, and how many permits of
// each. Its error is a *PanicError.
func (m *Middleware) spends(r *http.Request) (spends []spend, weight int64, err error) {
	if p := contain("KeyFunc", func() { spends = m.limiters(r) }); p != nil {
		return nil, 0, p
	}
	if len(spends) == 0 || m.cfg.weight == nil {
		return spends, 1, nil
	}
	if p := contain("the function of WithWeight", func() { weight = m.cfg.weight(r) }); p != nil {
		return nil, 0, p
	}
	return spends, weight, nil
}
