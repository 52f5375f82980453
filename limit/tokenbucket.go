package limit

import (
	_ "embed"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
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

var tokenBucketScript = dispatch.New("token_bucket", tokenBucketSrc, 2, 7)

// Bound implements [Algorithm].
func (a TokenBucket) Bound(window time.Duration, _ int64) int64 {
	return a.Rate.flowed(a.Capacity, window.Microseconds())
}

// Largest implements [Algorithm].
func (a TokenBucket) Largest() int64 { return a.Capacity }

func (a TokenBucket) check() error             { return a.Rate.checkFlow("capacity", a.Capacity) }
func (a TokenBucket) script() *dispatch.Script { return tokenBucketScript }
func (a TokenBucket) numbers() []any           { return flowNumbers(a.Rate, a.Capacity) }
func (a TokenBucket) reserves() bool           { return false }
func (a TokenBucket) idle() state              { return newBucket(a.Rate, a.Capacity, 0) }

// flowNumbers are those of the scripts that count in parts: the flow, the cost, and permits in parts.
func flowNumbers(r Rate, permits int64) []any {
	flow, cost := r.parts()
	return []any{flow, cost, permits * cost}
}

// A bucket counts in parts of a permit; see Rate.parts. With debt it is a DebtBucket's.
type bucket struct {
	flow, cost, full, debt int64
	at, level              int64
}

// newBucket is full, and what flows in a microsecond fits in on top: without that the µs to which waits
// are rounded would flow over.
func newBucket(r Rate, capacity, debt int64) *bucket {
	flow, cost := r.parts()
	full := capacity*cost + flow - 1
	return &bucket{flow: flow, cost: cost, full: full, debt: debt * cost, level: full}
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
		d.remaining = (next.level + s.debt) / s.cost
	}
	d.reset = ceilDiv(s.full-next.level, s.flow)
	if q.spend && (d.granted || back) {
		*s = next
	}
	return d
}
