package redisson

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// parseRate reads the hash. keepAliveTime is absent in what Redisson before 3.38.0 wrote.
func parseRate(hash map[string]string) (permit.Rate, error) {
	if hash["rate"] == "" || hash["interval"] == "" || hash["type"] == "" {
		return permit.Rate{}, permit.ErrNotInitialized
	}
	var r permit.Rate
	var err error
	number := func(field string) int64 {
		n, perr := strconv.ParseInt(hash[field], 10, 64)
		if (perr != nil || n < 0) && err == nil {
			err = fmt.Errorf("%w: %s is %q", permit.ErrMalformed, field, hash[field])
		}
		return n
	}
	duration := func(field string) time.Duration {
		n := number(field)
		if n > math.MaxInt64/int64(time.Millisecond) {
			// Java's Long.MAX_VALUE ms and the like: as long as a Duration can be.
			return math.MaxInt64 / time.Millisecond * time.Millisecond
		}
		return time.Duration(n) * time.Millisecond
	}
	r.Permits = number("rate")
	r.Interval = duration("interval")
	if hash["keepAliveTime"] != "" {
		r.KeepAlive = duration("keepAliveTime")
	}
	if hash["minGap"] != "" {
		r.MinGap = duration("minGap")
	}
	r.Type = permit.Type(number("type"))
	if err == nil && r.Type != permit.Overall && r.Type != permit.PerClient {
		err = fmt.Errorf("%w: type is %q", permit.ErrMalformed, hash["type"])
	}
	if err == nil && (r.Permits < 1 || r.Interval < time.Millisecond) {
		err = fmt.Errorf("%w: rate is %q, interval is %q", permit.ErrMalformed, hash["rate"], hash["interval"])
	}
	if err != nil {
		return permit.Rate{}, err
	}
	return r, nil
}
