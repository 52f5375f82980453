// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"cmp"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
)

// A DebtBucket is a [TokenBucket] in which permits can be taken before they have come in. While nothing is owed,
// one call may take up to Debt permits more than the bucket holds, and the next call waits until these have come
// in. A large call is thus granted at once, and later calls wait for it.
//
// Bound: fewer than Burst + Debt + Rate × window in any window, as [Bound] has it. Calls of n permits use at most n of
// the Debt.
//
// It does not promise that a small call is granted beside a large one.
//
// Source: Guava's RateLimiter, which also lets a call pass and makes the next one wait for it, see
// https://guava.dev/releases/snapshot-jre/api/docs/com/google/common/util/concurrent/RateLimiter.html.
// Here the debt is bounded; [SmoothBursty] is Guava's own.
type DebtBucket struct {
	Rate  ratelimiter.Rate
	Burst int64 // at least 1
	Debt  int64 // at least 1; Burst and Debt together are at most 2^32-1
}

func (a DebtBucket) bound(window time.Duration, n int64) int64 {
	return a.pace().most(a.Burst+min(a.Debt, n), window.Microseconds())
}

func (a DebtBucket) check() error {
	if err := cmp.Or(checkCount("Debt", a.Debt), checkCount("Burst", a.Burst)); err != nil {
		return err
	}
	return checkPace(a.Rate, "Burst + Debt", a.Burst+a.Debt)
}

func (a DebtBucket) model() calls.Model {
	p := a.pace()
	idle := gcra{backlog: newBacklog(p, a.Burst), debt: a.Debt * p.cost}
	return calls.Model{
		Script: gcraScript, Parameters: append(p.parameters(a.Burst), idle.debt), Largest: a.Burst + a.Debt,
		Idle: func() calls.State { s := idle; return &s },
		Stored: func(text string) (calls.State, bool) {
			v, e, ok := numbers(text, 5)
			s := idle
			s.at, s.ahead, s.given, s.its, s.epoch = v[0], v[1], v[2], pace{v[3], v[4]}, e
			return &s, ok && s.its.flow > 0 && s.its.cost > 0
		},
	}
}

func (a DebtBucket) pace() pace { return onlyPace(paceOf(a.Rate, a.Burst+a.Debt)) }
