// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"math"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
)

// An entry is one grant.
type entry struct {
	score   float64   // in ms, by the clock of the side that granted
	at      time.Time // of execution, by the clock of Redis
	permits int64
	java    bool
	unseen  bool // found by reconcile: nobody saw the execution, and at is the score
}

// lag returns by how much the score is behind the execution: less than a millisecond where the time is Redis's, and
// the time that the script was on its way where it is Java's.
func (e entry) lag() time.Duration { return e.at.Sub(e.scored()) }

// inTime reports whether the grant is known to have been executed underway at most after its score. Of an unseen one of
// Java's nobody knows; the score of an unseen one of ours is the time of Redis.
func (e entry) inTime() bool { return e.lag() <= underway && !(e.java && e.unseen) }

func (e entry) scored() time.Time {
	whole, part := math.Modf(e.score)
	return time.UnixMilli(int64(whole)).Add(time.Duration(part * float64(time.Millisecond)))
}

// fullest returns the most permits in any half-open window, by the time that when returns.
func fullest(entries []entry, window time.Duration, when func(entry) time.Time) int64 {
	return permitsIn(fullestOf(entries, window, when))
}

// fullestOf returns the grants of the window that holds the most permits.
func fullestOf(entries []entry, window time.Duration, when func(entry) time.Time) []entry {
	return redistest.Fullest(entries, window, func(e entry) (begin, end time.Time, permits int64) { return when(e), when(e), e.permits })
}

func byScore(e entry) time.Time     { return e.scored() }
func byExecution(e entry) time.Time { return e.at }

func only(entries []entry, want func(entry) bool) []entry {
	return slices.DeleteFunc(slices.Clone(entries), func(e entry) bool { return !want(e) })
}

func permitsIn(entries []entry) (sum int64) {
	for _, e := range entries {
		sum += e.permits
	}
	return sum
}
