// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestRows runs every row at a small size, for every contestant that takes part in it.
func TestRows(t *testing.T) {
	const d = 30 * time.Millisecond
	b := testBench(t)
	for _, r := range []row{
		loadRow{key: callersKey(1), callers: 1, limiters: 1, duration: d},
		loadRow{key: callersKey(512), callers: 64, limiters: 1, duration: d},
		loadRow{key: "expiring", callers: 8, limiters: 1, duration: 2 * d, interval: d},
		loadRow{key: "limiters", callers: 8, limiters: 50, duration: d},
		loadRow{key: "rejections", callers: 8, limiters: 1, duration: d, reject: true},
		loadRow{key: "processes", callers: 2, limiters: 1, duration: d, processes: 2},
		loadRow{key: "limiters-processes", callers: 2, limiters: 50, duration: d, processes: 2, baseline: redisRateKey},
		clusterRow{loadRow{key: "cluster", callers: 8, limiters: 50, duration: d, baseline: redisRateKey}},
		flightsRow{loadRow{key: "flights", callers: 64, limiters: 50, duration: 2 * d, baseline: redisRateKey}},
		transportRow{rules: 5, duration: d},
		limitWaitersRow{20},
		waitersRow{40},
		expiredRow{2000},
		loadRow{key: "limit-1", callers: 1, limiters: 1, duration: d, limits: true},
		loadRow{key: "limit-64", callers: 8, limiters: 1, duration: d, limits: true},
		loadRow{key: "limit-keys", callers: 8, limiters: 50, duration: d, limits: true},
		loadRow{key: "limit-rejected", callers: 8, limiters: 1, duration: d, limits: true, reject: true},
		costRow{calls: 50, many: 100},
	} {
		for _, c := range b.contestants {
			if !r.takes(c) {
				continue
			}
			s, err := b.cell(t.Context(), r, c)
			require.NoError(t, err, "%s, %s", r.about().key, c.about().key)
			for m, v := range s {
				require.GreaterOrEqual(t, v, 0.0, "%s, %s: %s", r.about().key, c.about().key, m)
				require.Contains(t, metricTitles, m)
			}
			b.results.add(r.about().key, c.about().key, s)
		}
		about := r.about()
		measured := map[string]string{baselineKey: oursKey, redisRateKey: limitGCRAKey}[about.by()]
		if about.key == "transport" {
			measured = oursKey
		}
		require.NotEmpty(t, b.results[about.key][measured], about.key)
	}
	for _, m := range []metric{rateMetric, p99Metric, cpuMetric, serverMetric, bytesMetric, allocsMetric} {
		require.Positive(t, b.results.series(callersKey(512), oursKey, m)[0], m)
	}
	require.Positive(t, b.results.series("expired-2000", oursKey, longestMetric)[0])
	for _, key := range []string{oursKey, limitGCRAKey, redisRateKey} {
		nodes := 0.0
		for _, m := range nodeMetrics {
			figure := b.results.series("cluster", key, m)[0]
			require.Positive(t, figure, "%s: %s", key, m)
			nodes += figure
		}
		require.InDelta(t, b.results.series("cluster", key, askMetric)[0], nodes, 1e-6, key)
		require.NotEmpty(t, b.results["limiters-processes"][key], key)
	}
	for _, key := range []string{oursKey, limitGCRAKey, autoPipelineKey} {
		require.Greater(t, b.results.series("flights", key, flightCallsMetric)[0], 1.0, key)
		require.Positive(t, b.results.series("flights", key, flight99Metric)[0], key)
	}
	require.Positive(t, b.results.series("transport", oursKey, roundTripMetric)[0])
	require.Positive(t, b.results.series("limit-waiters", "limit-token-bucket", callsMetric)[0])
	require.Positive(t, b.results.series("limit-rejected", redisRateKey, callRateMetric)[0])
	require.Empty(t, b.results.series("limit-rejected", "throttled", callRateMetric), "it rejects without a script")
	for _, key := range append(limitKeys(), redisRateKey, "throttled") {
		for _, m := range []metric{rateMetric, p99Metric, askMetric, keysMetric} {
			require.Positive(t, b.results.series("limit-64", key, m)[0], "%s: %s", key, m)
		}
		for _, m := range costMetrics {
			if m == rejectionMetric && slices.Contains(limitKeys(), key) {
				// What is known to be rejected makes no call.
				require.GreaterOrEqual(t, b.results.series(costsKey, key, m)[0], 0.0, "%s: %s", key, m)
				continue
			}
			require.Positive(t, b.results.series(costsKey, key, m)[0], "%s: %s", key, m)
		}
		require.NotEmpty(t, b.results["limit-rejected"][key], key)
		require.NotEmpty(t, b.results["limit-keys"][key], key)
	}
	for key, commands := range map[string]float64{limitGCRAKey: 3, "limit-smooth-bursty": 3, redisRateKey: 3, "throttled": 4} {
		require.Equal(t, commands, b.results.series(costsKey, key, commandsMetric)[0], "commands of a call of %s", key)
	}
	require.NotEmpty(t, b.results[costsKey][oursKey], "RRateLimiter is in the table of costs")
}

// A liar returns a result without sending anything.
type liar struct {
	contestant
	granted bool
}

