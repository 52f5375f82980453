// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
)

// A TokenBucket is a token bucket that is refilled continuously, by Rate.Permits in each interval, up to
// Burst. It starts full.
//
// Bound: Burst + Rate × window, rounded down, in any window. What comes in during the current microsecond
// already counts, so that a caller that is a fraction of a microsecond late loses nothing.
//
// It does not promise the rate in every window of one interval: a full bucket may be taken at once in addition.
// A [GCRA] admits the same, and stores one instant in place of an instant and a level.
//
// Source: https://en.wikipedia.org/wiki/Token_bucket.
type TokenBucket struct {
	Rate  Rate
	Burst int64
}

var tokenBucketScript = script("token_bucket", 1, 7)

// Bound implements [Algorithm].
func (a TokenBucket) Bound(window time.Duration, _ int64) int64 {
	return a.pace().most(a.Burst, window.Microseconds())
}

// Largest implements [Algorithm].
func (a TokenBucket) Largest() int64 { return a.Burst }

func (a TokenBucket) check() error             { return a.Rate.checkPace("burst", a.Burst) }
func (a TokenBucket) script() *dispatch.Script { return tokenBucketScript }
func (a TokenBucket) parameters() []any        { return a.pace().parameters(a.Burst) }
func (a TokenBucket) reserves() bool           { return false }
func (a TokenBucket) idle() state              { return newTokenBucket(a.pace(), a.Burst, 0) }
func (a TokenBucket) stored(text string) (state, bool) {
	v, e, ok := numbers(text, 2, 3)
	s := newTokenBucket(a.pace(), a.Burst, 0)
	s.at, s.level, s.given, s.epoch = v[0], v[1], min(v[2], maxExact), e
	return s, ok
}
func (a TokenBucket) pace() pace { return onlyPace(a.Rate.pace(a.Burst)) }

// onlyPace returns a pace that was checked before.
func onlyPace(p pace, _ bool) pace { return p }

// A tokenBucket is the state of a TokenBucket or, with debt, a DebtBucket. It counts in parts of a permit.
type tokenBucket struct {
	pace
	full, debt int64
	at, level  int64
	given      int64 // µs of what came in that were given back
	epoch      epoch
}

// newTokenBucket returns a full bucket. It holds in addition what comes in within a microsecond, which would
// otherwise be lost when a wait is rounded up to a whole one.
func newTokenBucket(p pace, capacity, debt int64) *tokenBucket {
	full := capacity*p.cost + p.flow - 1
	return &tokenBucket{pace: p, full: full, debt: debt * p.cost, level: full}
}

// seen returns s as of now, for the call of that id, and whether the clock was put back.
func (s tokenBucket) seen(now int64, id epoch) (next tokenBucket, back bool) {
	back = now < s.at
	if passed := now - s.at; passed >= ceilDiv(s.full-s.level, s.flow) {
		s.level = s.full
	} else if !back {
		s.level += passed * s.flow
	}
	s.at = now
	if back || s.level == s.full {
		s.given, s.epoch = 0, id
	}
	return s, back
}

func (s *tokenBucket) settle(now int64, id epoch, x *settlement) {
	next, _ := s.seen(now, id)
	parts := s.parts(now, x, &next.given, &next.epoch, id)
	next.level = max(-maxExact, min(s.full, next.level-parts))
	*s = next
}

func (s *tokenBucket) markOf(earliest, n int64) mark {
	return mark{epoch: s.epoch, from: earliest, owed: n * s.cost, given: s.given}
}

func (s *tokenBucket) take(q demand, id epoch) decision {
	next, back := s.seen(q.now, id)
	need := q.n * s.cost
	least := max(0, need-s.debt) // a call may go into debt only while nothing is owed
	d := decision{granted: next.level >= least}
	if !d.granted {
		d.wait = ceilDiv(least-next.level, s.flow)
	} else if q.spend {
		next.level -= need
		q.marks(mark{epoch: next.epoch, from: q.now, owed: s.full - next.level, given: next.given})
	}
	if next.level >= 0 {
		d.remaining = (min(next.level, s.full-s.flow+1) + s.debt) / s.cost
	}
	d.reset = ceilDiv(s.full-next.level, s.flow)
	if q.spend && (d.granted || back) {
		*s = next
	}
	return d
}
