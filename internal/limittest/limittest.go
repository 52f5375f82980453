// SPDX-License-Identifier: Apache-2.0

// Package limittest tests that a rate limiter keeps its promises. The limiter is any limit.Limiter: one of package
// limit, or a RRateLimiter.
//
//	func TestConformance(t *testing.T) {
//		limittest.Run(t, func(t *testing.T, check func(limittest.Key)) {
//			synctest.Test(t, func(t *testing.T) {
//				check(limittest.Key{
//					New:     func() limit.Limiter { return newLimiter(log) },
//					Rate:    ratelimiter.Rate{Permits: 10, Interval: time.Second},
//					Bound:   func(window time.Duration, n int64) int64 { return limit.Bound(log, window, n) },
//					Largest: 10,
//				})
//			})
//		})
//	}
//
// The checks sleep for hours: run them in a synctest bubble, where time is virtual and exact.
package limittest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/limit"
)

// A Reserver is a Limiter that may grant permits in advance, as the limiters of package limit do.
type Reserver interface {
	limit.Limiter
	Reserve(ctx context.Context, n int64, atMost time.Duration) (ratelimiter.Result, error)
}

// A Key is a limiter with its promises.
type Key struct {
	// New returns a new limiter that shares nothing with those that it returned before.
	New func() limit.Limiter
	// Bound returns the most permits that calls of at most n permits each are granted in any window of the
	// given length. A window includes its first instant and excludes its last.
	Bound func(window time.Duration, n int64) int64
	// Rate is the least that a caller gets, from an unused limiter on, if it asks again after each wait that the limiter
	// returned.
	Rate ratelimiter.Rate
	// Behind is by how many permits the limiter may stay behind Rate in total. It is 0 for most limiters.
	Behind int64
	// Largest is the most permits that the checks ask for in one call. A larger call must be
	// ratelimiter.ErrPermitsExceedRate unless Unbounded.
	Largest   int64
	Unbounded bool
	// Resolution is the shortest time that the limiter distinguishes. The default is a microsecond.
	Resolution time.Duration
	// Calls is how many calls NoDrift makes. The default is 1,000,000. If it is less than 10,000, other checks
	// make fewer calls too.
	Calls int
	// Random is what the checks draw from. The default draws the same each time.
	Random *rand.Rand

	// StepClock puts the limiter's clock forward, or back if d is negative. If it is nil, ClockSteps is
	// skipped.
	StepClock func(d time.Duration)
	// Deadlines returns the TTL of each key that the limiters have left in Redis, 0 or less for a key that
	// has none. If it is nil, the check of that name is skipped.
	Deadlines func(ctx context.Context) (map[string]time.Duration, error)
	// LoseReply makes Redis run the next call of a limiter and the reply get lost. If it is nil, LostReply is
	// skipped.
	LoseReply func()
	// AllowGrant is Allow of l with a Grant that can be settled, which is not used if the permits were not granted. If it
	// is nil, it is the method of that name that the limiters of package limit have; others skip Settle.
	AllowGrant func(ctx context.Context, l limit.Limiter, n int64) (Grant, ratelimiter.Result, error)
}

// ErrSkipped is returned by a check that needs a function which the Key does not have.
var ErrSkipped = errors.New("limittest: not checked")

// A Check tests one promise. Run returns an error that says how it was broken. It must be called in a synctest
// bubble.
type Check struct {
	Name string
	Run  func(ctx context.Context, s Key) error
}

// Checks returns all checks, in the order in which Run runs them.
func Checks() []Check {
	return []Check{
		{"AdmitsNoMoreThanTheBound", checked(checkBound)},
		{"SameInstant", checked(checkSameInstant)},
		{"Concurrency", checked(checkConcurrency)},
		{"EventualAdmission", checked(checkEventual)},
		{"NoDrift", checked(checkDrift)},
		{"Idle", checked(checkIdle)},
		{"WaitIsExact", checked(checkWait)},
		{"RejectedSpendsNothing", checked(checkRejected)},
		{"PeekSpendsNothing", checked(checkPeek)},
		{"ManyPermits", checked(checkMany)},
		{"Reserve", checked(checkReserve)},
		{"ClockSteps", checked(checkClock)},
		{"Deadlines", checked(checkDeadlines)},
		{"LostReply", checked(checkLostReply)},
		{"Settle", checked(checkSettle)},
	}
}

