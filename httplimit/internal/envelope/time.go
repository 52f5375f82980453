// SPDX-License-Identifier: Apache-2.0

package envelope

import (
	"net/http"
	"strconv"
	"time"
)

// MaxPenalty bounds how long a platform's text or header can make a fleet wait.
const MaxPenalty = 24 * time.Hour

// ServerNow is what the platform's clock showed when it answered: the Date header (RFC 9110 §6.6.1),
// which is rounded down to a second, or now, this process' clock, where there is none. An end that the
// platform names is on its clock, and hosts whose clock is off must not wait the difference.
func ServerNow(header http.Header, now time.Time) time.Time {
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		return date
	}
	return now
}

// Left is how long it is until the platform's clock shows t. It may be negative, and as long as a
// Duration can be.
func Left(header http.Header, now, t time.Time) time.Duration { return t.Sub(ServerNow(header, now)) }

// After is the instant d after now, within 0 and most.
func After(now time.Time, d, most time.Duration) time.Time { return now.Add(min(max(d, 0), most)) }

// Bounded is when a penalty of d ends that is no longer than most, and asked what it would be without that
// bound where it is longer, otherwise zero.
func Bounded(now time.Time, d, most time.Duration) (until, asked time.Time) {
	if d > most {
		asked = now.Add(d)
	}
	return After(now, d, most), asked
}

// IsDoubted reports whether a verdict with these instants is of an answer that is not trusted to begin a long
// cool-down: it leaves the length to the Transport.
func IsDoubted(until, asked time.Time) bool { return until.IsZero() && !asked.IsZero() }

// MaxSeconds is more than any number of seconds that means something here, the epoch's included, and
// far from what a Duration can hold.
const MaxSeconds = 1 << 32

// Seconds is n seconds, or MaxSeconds where that is less.
func Seconds(n int64) time.Duration { return time.Duration(min(n, MaxSeconds)) * time.Second }

// ParseSeconds reads 1*DIGIT. A number that is too large is a large one, not none.
func ParseSeconds(s string) (time.Duration, bool) {
	if !IsDigits(s) {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		n = MaxSeconds
	}
	return Seconds(n), true
}
