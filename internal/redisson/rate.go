package redisson

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// parseRate reads the hash as the scripts do, which take for a number what Lua's tonumber does, so that Rate and Acquire
// agree on what is malformed. keepAliveTime is absent in what Redisson before 3.38.0 wrote.
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
	number := func(field string, least int64) int64 {
		n, ok := whole(hash[field])
		if (!ok || n < least) && err == nil {
			err = fmt.Errorf("%w: %s is %q", permit.ErrMalformed, field, hash[field])
		}
		return n
	}
	duration := func(field string, least int64) time.Duration { return ms(number(field, least)) }
	switch hash["type"] {
	case "0":
		r.Type = permit.Overall
	case "1":
		r.Type = permit.PerClient
	default:
		return permit.Rate{}, fmt.Errorf("%w: type is %q", permit.ErrMalformed, hash["type"])
	}
	r.Permits = number("rate", 1)
	r.Interval = duration("interval", 1)
	if hash["keepAliveTime"] != "" {
		r.KeepAlive = duration("keepAliveTime", 0)
	}
	if hash["minGap"] != "" {
		r.MinGap = duration("minGap", 0)
	}
	if err != nil {
		return permit.Rate{}, err
	}
	return r, nil
}

// whole returns the whole number that s is to Lua, up to 2^53.
func whole(s string) (int64, bool) {
	s = strings.Trim(s, " \t\n\v\f\r")
	f, err := strconv.ParseFloat(s, 64)
	if n, herr := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(s), "0x"), 16, 64); err != nil && herr == nil && len(s) > 2 && s[0] == '0' {
		f, err = float64(n), nil
	}
	if err != nil || strings.Contains(s, "_") || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}
