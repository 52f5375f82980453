// SPDX-License-Identifier: Apache-2.0

package benchmarks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

// costs measures the bytes that a limiter's keys take in Redis: after one call, and with all permits of a limit used up, 100 a minute
// and 10,000 a minute.
func costs(b meter, at place, c contestant) {
	for _, permits := range []int{100, short(10_000, 1000)} {
		at.empty(b)
		s := c.open(b, at, job{Limiters: 1, Permits: int64(permits), Interval: time.Minute, Flows: true})
		drive(b.Context(), b, 1, 1, 1, s.ask, untimed{})
		b.ReportMetric(at.memory(b, s.keys), "fresh-B")
		// Nine callers, which divide a power of ten minus one.
		require.Zero(b, drive(b.Context(), b, 9, permits-1, 1, s.ask, untimed{}).Rejected)
		b.ReportMetric(at.memory(b, s.keys), fmt.Sprintf("full%d-B", permits))
		s.close()
	}
}

// An expired is how many members of a large window have expired at once. It measures the longest call, by the CPU time of Redis,
// while one caller acquires until all are reclaimed: on a core of its own every other client waits that long.
type expired int

func (e expired) run(b meter, at place, c contestant) {
	ctx, j := b.Context(), job{Limiters: 1, Permits: int64(e), Interval: time.Hour}
	s := c.open(b, at, j)
	defer s.close()
	oldest := time.Now().Add(-3 * j.Interval).UnixMilli()
	seed(b, s.rdb, j, func(i int) int64 { return oldest + int64(i)/100 })
	longest, told := time.Duration(0), int64(0)
	for left := int64(1); left > 0; left = redistest.Must(s.rdb.ZCard(ctx, permitsKey(j.name(0))).Result())(b) - told {
		before := at.cpu(b)
		require.True(b, redistest.Must(s.ask(ctx, 0))(b))
		longest = max(longest, at.cpu(b)-before)
		told++
	}
	b.ReportMetric(float64(longest), "longest-cpu-ns/call")
	b.ReportMetric(float64(told), "calls/op")
	require.NoError(redistest.Final(b), s.held(ctx, []int64{told}))
}

// A flightClock is a hook that measures how long one flight, a pipeline of script calls of many limiters, keeps Redis from its
// other clients. It puts an INFO cpu before the calls and another one behind them. Redis executes them one after another, so that
// on a core of its own the CPU time between the two is also the time that others wait; by the clock it would be more whenever
// the machine gives the core to somebody else. Redis reads 16 KiB at once: a pipeline that is longer, as those of AutoPipeline
// are, lets others in between, whose time is in it.
type flightClock struct {
	redistest.Passing
	timer
	on   atomic.Bool // while it is measured
	seen atomic.Int64

	mu    sync.Mutex
	took  []time.Duration
	calls int
	err   error // of the replies that do not tell the time
}

// Of so many flights the time of the first is taken, so that the others are as they are in use.
const flightsTimed = 4

func (f *flightClock) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !strings.HasPrefix(cmds[0].Name(), "eval") || !f.on.Load() || f.seen.Add(1)%flightsTimed != 1 {
			return next(ctx, cmds)
		}
		began, ended := redis.NewStringCmd(ctx, "info", "cpu"), redis.NewStringCmd(ctx, "info", "cpu")
		err := next(ctx, append(append([]redis.Cmder{began}, cmds...), ended))
		from, err1 := cpuTime(began.Val())
		to, err2 := cpuTime(ended.Val())
		f.mu.Lock()
		defer f.mu.Unlock()
		f.took, f.calls, f.err = append(f.took, to-from), f.calls+len(cmds), errors.Join(f.err, err1, err2)
		return err
	}
}

func (f *flightClock) ResetTimer() { f.on.Store(true); f.timer.ResetTimer() }
func (f *flightClock) StopTimer()  { f.on.Store(false); f.timer.StopTimer() }

// report reports the flights, of which there must be some.
func (f *flightClock) report(b meter, some bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	require.NoError(b, f.err)
	require.True(b, len(f.took) > 0 || !some, "no flight was measured")
	b.ReportMetric(float64(f.calls)/float64(max(1, len(f.took))), "calls/flight")
	b.ReportMetric(float64(quantile(f.took, 99)), "p99-ns/flight")
	b.ReportMetric(float64(quantile(f.took, 100)), "longest-ns/flight")
}
