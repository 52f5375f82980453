// SPDX-License-Identifier: Apache-2.0

// Package rates reads a rate from a text, holds it to what a limiter accepts, before Redis is asked, and writes a wait as HTTP has it.
package rates

import (
	"strings"
	"time"

	"github.com/goredisson/ratelimiter"
)

// MaxPermits is what a member of the permits set can hold.
const MaxPermits = 1<<32 - 1

// A Parsed is what a text says of a rate.
type Parsed struct {
	ratelimiter.Rate
	Whole bool // the text names the type, so that it says all parts, and not only the permits and the interval
}

// Parse reads a text as [ratelimiter.ParseRate] does.
func Parse(text string) (p Parsed, err error) {
	p.Rate, err = ratelimiter.ParseRate(text)
	p.Whole = err == nil && strings.Contains(text, " ")
	return p, err
}

// Set gives r what the text says.
func (p Parsed) Set(r *ratelimiter.Rate) {
	if p.Whole {
		*r = p.Rate
	} else {
		r.Permits, r.Interval = p.Permits, p.Interval
	}
}

// Check tells report what is wrong with r, field by field in the words of a rule file, so that a typing error
// is found when the limit is made and not with the first request.
func Check(r ratelimiter.Rate, report func(field, format string, args ...any)) {
	if r.Type != ratelimiter.Overall && r.Type != ratelimiter.PerClient {
		report("type", "%d is neither overall nor per_client", int(r.Type))
	}
	if r.Permits < 1 || r.Permits > MaxPermits {
		report("permits", "%d is not in 1..%d", r.Permits, int64(MaxPermits))
	}
	if r.Interval < time.Millisecond {
		report("interval", "%v is shorter than a millisecond", r.Interval)
	}
	whole := func(field string, d time.Duration) {
		if d < 0 {
			report(field, "%v is negative", d)
		} else if d%time.Millisecond != 0 {
			report(field, "%v is no whole number of milliseconds", d)
		}
	}
	if r.Interval > time.Millisecond {
		whole("interval", r.Interval)
	}
	whole("keep_alive", r.KeepAlive)
	whole("min_gap", r.MinGap)
	if r.KeepAlive > 0 && r.KeepAlive < r.Interval {
		report("keep_alive", "%v is shorter than the interval %v", r.KeepAlive, r.Interval)
	}
	if r.MinGap > r.Interval {
		report("min_gap", "%v is longer than the interval %v", r.MinGap, r.Interval)
	}
}

// WholeSeconds returns d as delay-seconds (RFC 9110 section 10.2.3): rounded up, since who comes back a moment too
// early is rejected again, and at least one.
func WholeSeconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return max(1, s)
}
