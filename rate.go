// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// A Rate is the limit that Redis stores for a limiter: Permits permits in any window of length Interval. Rates are
// comparable with ==. The zero value is not a valid rate. The type corresponds to Redisson's RateLimiterConfig.
type Rate struct {
	Type RateType
	// Permits is the number of permits that may be acquired within any Interval, from 1 to 2^32-1.
	Permits int64
	// Interval is the length of the window: a whole number of milliseconds above 0, or of microseconds in package limit.
	// Like Redisson, this package dates grants in whole milliseconds. So by a finer clock Permits holds for a window
	// that is a millisecond shorter: an error of one percent at 100 ms, and no limit at 1 ms.
	Interval time.Duration
	// KeepAlive is how long the limiter lives after the last acquire, granted or rejected; then Redis deletes it
	// together with its rate. Callers that wait renew it, but in [Client.AcquireAll] not while they wait for another
	// limiter. It is 0 for a limiter that stays, or a whole number of milliseconds and at least Interval. Redisson
	// before 3.38.0 ignores it.
	KeepAlive time.Duration
	// MinGap is the minimum time between two permits: after a grant of n permits the next grant is at least n gaps
	// later. It is 0 for no gap, or a whole number of milliseconds and at most Interval. Redisson ignores it. Behind
	// a grant that is ahead of the clock of Redis the gap begins when it is first seen; with [WithClientClock], never.
	MinGap time.Duration
}

// PerSecond returns the [Overall] rate of that many permits per second.
func PerSecond(permits int64) Rate { return Rate{Permits: permits, Interval: time.Second} }

// PerMinute returns the [Overall] rate of that many permits per minute.
func PerMinute(permits int64) Rate { return Rate{Permits: permits, Interval: time.Minute} }

// PerHour returns the [Overall] rate of that many permits per hour.
func PerHour(permits int64) Rate { return Rate{Permits: permits, Interval: time.Hour} }

// Every returns the [Overall] rate of one permit in each interval.
func Every(interval time.Duration) Rate { return Rate{Permits: 1, Interval: interval} }

// ParseRate returns the rate that a text says, such as "10/s", "100/1m30s" or "1000/day": a number of permits, and an
// interval as [time.ParseDuration] takes it, or in sec, second, min, minute, hr, hour, d or day (24 hours), with a
// number or without. It also takes what [Rate.String] writes: "PER_CLIENT 5/10s keep-alive 1h0m0s gap 1s". It returns
// ErrInvalidArgument for any other text, and for a rate out of range. Microseconds are for package limit alone.
func ParseRate(text string) (Rate, error) {
	var r Rate
	words := strings.Split(text, " ")
	if len(words) > 1 {
		if err := r.Type.UnmarshalText([]byte(words[0])); err != nil {
			return Rate{}, invalid("the rate %q is not in the form 10/s, 100/1m30s, 1000/day or OVERALL 10/s gap 100ms", permit.Shorten(text))
		}
		words = words[1:]
	}
	var err error
	if r.Permits, r.Interval, err = permit.ParsePace(words[0]); err != nil {
		return Rate{}, err
	}
	words = words[1:]
	for _, part := range []struct {
		name string
		to   *time.Duration
	}{{"keep-alive", &r.KeepAlive}, {"gap", &r.MinGap}} {
		if len(words) < 2 || words[0] != part.name {
			continue
		}
		if *part.to, err = time.ParseDuration(words[1]); err != nil || *part.to == 0 {
			return Rate{}, invalid("the %s of the rate %q is no duration", part.name, permit.Shorten(text))
		}
		words = words[2:]
	}
	if len(words) > 0 {
		return Rate{}, invalid("the rate %q ends in %q", permit.Shorten(text), permit.Shorten(strings.Join(words, " ")))
	}
	checked := r // a plain rate may be for package limit: its microseconds are checked here, and validate sees whole milliseconds
	if checked == (Rate{Permits: r.Permits, Interval: r.Interval}) {
		if r.Interval < time.Microsecond || r.Interval%time.Microsecond != 0 {
			return Rate{}, invalid("Rate.Interval %v is not a positive number of microseconds", r.Interval)
		}
		checked.Interval = max(r.Interval, time.Millisecond).Truncate(time.Millisecond)
	}
	if err := checked.validate(); err != nil {
		return Rate{}, err
	}
	return r, nil
}

// String returns the rate in a form for log lines, such as "OVERALL 5/10s".
func (r Rate) String() string { return r.permit().String() }

