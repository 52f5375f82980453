// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"net/http"

	"github.com/goredisson/ratelimiter/httplimit/internal/guard"
)

// A PanicError is a panic of a [KeyFunc], or of a function of a [Rule], [WithWeight], [WithFailures] or [WithDecisions]. A
// request whose key or weight is unknown because of a panic is undecided: see [WithOutagePolicy].
//
// Its fields are:
//
//	Func  string // what panicked, such as "KeyFunc"
//	Value any    // what it panicked with; Unwrap returns it if it is an error
//	Stack []byte // the stack of the goroutine at that moment, as debug.Stack formats it
type PanicError = guard.PanicError

// contain calls f and returns its panic. It lets a panic with http.ErrAbortHandler pass, because that asks the server
// to drop the connection.
func contain(fn string, f func()) *PanicError {
	p := guard.Call(fn, f)
	if p != nil && p.Value == any(http.ErrAbortHandler) {
		panic(http.ErrAbortHandler)
	}
	return p
}

// fail calls the function of WithFailures. If it panics, fail calls it once more with that panic; a second panic is
// dropped.
func (m *Middleware) fail(r *http.Request, err error) {
	if m.cfg.failed == nil {
		return
	}
	if p := contain("the function of WithFailures", func() { m.cfg.failed(r, err) }); p != nil {
		_ = contain("", func() { m.cfg.failed(r, p) })
	}
}

// spends returns the limiters of the request and the permits that it takes from each, or none if it is not limited.
// Its error is a *PanicError.
func (m *Middleware) spends(r *http.Request) (spends []spend, err error) {
	if p := contain("KeyFunc", func() { spends = m.limiters(r) }); p != nil {
		return nil, p
	}
	common, weighed := int64(1), m.cfg.weight == nil
	for i := range spends {
		s := &spends[i]
		if of := s.rule.Weight; of != nil {
			if p := contain("Rule.Weight", func() { s.weight = of(r) }); p != nil {
				return nil, p
			}
			continue
		}
		if !weighed {
			weighed = true
			if p := contain("the function of WithWeight", func() { common = m.cfg.weight(r) }); p != nil {
				return nil, p
			}
		}
		s.weight = common
	}
	return spends, nil
}
