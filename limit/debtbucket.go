package limit

import (
	_ "embed"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
)

// A DebtBucket is a [TokenBucket] whose permits can be consumed before they are there: while nothing is
// owed one call may take Debt permits more than the bucket holds, and the next call waits until that has
// flowed in. So a large call goes at once, and others pay for it.
//
// Bound: Capacity + Debt + Rate × window, rounded down, in any window; of calls of n permits no more
// than n of the Debt.
//
// It does not promise that a small call gets through beside a large one.
//
// Source: the way in which Guava's RateLimiter lets a call pass and the next one pay, see
// https://guava.dev/releases/snapshot-jre/api/docs/com/google/common/util/concurrent/RateLimiter.html,
// here with a bound; [SmoothBursty] is Guava's own.
type DebtBucket struct {
	Rate     Rate
	Capacity int64
	Debt     int64
}

//go:embed scripts/debt_bucket.lua
var debtBucketSrc string

var debtBucketScript = dispatch.New("debt_bucket", debtBucketSrc, 2, 8)

// Bound implements [Algorithm].
func (a DebtBucket) Bound(window time.Duration, n int64) int64 {
	return a.Rate.flowed(a.Capacity+min(a.Debt, n), window.Microseconds())
}

// Largest implements [Algorithm].
func (a DebtBucket) Largest() int64 { return a.Capacity + a.Debt }

func (a DebtBucket) check() error {
	if a.Debt < 1 || a.Debt > maxPermits {
		return invalid("debt of %d permits is not in 1..%d", a.Debt, int64(maxPermits))
	}
	if a.Capacity < 1 || a.Capacity > maxPermits {
		return invalid("capacity of %d permits is not in 1..%d", a.Capacity, int64(maxPermits))
	}
	return a.Rate.checkFlow("capacity and debt", a.Capacity+a.Debt)
}
func (a DebtBucket) script() *dispatch.Script { return debtBucketScript }
func (a DebtBucket) numbers() []any {
	_, cost := a.Rate.parts()
	return append(flowNumbers(a.Rate, a.Capacity), a.Debt*cost)
}
func (a DebtBucket) reserves() bool { return false }
func (a DebtBucket) idle() state    { return newBucket(a.Rate, a.Capacity, a.Debt) }