// Run runs every check as a subtest. For each it calls bubble, which opens a synctest bubble, makes the Key in
// it, and calls check with the Key.
func Run(t *testing.T, bubble func(t *testing.T, check func(s Key))) {
	t.Helper()
	for _, c := range Checks() {
		t.Run(c.Name, func(t *testing.T) {
			bubble(t, func(s Key) {
				err := c.Run(context.Background(), s)
				switch {
				case errors.Is(err, ErrSkipped):
					t.Log(err)
				case err != nil:
					t.Error(err)
				}
			})
		})
	}
}

// A failure is what a check panics with: how the promise was broken.
type failure struct{ err error }

func fail(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// must ends a check whose limiter returned an error.
func must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// checked returns check in the form of Check.Run.
func checked(check func(ctx context.Context, s Key)) func(context.Context, Key) error {
	return func(ctx context.Context, s Key) (err error) {
		defer func() {
			r := recover()
			if f, ok := r.(failure); ok {
				err = f.err
			} else if r != nil {
				panic(r)
			}
		}()
		check(ctx, s)
		return nil
	}
}

// A caller calls one limiter and records what it is granted.
type caller struct {
	Key
	ctx    context.Context
	l      limit.Limiter
	random *rand.Rand
	begin  time.Time
	grants []grant
	most   int64 // the largest call
}

type grant struct {
	at time.Duration // since begin
	n  int64
}

func (s Key) caller(ctx context.Context) *caller {
	if s.Resolution == 0 {
		s.Resolution = time.Microsecond
	}
	if s.Calls == 0 {
		s.Calls = 1_000_000
	}
	if s.Random == nil {
		s.Random = rand.New(rand.NewPCG(7, 7))
	}
	return &caller{Key: s, ctx: ctx, l: s.New(), random: s.Random, begin: time.Now()}
}

func (c *caller) now() time.Duration { return time.Since(c.begin) }

// each returns the time in which one permit comes in.
func (c *caller) each() time.Duration {
	return c.round(c.Rate.Interval / time.Duration(c.Rate.Permits))
}

// round returns d in multiples of the resolution, and at least one.
func (c *caller) round(d time.Duration) time.Duration {
	return max(d.Truncate(c.Resolution), c.Resolution)
}

// upTo returns a random duration of at most d.
func (c *caller) upTo(d time.Duration) time.Duration {
	return c.round(time.Duration(c.random.Int64N(int64(d) + 1)))
}

func (c *caller) allow(n int64) ratelimiter.Result {
	r, err := c.l.Allow(c.ctx, n)
	if err != nil {
		fail("Allow(%d) at %v: %w", n, c.now(), err)
	}
	c.book(n, 0, r)
	if r.Granted && r.Wait != 0 {
		fail("Allow(%d) at %v granted what has to wait: %+v", n, c.now(), r)
	}
	if !r.Granted && r.Wait <= 0 {
		fail("Allow(%d) at %v rejected without a wait: %+v", n, c.now(), r)
	}
	return r
}

func (c *caller) peek(n int64) ratelimiter.Result {
	r, err := c.l.Peek(c.ctx, n)
	must(err)
	return r
}

func (c *caller) book(n int64, later time.Duration, r ratelimiter.Result) {
	c.most = max(c.most, n)
	if r.Granted {
		c.grants = append(c.grants, grant{c.now() + later, n})
	}
}

// exhaust asks for single permits until one is rejected, and returns how many were granted and the rejection.
func (c *caller) exhaust() (got int64, r ratelimiter.Result) {
	for most := c.Bound(c.Resolution, 1); ; got++ {
		if r = c.allow(1); !r.Granted {
			return got, r
		}
		if got > most {
			fail("%d permits granted at the instant %v; the bound is %d", got+1, c.now(), most)
		}
	}
}

// granted returns how many permits were granted in total.
func (c *caller) granted() (n int64) {
	for _, g := range c.grants {
		n += g.n
	}
	return n
}

// owed returns how many permits the rate brings in that time.
func (c *caller) owed(d time.Duration) int64 {
	whole, rest := d/c.Rate.Interval, d%c.Rate.Interval
	return int64(whole)*c.Rate.Permits + int64(float64(c.Rate.Permits)*float64(rest)/float64(c.Rate.Interval)) - c.Behind
}
