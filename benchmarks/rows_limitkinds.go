package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/limit"
)

// A limitKind says how a limiter of package limit is put to a job, and how its state tells what it has
// granted. That is read here apart from the package, as in protocol.go.
type limitKind struct {
	key, title string
	algorithm  func(j job) limit.Algorithm
	granted    func(s limitState, j job, opened time.Time) (int64, error)
	ahead      bool // as of about
	reserves   bool // it is asked for a turn, since it lets go but one permit at a time
	logs       bool // its state is a sorted set; the others' is a hash
}

// A limitState is what a key of a limiter holds.
type limitState struct {
	fields  map[string]string
	members []string
}

const limitGCRAKey = "limit-gcra"

// logWindow is the interval of a SlidingLog under load. It keeps a member a grant: over an hour its set
// would grow for as long as the load lasts, and no call would drop any.
const logWindow = 250 * time.Millisecond

func limitKinds() []limitKind {
	return []limitKind{
		{key: "limit-fixed-window", title: "limit.FixedWindow",
			algorithm: func(j job) limit.Algorithm { return limit.FixedWindow{Rate: windowRate(j)} },
			granted:   grantedBy(func(s limitState, _ job) (int64, error) { return s.sum("count") })},
		{key: "limit-sliding-log", title: "limit.SlidingLog", logs: true,
			algorithm: func(j job) limit.Algorithm {
				r := windowRate(j)
				if j.logs > 0 {
					r = limit.Rate{Permits: min(r.Permits, j.logs.Microseconds()), Interval: j.logs}
				}
				return limit.SlidingLog{Rate: r}
			},
			granted: grantedBy(func(s limitState, _ job) (int64, error) { return s.logged() })},
		{key: "limit-sliding-counter", title: "limit.SlidingCounter",
			algorithm: func(j job) limit.Algorithm { return limit.SlidingCounter{Rate: windowRate(j)} },
			granted:   grantedBy(func(s limitState, _ job) (int64, error) { return s.sum("current", "previous") })},
		{key: "limit-interval-bucket", title: "limit.IntervalBucket",
			algorithm: func(j job) limit.Algorithm {
				return limit.IntervalBucket{Rate: windowRate(j), Capacity: j.permits}
			},
			granted: grantedBy(func(s limitState, j job) (int64, error) {
				left, err := s.sum("left")
				return j.permits - left, err
			})},
		{key: "limit-token-bucket", title: "limit.TokenBucket",
			algorithm: func(j job) limit.Algorithm { return limit.TokenBucket{Rate: flowRate(j), Capacity: j.permits} },
			granted:   grantedBy(limitState.poured)},
		{key: "limit-debt-bucket", title: "limit.DebtBucket", ahead: true,
			algorithm: func(j job) limit.Algorithm {
				return limit.DebtBucket{Rate: flowRate(j), Capacity: j.permits, Debt: 1}
			},
			granted: grantedBy(limitState.poured)},
		{key: limitGCRAKey, title: "limit.GCRA",
			algorithm: func(j job) limit.Algorithm { return limit.GCRA{Rate: flowRate(j), Burst: j.permits} },
			granted:   grantedByTAT},
		{key: "limit-leaky-queue", title: "limit.LeakyQueue", reserves: true,
			algorithm: func(j job) limit.Algorithm { return limit.LeakyQueue{Rate: flowRate(j), Capacity: j.permits} },
			granted:   grantedByTAT},
		{key: "limit-smooth-bursty", title: "limit.SmoothBursty", ahead: true,
			algorithm: func(j job) limit.Algorithm { return smoothBursty(j) },
			granted: func(s limitState, j job, opened time.Time) (int64, error) {
				next, err := s.sum("next")
				stored, bad := strconv.ParseFloat(s.fields["stored"], 64)
				if err != nil || bad != nil {
					return 0, fmt.Errorf("SmoothBursty keeps %q", s.fields)
				}
				most := float64(smoothBursty(j).MaxBurst / emission)
				return int64(math.Ceil(most-stored)) + turns(next, opened), nil
			}},
		{key: "limit-smooth-warming-up", title: "limit.SmoothWarmingUp", reserves: true,
			algorithm: func(j job) limit.Algorithm {
				_, interval := j.refill()
				return limit.SmoothWarmingUp{PermitsPerSecond: perSecond(j), Warmup: interval}
			},
			granted: func(s limitState, _ job, opened time.Time) (int64, error) {
				next, err := s.sum("next")
				return turns(next, opened), err // cold, the first permit takes half as long again: that is cut off
			}},
	}
}

// windowRate is for those that give all permits back together.
func windowRate(j job) limit.Rate { return limit.Rate{Permits: j.permits, Interval: j.interval} }

// flowRate is for those that give one back after the other.
func flowRate(j job) limit.Rate {
	permits, interval := j.refill()
	return limit.Rate{Permits: permits, Interval: interval}
}

func perSecond(j job) float64 {
	permits, interval := j.refill()
	return float64(permits) / interval.Seconds()
}

// smoothBursty stores a job's permits, or as many as it can: a year's worth.
func smoothBursty(j job) limit.SmoothBursty {
	permits, interval := j.refill()
	const most = 365 * 24 * time.Hour
	return limit.SmoothBursty{PermitsPerSecond: perSecond(j), MaxBurst: min(time.Duration(j.permits/permits)*interval, most)}
}

func grantedBy(count func(limitState, job) (int64, error)) func(limitState, job, time.Time) (int64, error) {
	return func(s limitState, j job, _ time.Time) (int64, error) { return count(s, j) }
}

func grantedByTAT(s limitState, _ job, opened time.Time) (int64, error) {
	us, err := s.sum("us")
	return turns(us, opened), err
}

// turns is how many permits' time an instant in µs is ahead of the job's beginning. The first grant was
// less than an emission interval later, and rounding takes at most microseconds.
func turns(us int64, opened time.Time) int64 {
	return int64((time.UnixMicro(us).Sub(opened) + time.Millisecond) / emission)
}

// sum adds up fields of the hash.
func (s limitState) sum(fields ...string) (int64, error) {
	total := int64(0)
	for _, f := range fields {
		n, err := strconv.ParseInt(s.fields[f], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("the hash %v: %s: %w", s.fields, f, err)
		}
		total += n
	}
	return total, nil
}

// poured is what is gone from a bucket of parts, of which one flows in each µs and emission makes a
// permit: less has flowed in since the first grant.
func (s limitState) poured(j job) (int64, error) {
	level, err := s.sum("level")
	cost := emission.Microseconds()
	return (j.permits*cost - level + cost - 1) / cost, err
}

// logged is the sum that the newest member of a log tells, once all members are seen to add up to theirs.
func (s limitState) logged() (int64, error) {
	last := int64(0)
	for i, m := range s.members {
		head, tail, _ := strings.Cut(m, ":")
		sum, err := strconv.ParseInt(head, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("member %q: %w", m, err)
		}
		n, err := strconv.ParseInt(tail, 10, 64)
		if err != nil || i > 0 && sum != last+n {
			return 0, fmt.Errorf("member %q does not follow a sum of %d", m, last)
		}
		last = sum
	}
	return last, nil
}
