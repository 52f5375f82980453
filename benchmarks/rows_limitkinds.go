// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/limit"
)

// A limitKind describes how a limiter of package limit is configured for a job, and how to read from its state what
// it has granted. The state is read without the package, as in protocol.go.
type limitKind struct {
	key, title string
	algorithm  func(j job) limit.Algorithm
	granted    func(s limitState, j job, opened time.Time) (int64, error)
	ahead      bool   // as of about
	reserves   bool   // requests are reservations, since it releases one permit at a time
	logs       bool   // its state is a sorted set; the others' is a string
	keeps      string // what the words of the string are, before a semicolon
}

// A limitState is the content of a limiter's key.
type limitState struct {
	fields  map[string]string
	members []string
}

const limitGCRAKey = "limit-gcra"

// logWindow is the interval of a SlidingLog under load. Its set has a member for each grant: with an interval of an
// hour it would grow as long as the load lasts, and no call would remove a member.
const logWindow = 250 * time.Millisecond

func limitKinds() []limitKind {
	return []limitKind{
		{key: "limit-fixed-window", title: "limit.FixedWindow", keeps: "start count",
			algorithm: func(j job) limit.Algorithm { return limit.FixedWindow{Rate: windowRate(j)} },
			granted:   grantedBy(func(s limitState, _ job) (int64, error) { return s.sum("count") })},
		{key: "limit-calendar-quota", title: "limit.CalendarQuota", keeps: "end count",
			algorithm: func(j job) limit.Algorithm {
				return limit.CalendarQuota{Permits: j.permits, Per: limit.Month, Location: time.UTC}
			},
			granted: grantedBy(func(s limitState, _ job) (int64, error) { return s.sum("count") })},
		{key: "limit-sliding-log", title: "limit.SlidingLog", logs: true,
			algorithm: func(j job) limit.Algorithm {
				r := windowRate(j)
				if j.logs > 0 {
					r = limit.Rate{Permits: min(r.Permits, j.logs.Microseconds()), Interval: j.logs}
				}
				return limit.SlidingLog{Rate: r}
			},
			granted: grantedBy(func(s limitState, _ job) (int64, error) { return s.logged() })},
		{key: "limit-sliding-counter", title: "limit.SlidingCounter", keeps: "start current previous",
			algorithm: func(j job) limit.Algorithm { return limit.SlidingCounter{Rate: windowRate(j)} },
			granted:   grantedBy(func(s limitState, _ job) (int64, error) { return s.sum("current", "previous") })},
		{key: "limit-interval-bucket", title: "limit.IntervalBucket", keeps: "begun left",
			algorithm: func(j job) limit.Algorithm {
				return limit.IntervalBucket{Rate: windowRate(j), Burst: j.permits}
			},
			granted: grantedBy(func(s limitState, j job) (int64, error) {
				left, err := s.sum("left")
				return j.permits - left, err
			})},
		{key: "limit-token-bucket", title: "limit.TokenBucket", keeps: "at level",
			algorithm: func(j job) limit.Algorithm { return limit.TokenBucket{Rate: flowRate(j), Burst: j.permits} },
			granted:   grantedBy(limitState.poured)},
		{key: "limit-debt-bucket", title: "limit.DebtBucket", keeps: "at level", ahead: true,
			algorithm: func(j job) limit.Algorithm {
				return limit.DebtBucket{Rate: flowRate(j), Burst: j.permits, Debt: 1}
			},
			granted: grantedBy(limitState.poured)},
		{key: limitGCRAKey, title: "limit.GCRA", keeps: "us part",
			algorithm: func(j job) limit.Algorithm { return limit.GCRA{Rate: flowRate(j), Burst: j.permits} },
			granted:   grantedByTAT},
		{key: "limit-leaky-queue", title: "limit.LeakyQueue", keeps: "us part", reserves: true,
			algorithm: func(j job) limit.Algorithm { return limit.LeakyQueue{Rate: flowRate(j), Capacity: j.permits} },
			granted:   grantedByTAT},
		{key: "limit-smooth-bursty", title: "limit.SmoothBursty", keeps: "stored next at part", ahead: true,
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
		{key: "limit-smooth-warming-up", title: "limit.SmoothWarmingUp", keeps: "stored next at part", reserves: true,
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

// windowRate returns the rate for limiters that return all permits together.
func windowRate(j job) limit.Rate { return limit.Rate{Permits: j.permits, Interval: j.interval} }

// flowRate returns the rate for limiters that return permits one by one.
func flowRate(j job) limit.Rate {
	permits, interval := j.refill()
	return limit.Rate{Permits: permits, Interval: interval}
}

func perSecond(j job) float64 {
	permits, interval := j.refill()
	return float64(permits) / interval.Seconds()
}

// smoothBursty returns a limiter that stores a job's permits, or those of a year if they are more.
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

// turns returns how many emission intervals an instant, in µs, is ahead of the job's beginning. The first grant was
// less than one later, and rounding changes the instant by microseconds at most.
func turns(us int64, opened time.Time) int64 {
	return int64((time.UnixMicro(us).Sub(opened) + time.Millisecond) / emission)
}

// sum adds up fields of the state.
func (s limitState) sum(fields ...string) (int64, error) {
	total := int64(0)
	for _, f := range fields {
		n, err := strconv.ParseInt(s.fields[f], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("the state %v: %s: %w", s.fields, f, err)
		}
		total += n
	}
	return total, nil
}

// poured returns how many permits a bucket lacks. One part flows in each µs and emission parts make a permit; since
// the first grant less than that has flowed in.
func (s limitState) poured(j job) (int64, error) {
	level, err := s.sum("level")
	cost := emission.Microseconds()
	return (j.permits*cost - level + cost - 1) / cost, err
}

// logged returns the sum in the newest member of a log, after checking that the members add up to it.
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
