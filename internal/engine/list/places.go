// SPDX-License-Identifier: Apache-2.0

package list

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/link"
)

// This file finds a list its places among the callers that take permits ahead of their return, one in each of its limiters;
// see scripts/reserve.lua.

// standAll waits until the list is the first to take permits ahead in each of its limiters. It reports false if that is no
// use, or the caller has left; a is then the reply to the attempt.
//
// All limiters are told the same instant since which the caller has waited, and have the list that has waited longest come
// first. So one list always comes first in all of its limiters, whatever processes they are of, and none holds permits
// before it does.
func (s *attempt) standAll(ctx context.Context) (a reply, ok bool, err error) {
	since := link.Waited(s.w.since)
	for !s.hasLeft() {
		behind := -1 // a limiter in which others come first
		for i := range s.list {
			v := &s.list[i]
			if s.isDue(v, time.Now()) && !v.allOrNothing() {
				v.Since = since
				if err := v.Stand(ctx); err != nil {
					return nothing, false, err
				}
				if v.Last.Place > 0 {
					since = v.Last.Since
				}
				if a, ok, err := s.waitForPlace(ctx, i); !ok {
					return a, false, err
				}
			}
			if v.Last.Place != 1 && !v.allOrNothing() {
				behind = i
			}
		}
		if behind < 0 {
			if behind, err = s.claimAll(ctx); behind < 0 {
				return nothing, err == nil, err
			}
		}
		next := time.Now().Add(time.Second)
		for i := range s.list {
			if v := &s.list[i]; !v.allOrNothing() && v.look.Before(next) {
				next = v.look
			}
		}
		s.sleep(max(time.Until(next), time.Millisecond))
		if s.w.isLate(0) {
			v := &s.list[behind]
			wait, err := v.Ask(ctx, v.Permits)
			return s.rejectedBy(behind, wait), false, err
		}
	}
	return nothing, false, nil
}

// allOrNothing reports whether the permits of v cannot be taken ahead, so that it has no place.
func (v *listPart) allOrNothing() bool { return v.Rate.MinGap > 0 }

// waitForPlace sets when the place in the i-th limiter is to be renewed or looked at. It reports false if there is none
// to be had, because of a cool-down.
func (s *attempt) waitForPlace(ctx context.Context, i int) (a reply, ok bool, err error) {
	v := &s.list[i]
	wait := v.Last.Wait
	switch {
	case v.Last.Place == 1:
		wait = v.Rate.Interval / 2
	case v.Last.Place == 0: // it has a minGap, a cool-down has begun, or the permits left have been lost
		if wait, err = v.Ask(ctx, v.Permits); err != nil {
			return nothing, false, err
		}
		if wait > v.Rate.Interval && !v.allOrNothing() {
			return s.rejectedBy(i, wait), false, nil
		}
	}
	v.look = time.Now().Add(max(time.Millisecond, min(wait, v.Rate.Interval/2)))
	return nothing, true, nil
}

// claimAll has nobody come before the list any more. If others do by now, it returns the index of a limiter in which they
// do, otherwise -1.
func (s *attempt) claimAll(ctx context.Context) (behind int, err error) {
	for i := range s.list {
		v := &s.list[i]
		if v.allOrNothing() {
			continue
		}
		v.Since = 0
		if err := v.Stand(ctx); err != nil {
			return -1, err
		}
		v.due, v.look, v.takes = time.Time{}, v.Renewal(), v.Last.Wait
		if v.Last.Wait > 0 {
			v.due = v.Moved.Add(v.Last.Wait)
		}
		if v.Last.Place != 1 {
			for j := range s.list[:i+1] {
				s.list[j].look = time.Time{} // what was claimed goes back
			}
			return i, nil
		}
	}
	return -1, nil
}
