// SPDX-License-Identifier: Apache-2.0

package benchmarks

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit"
)

// A kind is an algorithm of package limit.
type kind struct {
	name     string
	of       func(j job) limit.Algorithm
	ahead    bool // see probed
	reserves bool // requests are reservations, since it releases one permit at a time
}

func kinds() []kind {
	window := func(j job) ratelimiter.Rate { return ratelimiter.Rate{Permits: j.Permits, Interval: j.Interval} }
	flow := func(j job) ratelimiter.Rate {
		permits, interval := j.refill()
		return ratelimiter.Rate{Permits: permits, Interval: interval}
	}
	perSecond := func(j job) float64 { return float64(flow(j).Permits) / flow(j).Interval.Seconds() }
	return []kind{
		{name: "fixed-window", of: func(j job) limit.Algorithm { return limit.FixedWindow{Rate: window(j)} }},
		{name: "calendar-quota", of: func(j job) limit.Algorithm {
			return limit.CalendarQuota{Permits: j.Permits, Per: limit.Month, Location: time.UTC}
		}},
		{name: "sliding-log", of: func(j job) limit.Algorithm { return limit.SlidingLog{Rate: window(j)} }},
		{name: "sliding-counter", of: func(j job) limit.Algorithm { return limit.SlidingCounter{Rate: window(j)} }},
		{name: "interval-bucket", of: func(j job) limit.Algorithm { return limit.IntervalBucket{Rate: window(j), Burst: j.Permits} }},
		{name: "token-bucket", of: func(j job) limit.Algorithm { return limit.TokenBucket{Rate: flow(j), Burst: j.Permits} }},
		{name: "debt-bucket", ahead: true, of: func(j job) limit.Algorithm {
			return limit.DebtBucket{Rate: flow(j), Burst: j.Permits, Debt: 1}
		}},
		{name: "gcra", of: func(j job) limit.Algorithm { return limit.GCRA{Rate: flow(j), Burst: j.Permits} }},
		{name: "leaky-queue", reserves: true, of: func(j job) limit.Algorithm { return limit.LeakyQueue{Rate: flow(j), Capacity: j.Permits} }},
		{name: "smooth-bursty", ahead: true, of: func(j job) limit.Algorithm {
			return limit.SmoothBursty{PermitsPerSecond: perSecond(j), MaxBurst: time.Duration(j.Permits/flow(j).Permits) * flow(j).Interval}
		}},
		{name: "smooth-warming-up", reserves: true, of: func(j job) limit.Algorithm {
			return limit.SmoothWarmingUp{PermitsPerSecond: perSecond(j), Warmup: flow(j).Interval}
		}},
	}
}

func limits() (list []contestant) {
	for _, k := range kinds() {
		list = append(list, contestant{name: "limit-" + k.name, open: k.open()})
		if k.name == "gcra" {
			list = append(list, contestant{name: "limit-gcra-endable", endable: true, open: k.open()},
				contestant{name: "limit-gcra-without-replay", open: k.open(limit.WithoutReplay())})
		}
	}
	return list
}

func (k kind) open(opts ...limit.Option) func(require.TestingT, place, job) *session {
	return func(t require.TestingT, at place, j job) *session {
		keys := k.limiters(t, at, j, opts...)
		at.hook = nil
		// Another process sees what Redis holds, and nothing that this one knows.
		others := k.limiters(t, at, j, append(opts, limit.WithoutCachedRejections())...)
		return &session{keys: keys.of[0].Keys(), close: func() { _, _ = keys.close(), others.close() },
			ask:  func(ctx context.Context, i int) (bool, error) { return keys.take(ctx, i, 1) },
			held: probed(j, k.ahead, others.take)}
	}
}

// A limitSet is the limiters of a job on a client of their own.
type limitSet struct {
	of    []*limit.Shared
	take  func(ctx context.Context, i int, n int64) (bool, error)
	close func() error
}

func (k kind) limiters(t require.TestingT, at place, j job, opts ...limit.Option) *limitSet {
	rdb := at.client()
	all := redistest.Must(limit.NewShared(rdb, prefix, k.of(j), opts...))(t)
	set := &limitSet{of: make([]*limit.Shared, j.Limiters), close: rdb.Close}
	for i := range set.of {
		set.of[i] = all.For(strconv.Itoa(i))
	}
	// The longest wait for which the last permit is reserved and one behind it is rejected, half the time of a permit apart.
	permits, interval := j.refill()
	turn := interval / time.Duration(permits)
	patience := time.Duration(j.Permits)*turn - turn/2
	if j.Flows {
		patience *= 2 // a cold SmoothWarmingUp takes up to twice the time
	}
	set.take = func(ctx context.Context, i int, n int64) (granted bool, err error) {
		var r ratelimiter.Result
		if k.reserves {
			r, err = set.of[i].Reserve(ctx, n, patience)
		} else {
			r, err = set.of[i].Allow(ctx, n)
		}
		return r.Granted, err
	}
	return set
}

// openRedisRate opens github.com/go-redis/redis_rate, a GCRA.
func openRedisRate(_ require.TestingT, at place, j job) *session {
	rdb := at.client()
	return redisRate(rdb, redis_rate.NewLimiter(rdb), j, func() {})
}

// openAutoPipelined opens redis_rate on the AutoPipeline of go-redis, which is experimental.
func openAutoPipelined(t require.TestingT, at place, j job) *session {
	rdb := at.client()
	pipeline := redistest.Must(rdb.AutoPipeline())(t)
	return redisRate(rdb, redis_rate.NewLimiter(pipeline), j, func() { _ = pipeline.Close() })
}

// openRueidis opens redis_rate's script on rueidis, which pipelines all commands over one connection.
func openRueidis(t require.TestingT, at place, j job) *session {
	client := redistest.Must(rueidis.NewClient(rueidis.ClientOption{InitAddress: at.addrs, DisableCache: true}))(t)
	rdb := at.client()
	redistest.Must(redis_rate.NewLimiter(rdb).Allow(context.Background(), "loads the script", redis_rate.PerHour(1)))(t)
	return redisRate(rdb, redis_rate.NewLimiter(onRueidis{rdb, client}), j, client.Close)
}

func redisRate(rdb redis.UniversalClient, limiter *redis_rate.Limiter, j job, end func()) *session {
	permits, interval := j.refill()
	limit := redis_rate.Limit{Rate: int(permits), Period: interval, Burst: int(j.Permits)}
	names := make([]string, j.Limiters)
	for i := range names {
		names[i] = j.name(i)
	}
	take := func(ctx context.Context, i int, n int64) (bool, error) {
		answer, err := limiter.AllowN(ctx, names[i], limit, int(n))
		return err == nil && answer.Allowed > 0, err
	}
	return &session{keys: []string{"rate:" + names[0]}, held: probed(j, false, take), close: func() { end(); _ = rdb.Close() },
		ask: func(ctx context.Context, i int) (bool, error) { return take(ctx, i, 1) }}
}

// onRueidis sends scripts that Redis knows through rueidis.
type onRueidis struct {
	redis.UniversalClient
	client rueidis.Client
}

func (r onRueidis) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	words := make([]string, len(args))
	for i, arg := range args {
		words[i] = fmt.Sprint(arg)
	}
	v, err := r.client.Do(ctx, r.client.B().Evalsha().Sha1(sha).Numkeys(int64(len(keys))).Key(keys...).Arg(words...).Build()).ToAny()
	return redis.NewCmdResult(v, err)
}
