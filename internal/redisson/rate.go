// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// parseRate parses the hash as the scripts do. They accept as a number what Lua's tonumber accepts; so Rate and
// Acquire agree on which hashes are malformed. Redisson before 3.38.0 writes no keepAliveTime.
func parseRate(hash map[string]string) (permit.Rate, error) {
	for _, field := range []string{"rate", "interval", "type"} {
		if _, ok := hash[field]; !ok {
			return permit.Rate{}, permit.ErrNotInitialized
		}
	}
	var (
		r   permit.Rate
		err error
	)
	malformed := func(field string) {
		if err == nil {
			err = fmt.Errorf("%w: %s is %q", permit.ErrMalformed, field, hash[field])
		}
	}
	positive := func(field string) int64 {
		n, ok := number(hash[field])
		if !ok || !isWhole(n) || n < 1 {
			malformed(field)
		}
		return int64(n)
	}
	optional := func(field string) time.Duration { // what is no number or not positive is none
		n, ok := number(hash[field])
		if !ok || !(n > 0) {
			return 0
		}
		if !isWhole(n) {
			malformed(field)
		}
		return ms(int64(n))
	}
	switch hash["type"] {
	case "0":
		r.Type = permit.Overall
	case "1":
		r.Type = permit.PerClient
	default:
		return permit.Rate{}, fmt.Errorf("%w: type is %q", permit.ErrMalformed, hash["type"])
	}
	r.Permits = positive("rate")
	r.Interval = ms(positive("interval"))
	r.KeepAlive = optional("keepAliveTime")
	if n, ok := number(hash["minGap"]); ok && n > 0 && err == nil { // the scripts take any number, an interval at most
		r.MinGap = min(ms(int64(min(n, 1<<53))), r.Interval)
	}
	if err != nil {
		return permit.Rate{}, err
	}
	return r, nil
}

// number returns the value of Lua's tonumber(s), and whether s is a number.
func number(s string) (float64, bool) {
	s = strings.Trim(s, " \t\n\v\f\r")
	if strings.Contains(s, "_") {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	if digits, hex := strings.CutPrefix(strings.ToLower(s), "0x"); err != nil && hex {
		var n uint64
		n, err = strconv.ParseUint(digits, 16, 64)
		f = float64(n)
	}
	return f, err == nil || math.IsInf(f, 0)
}

// IsNumber reports whether the scripts read a field of the hash as a number, as Redisson does.
func IsNumber(field string) bool {
	_, ok := number(field)
	return ok
}

// Instant returns the instant in ms that a field of the hash holds, as the scripts read it. It returns 0 for a field
// that is empty, no number, or before 1970, and 2^53 for a later instant than that. A fraction is rounded up.
func Instant(field string) float64 {
	n, ok := number(field)
	if !ok || !(n > 0) {
		return 0
	}
	return math.Ceil(min(n, 1<<53))
}

// isWhole reports whether n is a whole number that Lua and Redis represent exactly.
func isWhole(n float64) bool { return n == math.Trunc(n) && math.Abs(n) <= 1<<53 }

// ParseRate returns the rate that the fields of a limiter's hash hold, as [Limiter.Inspect] does. Its errors wrap
// permit.ErrNotInitialized or permit.ErrMalformed and do not name the limiter.
func ParseRate(hash map[string]string) (permit.Rate, error) { return parseRate(hash) }
