// Package limittest holds a rate limiter to what it promises: limit.Limiter values of any make, this
// module's, a RRateLimiter, or yours.
//
//	func TestConformance(t *testing.T) {
//		limittest.Run(t, func(t *testing.T, check func(limittest.Subject)) {
//			synctest.Test(t, func(t *testing.T) {
//				check(limittest.Subject{
//					New:     func() limit.Limiter { return newMine(10, time.Second) },
//					Rate:    limit.Rate{Permits: 10, Interval: time.Second},
//					Bound:   limit.SlidingLog{Rate: limit.Rate{Permits: 10, Interval: time.Second}}.Bound,
//					Largest: 10,
//				})
//			})
//		})
//	}
//
// The checks pass hours by time.Sleep: run them in a synctest bubble, whose time is virtual and exact.
package limittest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/limit"
)

// A Subject is a limiter, and what it promises.
type Subject struct {
	// New makes one more limiter, unused, that shares nothing with the others.
	New func() limit.Limiter
	// Bound is the most permits that calls of at most n each are granted in any window of that length:
	// from some instant on, and up to but without the instant a window later.
	Bound func(window time.Duration, n int64) int64
	// Rate is what a caller who always asks again when told gets at least, counted from when the
	// limiter was unused.
	Rate limit.Rate
	// Behind is by how many permits it may stay behind Rate, at the beginning or ever. 0 for most.
	Behind int64
	// Largest is the most permits that the checks ask for in one call. A larger call must be
	// ratelimiter.ErrPermitsExceedRate unless Unbounded.
	Largest   int64
	Unbounded bool
	// Resolution is what the limiter tells apart. The default is a microsecond.
	Resolution time.Duration
	// Calls is how many NoDrift makes. The default is 1,000,000. With fewer than 10,000 other checks make
	// fewer, too.
	Calls int

	// StepClock puts the limiter's clock forward, or back when d is negative. nil: not checked.
	StepClock func(d time.Duration)
	// Deadlines answers the TTL of each key that the limiters have left in Redis, 0 or less for a key
	// that has none. nil: not checked.
	Deadlines func(ctx context.Context) (map[string]time.Duration, error)
	// LoseReply makes Redis execute the next call of a limiter and its answer get lost. nil: not checked.
	LoseReply func()
}

// ErrSkipped is the answer of a check that a Subject gives no means for.
var ErrSkipped = errors.New("limittest: not checked")

// A Check is one promise. Run answers what broke it; it must be called in a bubble of virtual time.
type Check struct {
	Name string
	Run  func(ctx context.Context, s Subject) error
}

// Checks are all there are, in the order in which Run runs them.
func Checks() []Check {
	return []Check{
		{"AdmitsNoMoreThanTheBound", checkBound},
		{"SameInstant", checkSameInstant},
		{"Concurrency", checkConcurrency},
		{"EventualAdmission", checkEventual},
		{"NoDrift", checkDrift},
		{"Idle", checkIdle},
		{"WaitIsExact", checkWait},
		{"RefusedSpendsNothing", checkRefused},
		{"PeekSpendsNothing", checkPeek},
		{"ManyPermits", checkMany},
		{"Reserve", checkReserve},
		{"ClockSteps", checkClock},
		{"Deadlines", checkDeadlines},
		{"LostReply", checkLostReply},
	}
}

// Run runs every check as a subtest. Each gets a bubble of its own: bubble opens it, makes the Subject
// there, and calls check with it.
func Run(t *testing.T, bubble func(t *testing.T, check func(s Subject))) {
	t.Helper()
	for _, c := range Checks() {
		t.Run(c.Name, func(t *testing.T) {
			bubble(t, func(s Subject) {
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

// A caller asks one limiter and keeps book of what it gets.
type caller struct {
	Subject
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

func (s Subject) caller(ctx context.Context) *caller {
	if s.Resolution == 0 {
		s.Resolution = time.Microsecond
	}
	if s.Calls == 0 {
		s.Calls = 1_000_000
	}
	return &caller{Subject: s, ctx: ctx, l: s.New(), random: rand.New(rand.NewPCG(7, 7)), begin: time.Now()}
}

func (c *caller) now() time.Duration { return time.Since(c.begin) }

// each is the time of one permit.
func (c *caller) each() time.Duration {
	return c.round(c.Rate.Interval / time.Duration(c.Rate.Permits))
}

// round is d as the limiter tells it apart, and not 0.
func (c *caller) round(d time.Duration) time.Duration {
	return max(d.Truncate(c.Resolution), c.Resolution)
}

// upTo is a random duration.
func (c *caller) upTo(d time.Duration) time.Duration {
	return c.round(time.Duration(c.random.Int64N(int64(d) + 1)))
}

func (c *caller) allow(n int64) (limit.Result, error) {
	r, err := c.l.Allow(c.ctx, n)
	if err != nil {
		return r, fmt.Errorf("Allow(%d) at %v: %w", n, c.now(), err)
	}
	c.book(n, 0, r)
	if r.Granted && r.Wait != 0 {
		return r, fmt.Errorf("Allow(%d) at %v granted what has to wait: %+v", n, c.now(), r)
	}
	if !r.Granted && r.Wait <= 0 {
		return r, fmt.Errorf("Allow(%d) at %v refused without a wait: %+v", n, c.now(), r)
	}
	return r, nil
}

func (c *caller) book(n int64, later time.Duration, r limit.Result) {
	c.most = max(c.most, n)
	if r.Granted {
		c.grants = append(c.grants, grant{c.now() + later, n})
	}
}

// exhaust asks for single permits until one is refused, and answers how many it got and the refusal.
func (c *caller) exhaust() (got int64, r limit.Result, err error) {
	for limit := c.Bound(c.Resolution, 1) + 1; ; got++ {
		if r, err = c.allow(1); err != nil || !r.Granted {
			return got, r, err
		}
		if got+1 > limit {
			return got, r, fmt.Errorf("%d permits granted at the instant %v; the bound is %d", got+1, c.now(), limit-1)
		}
	}
}

// granted is how many permits were granted in all.
func (c *caller) granted() (n int64) {
	for _, g := range c.grants {
		n += g.n
	}
	return n
}

// owed is what the rate owes after that time.
func (c *caller) owed(d time.Duration) int64 {
	whole, rest := d/c.Rate.Interval, d%c.Rate.Interval
	return int64(whole)*c.Rate.Permits + int64(float64(c.Rate.Permits)*float64(rest)/float64(c.Rate.Interval)) - c.Behind
}
