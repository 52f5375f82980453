package limit

import (
	_ "embed"
	"time"

	"github.com/goredisson/ratelimiter/internal/redisscript"
)

// A TokenBucket is a token bucket that is filled evenly, Rate.Permits in each interval, up to Capacity.
// It starts full.
//
// Bound: Capacity + Rate × window, rounded down, in any window. What flows in within the current
// microsecond counts as there, so that a caller who comes a fraction of one late loses nothing.
//
// It does not promise the rate in every window of its interval: a full bucket may go at once on top of
// it. [GCRA] admits the same, and stores one instant instead of an instant and a level.
//
// Source: https://en.wikipedia.org/wiki/Token_bucket.
type TokenBucket struct {
	Rate     Rate
	Capacity int64
}

//go:embed scripts/token_bucket.lua
var tokenBucketSrc string

var tokenBucketScript = redisscript.New("token_bucket", tokenBucketSrc, 2, 7)

// Bound implements [Algorithm].
func (a TokenBucket) Bound(window time.Duration, _ int64) int64 {
	return a.pace().most(a.Capacity, window.Microseconds())
}

// Largest implements [Algorithm].
func (a TokenBucket) Largest() int64 { return a.Capacity }

func (a TokenBucket) check() error                { return a.Rate.checkPace("capacity", a.Capacity) }
func (a TokenBucket) script() *redisscript.Script { return tokenBucketScript }
func (a TokenBucket) numbers() []any              { return a.pace().numbers(a.Capacity) }
func (a TokenBucket) reserves() bool              { return false }
func (a TokenBucket) idle() state                 { return newBucket(a.pace(), a.Capacity, 0) }
func (a TokenBucket) pace() pace                  { return onlyPace(a.Rate.pace(a.Capacity)) }

// onlyPace returns the pace of numbers that were checked.
func onlyPace(p pace, _ bool) pace { return p }

// A bucket counts in parts of a permit. With debt it is a DebtBucket's.
type bucket struct {
	pace
	full, debt int64
	at, level  int64
}

// newBucket is full, and what flows in a microsecond fits in on top: without that the µs to which waits
// are rounded would flow over.
func newBucket(p pace, capacity, debt int64) *bucket {
	full := capacity*p.cost + p.flow - 1
	return &bucket{pace: p, full: full, debt: debt * p.cost, level: full}
}

func (s *bucket) take(q request) decision {
	next, back := *s, q.now < s.at
	if passed := q.now - s.at; passed >= ceilDiv(s.full-s.level, s.flow) {
		next.level = s.full
	} else if !back {
		next.level += passed * s.flow
	}
	next.at = q.now
	need := q.n * s.cost
	least := max(0, need-s.debt) // a debt is made by who finds none
	d := decision{granted: next.level >= least}
	if !d.granted {
		d.wait = ceilDiv(least-next.level, s.flow)
	} else if q.spend {
		next.level -= need
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