func (r Rate) permit() permit.Rate {
	return permit.Rate{Type: permit.Type(r.Type), Permits: r.Permits, Interval: r.Interval, KeepAlive: r.KeepAlive, MinGap: r.MinGap}
}

func rateOf(r permit.Rate) Rate {
	return Rate{Type: RateType(r.Type), Permits: r.Permits, Interval: r.Interval, KeepAlive: r.KeepAlive, MinGap: r.MinGap}
}

// validate rejects the rates that Redisson accepts and then fails on: a rate or an interval of 0 or less, and
// rates that DECRBY cannot count, which are those from 1e17 on.
func (r Rate) validate() error {
	if r.Type != Overall && r.Type != PerClient {
		return invalid("Rate.Type %d is neither Overall nor PerClient", int(r.Type))
	}
	if r.Permits < 1 || r.Permits > permit.Max {
		return invalid("Rate.Permits %d is not in 1..%d", r.Permits, int64(permit.Max))
	}
	interval, err := millis("Rate.Interval", r.Interval)
	if err != nil {
		return err
	}
	if interval < 1 {
		return invalid("Rate.Interval %v is shorter than a millisecond", r.Interval)
	}
	if _, err := millis("Rate.KeepAlive", r.KeepAlive); err != nil {
		return err
	}
	if r.KeepAlive != 0 && r.KeepAlive < r.Interval {
		return invalid("Rate.KeepAlive %v is shorter than Rate.Interval %v", r.KeepAlive, r.Interval)
	}
	if _, err := millis("Rate.MinGap", r.MinGap); err != nil {
		return err
	}
	if r.MinGap < 0 || r.MinGap > r.Interval {
		return invalid("Rate.MinGap %v is not in 0..%v, which is Rate.Interval", r.MinGap, r.Interval)
	}
	return nil
}

// maxCarried is how often in a row one call sets the rate that its handle carries. It is more than once because Redis
// may lose the rate again at that moment. A call that waited for longer than carriedFor in between had found the rate
// in Redis.
const (
	maxCarried = 2
	carriedFor = 100 * time.Millisecond
)

// WithRate returns a handle of the same limiter that carries its rate. If a call that acquires permits finds the
// limiter without a rate, because it is new or Redis has lost it, it sets r as [RateLimiter.TrySetRate] does and goes
// on. A limiter that has a rate keeps it, even if it differs from r. The other calls of the handle, such as Release and
// Peek, still return ErrNotInitialized.
func (l *RateLimiter) WithRate(r Rate) *RateLimiter {
	handle := *l.made()
	handle.rate = &r
	if err := r.validate(); err != nil && handle.err == nil {
		handle.err = err
	}
	return &handle
}

// A carriedSets counts how often a call has set carried rates.
type carriedSets struct {
	n    int
	last time.Time
}

// again reports whether an attempt that ended with err is to be made again, because it found a limiter without a rate, and the
// rates that the limiters of the demands carry have been set. If that fails, err is how.
func (s *carriedSets) again(ctx context.Context, err *error, demands ...Demand) (again bool) {
	if time.Since(s.last) > carriedFor {
		s.n = 0
	}
	if s.n == maxCarried || !errors.Is(*err, ErrNotInitialized) {
		return false
	}
	for _, d := range demands {
		if d.Limiter.rate == nil {
			continue
		}
		again = true
		// While Redis is unavailable the outage policy decides, when it is asked again.
		if failed := d.Limiter.setCarried(ctx); failed != nil && (s.n == maxCarried-1 || !errors.Is(failed, ErrUnavailable)) {
			*err = failed
			return false
		}
	}
	s.n, s.last = s.n+1, time.Now()
	return again
}

// A carriedSet is a call that sets a carried rate. It has been done, or not, when over is closed.
type carriedSet struct {
	over chan struct{}
	err  error
}

// setCarried sets the rate that l carries, unless another caller of the Client is doing so: then it waits for that one, and sets the
// rate itself if that one did not, because its context has ended for example.
func (l *RateLimiter) setCarried(ctx context.Context) error {
	mine, sets := &carriedSet{over: make(chan struct{})}, &l.client.setting
	for {
		other, busy := sets.LoadOrStore(l.redis.Keys.Hash, mine)
		if !busy {
			break
		}
		set := other.(*carriedSet)
		select {
		case <-set.over:
			if set.err == nil {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	_, mine.err = l.TrySetRate(ctx, *l.rate)
	sets.Delete(l.redis.Keys.Hash)
	close(mine.over)
	return mine.err
}