func (l liar) open(ctx context.Context, j job) (session, error) {
	s, err := l.contestant.open(ctx, j)
	if err != nil {
		return nil, err
	}
	honest := s.(*goSession)
	return &goSession{
		count: honest.count, in: honest.in,
		ask: func(ctx context.Context, pick uint64) (int64, error) {
			if _, err := honest.ask(ctx, pick); err != nil {
				return 0, err
			}
			return permit(l.granted), nil
		},
	}, nil
}

func (l liar) on(rdb redis.UniversalClient) (contestant, error) {
	c, err := l.contestant.(movable).on(rdb)
	return liar{c, l.granted}, err
}

func (l liar) wait(_ context.Context, _ string, callers int, _ time.Duration) ([]time.Time, error) {
	returned := make([]time.Time, callers)
	for i := range returned {
		returned[i] = time.Now().Add(time.Hour)
	}
	return returned, nil
}

// TestWorkNotDoneFails checks that a figure without the work behind it ends the run.
func TestWorkNotDoneFails(t *testing.T) {
	b := testBench(t)
	const d = 10 * time.Millisecond
	honest, limited := b.with(t, oursKey), b.with(t, limitGCRAKey)
	for name, c := range map[string]struct {
		row row
		liar
		want string
	}{
		"granted but rejected":          {loadRow{callers: 2, limiters: 1, duration: d, reject: true}, liar{honest, true}, "of an empty limiter"},
		"rejected but granted":          {loadRow{callers: 2, limiters: 1, duration: d}, liar{honest, false}, "rejected"},
		"limit, granted but rejected":   {loadRow{callers: 2, limiters: 1, duration: d, reject: true, limits: true}, liar{limited, true}, "of an empty limiter"},
		"limit, rejected but granted":   {loadRow{callers: 2, limiters: 1, duration: d, limits: true}, liar{limited, false}, "rejected"},
		"costs, granted but rejected":   {costRow{calls: 5, many: 10}, liar{limited, true}, "of an empty limiter"},
		"costs, rejected but granted":   {costRow{calls: 5, many: 10}, liar{limited, false}, "of 129 permits 0 were granted"},
		"cluster, rejected but granted": {clusterRow{loadRow{callers: 2, limiters: 64, duration: 10 * d}}, liar{honest, false}, "rejected"},
		"flights, rejected but granted": {flightsRow{loadRow{callers: 2, limiters: 5, duration: d}}, liar{limited, false}, "rejected"},
		"returned unserved":             {waitersRow{20}, liar{honest, true}, "0 new permits"},
	} {
		_, err := b.cell(t.Context(), c.row, c.liar)
		require.ErrorContains(t, err, c.want, name)
	}

	name := "short"
	j := job{prefix: name, limiters: 1, permits: 10, interval: time.Hour, callers: 1, calls: 1}
	s := redistest.Must(honest.open(t.Context(), j))(t)
	redistest.Must(s.load(t.Context(), j))(t)
	require.NoError(t, b.rdb.IncrBy(t.Context(), valueKey(name), 1).Err())
	_, err := s.spent(t.Context())
	require.ErrorContains(t, err, "do not make up its rate")
}

// TestJudge checks the table of what a load row accepts.
func TestJudge(t *testing.T) {
	all, none, expiring := loadRow{}, loadRow{reject: true}, loadRow{interval: time.Second}
	for _, c := range []struct {
		row               loadRow
		granted, rejected int64
		spent             int64
		ok                bool
	}{
		{all, 5, 0, 5, true}, {all, 5, 0, 4, false}, {all, 5, 0, 6, false}, {all, 5, 1, 5, false}, {all, 0, 0, 0, false},
		{none, 0, 9, 1, true}, {none, 0, 0, 1, false}, {none, 1, 9, 1, false}, {none, 0, 9, 2, false},
		{expiring, 9, 0, 4, true}, {expiring, 9, 0, 0, false}, {expiring, 9, 0, 10, false}, {expiring, 9, 1, 4, false},
	} {
		err := c.row.judge(tally{Granted: c.granted, Rejected: c.rejected}, c.spent, 1)
		require.Equal(t, c.ok, err == nil, "%+v: %v", c, err)
	}
}

// TestWaitSample checks that lag is counted from the k-th free permit to the k-th return, and that the count includes
// arrivals that whole groups overtake.
func TestWaitSample(t *testing.T) {
	first := time.Unix(1000, 0)
	free := func(i int) time.Time { return first.Add(time.Duration(i/waitGroup) * waitEvery) }
	fifo := make([]time.Time, 2*waitGroup)
	for i := range fifo {
		fifo[i] = free(i).Add(2 * time.Millisecond)
	}
	s := redistest.Must(waitSample(fifo, waitGroup, free))(t)
	require.InDelta(t, 2, s[lag50Metric], 1e-6)
	require.InDelta(t, 2, s[lag99Metric], 1e-6)
	require.Zero(t, s[overtakenMetric])

	turned := append(append([]time.Time{}, fifo[waitGroup:]...), fifo[:waitGroup]...)
	s = redistest.Must(waitSample(turned, waitGroup, free))(t)
	require.InDelta(t, 2, s[lag99Metric], 1e-6)
	require.InDelta(t, 100*400.0/780, s[overtakenMetric], 1e-6, "20 × 20 of 40 × 39 / 2 pairs")

	fifo[0] = first.Add(-time.Second)
	_, err := waitSample(fifo, waitGroup, free)
	require.ErrorContains(t, err, "before its permit was free")
}
