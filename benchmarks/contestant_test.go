// SPDX-License-Identifier: Apache-2.0

package benchmarks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A contestant is a way of acquiring permits that is measured.
type contestant struct {
	name string
	// endable reports whether its contexts can end, as those of requests to a server can. Then each caller must be able to
	// return while its call is in flight.
	endable bool
	java    bool
	// open creates the limiters of a job at a place.
	open func(t require.TestingT, at place, j job) *session
}

func contestants() []contestant {
	list := []contestant{
		{name: "ours", open: openOurs}, {name: "ours-endable", endable: true, open: openOurs},
		{name: "script", open: openScript}, {name: "least", open: openLeast}, {name: "least-go-redis", open: openLeastByGoRedis},
		{name: "redis_rate", open: openRedisRate}, {name: "redis_rate-autopipeline", open: openAutoPipelined}, {name: "redis_rate-rueidis", open: openRueidis},
		{name: "java-" + newestRedisson, java: true, open: openJava(newestRedisson)}, {name: "java-" + olderRedisson, java: true, open: openJava(olderRedisson)},
	}
	return append(list, limits()...)
}

func contestantNamed(name string) contestant {
	all := contestants()
	return all[slices.IndexFunc(all, func(c contestant) bool { return c.name == name })]
}

// A job is the limiters that a cell needs. All of their permits are available.
type job struct {
	Limiters int
	Permits  int64 // of each
	Interval time.Duration
	Expires  bool // permits come back while it is measured
	// Flows reports whether limiters without a window return permits at the rate of the job. Otherwise they return one a minute,
	// so that those that they lack are those that they granted.
	Flows bool
}

func (j job) name(i int) string { return fmt.Sprint(prefix, i) }

const prefix = "bench."

// refill returns the rate at which permits come back to a limiter without a window.
func (j job) refill() (permits int64, interval time.Duration) {
	if j.Flows {
		return j.Permits, j.Interval
	}
	return 1, time.Minute
}

// A session is a contestant that works on a job.
type session struct {
	rdb redis.UniversalClient // of a limiter in Redisson's keys, for what is not measured
	// ask requests a permit of limiter i.
	ask func(ctx context.Context, i int) (bool, error)
	// load makes n requests from so many callers, if they are not made by ask.
	load func(t require.TestingT, callers, n int, clock timer) tally
	// wait makes callers wait for a permit of the first limiter, each after the one before, and returns when each had it.
	wait func(t require.TestingT, callers int, apart time.Duration) []time.Time
	// held returns an error unless the permits that Redis holds are those that callers were told, limiter by limiter.
	held  func(ctx context.Context, told []int64) error
	keys  []string // of the first limiter
	close func()
}

// probed returns a held that asks the limiters themselves: what callers were not told of must be there, and no more. With ahead
// a limiter grants one permit that it does not have, for which the next request waits.
func probed(j job, ahead bool, take func(ctx context.Context, i int, n int64) (bool, error)) func(context.Context, []int64) error {
	one := func(ctx context.Context, i int, told int64) error {
		left := j.Permits - told
		steps := []int64{left - 1, min(left, 1), 0, 1} // the last is rejected, the others are granted
		if ahead && left >= 0 {
			steps[2] = 1
		}
		for at, n := range steps {
			if n <= 0 {
				continue
			}
			if ok, err := take(ctx, i, n); err != nil || ok == (at == len(steps)-1) {
				return cmp.Or(err, fmt.Errorf("callers were told of %d of %d permits of limiter %d, and Redis holds another number", told, j.Permits, i))
			}
		}
		return nil
	}
	if j.Expires { // what Redis holds now says little; a single caller has made a call for each grant
		return func(context.Context, []int64) error { return nil }
	}
	return func(ctx context.Context, told []int64) error {
		errs := make([]error, 64)
		var running sync.WaitGroup
		for w := range errs {
			running.Go(func() {
				for i := w; i < len(told) && errs[w] == nil; i += len(errs) {
					if told[i] > 0 {
						errs[w] = one(ctx, i, told[i])
					}
				}
			})
		}
		running.Wait()
		return errors.Join(errs...)
	}
}
