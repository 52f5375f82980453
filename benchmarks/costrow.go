// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"
)

// A costRow measures what a limiter costs Redis: the time of the calls of one caller, and bytes.
type costRow struct {
	calls int64 // of each time
	many  int64 // permits of the larger of the two limits
}

func newCostRow(o options) costRow {
	if o.quick {
		return costRow{calls: 200, many: 1000}
	}
	return costRow{calls: 2000, many: 10_000}
}

const costsKey = "limit-costs"

// before is how many calls are made before time is taken.
const before int64 = 129

// dropSoon is an interval so short that nearly every call to a SlidingLog removes expired grants.
const dropSoon = 20 * time.Millisecond

func (r costRow) about() rowAbout {
	return rowAbout{
		key: costsKey, title: "limit/: what a call and a key cost Redis",
		text: fmt.Sprintf("Time, from INFO commandstats: %s calls of one caller, back to back, on one key, all granted, then as many "+
			"of a key that has no permit left, all rejected. Commands are those of the scripts included, without the script call itself. "+
			"Bytes, from MEMORY USAGE of all Redis keys of one key: after its first call, and with all permits of a limit "+
			"used up, 100 a minute and %s a minute. SlidingLog and RRateLimiter remember the window; what the others keep is as large for any limit. "+
			"Beside it all of limit/ keep the id of the last grant of each process for ten seconds, so that a call whose reply is lost spends once, unless WithoutReplay. "+
			"A process asks about a key that has no permit left once a second. "+
			"throttled computes in the caller, which asks twice. While time is taken SlidingLog's interval is %v, so that calls drop what has expired.",
			grouped(int(r.calls)), grouped(int(r.many)), dropSoon),
		metrics: costMetrics, baseline: redisRateKey,
	}
}

var costMetrics = []metric{grantMetric, rejectionMetric, commandsMetric, freshMetric, full100Metric, full10000Metric}

func (r costRow) takes(c contestant) bool {
	a := c.about()
	return (a.limit || a.beside || a.key == oursKey) && !a.again
}

func (r costRow) measure(ctx context.Context, b *bench, c contestant, name string) (sample, error) {
	out := sample{}
	if err := r.time(ctx, b, c, name, out); err != nil {
		return nil, err
	}
	var err error
	if out[freshMetric], out[full100Metric], err = r.weigh(ctx, b, c, name+"hundred.", 100); err != nil {
		return nil, err
	}
	_, out[full10000Metric], err = r.weigh(ctx, b, c, name+"many.", r.many)
	return out, err
}

// time measures calls that are all granted and calls that are all rejected, and checks both against what Redis
// holds.
func (r costRow) time(ctx context.Context, b *bench, c contestant, name string, out sample) error {
	for _, part := range []struct {
		m   metric
		row loadRow
	}{
		{grantMetric, loadRow{callers: 1, limiters: 1}},
		{rejectionMetric, loadRow{callers: 1, limiters: 1, reject: true}},
	} {
		j := part.row.job(name + string(part.m) + ".")
		if !part.row.reject {
			j.logs = dropSoon
		}
		s, err := c.open(ctx, j)
		if err != nil {
			return err
		}
		// Not measured: the first call may send the script itself.
		before := before
		if part.row.reject {
			before = c.about().held(j)
		}
		if err := exhaust(ctx, s, j, before); err != nil {
			return err
		}
		if _, err := resetUsage(ctx, b.rdb); err != nil {
			return err
		}
		j.calls = r.calls
		t, err := s.load(ctx, j)
		if err != nil {
			return err
		}
		u, err := readUsage(ctx, b.rdb)
		if err != nil {
			return err
		}
		if t.Granted+t.Rejected != r.calls {
			return fmt.Errorf("of %d calls %d were granted, %d rejected, %d failed: %s", r.calls, t.Granted, t.Rejected, t.Failed, t.Error)
		}
		if !part.row.reject {
			out[commandsMetric] = float64(u.ran()) / float64(r.calls)
			t.Granted += before
		}
		if err := part.row.check(ctx, c, s, t); err != nil {
			return err
		}
		out[part.m] = u.asking(c.about()) * 1e6 / float64(r.calls)
	}
	return nil
}

// weigh returns the bytes of the Redis keys of a key after one call, and after many permits a minute are used up, many
// being a power of ten.
func (r costRow) weigh(ctx context.Context, b *bench, c contestant, name string, permits int64) (fresh, full float64, err error) {
	j := job{prefix: name, limiters: 1, permits: permits, interval: time.Minute, flows: true, callers: 1, calls: 1}
	s, err := c.open(ctx, j)
	if err != nil {
		return 0, 0, err
	}
	take := func(j job) (float64, error) {
		t, err := s.load(ctx, j)
		if err != nil {
			return 0, err
		}
		if t.Granted != j.calls*int64(j.callers) {
			return 0, fmt.Errorf("of %d permits a minute %d more were granted, %d rejected and %d failed: %s",
				permits, t.Granted, t.Rejected, t.Failed, t.Error)
		}
		bytes, err := memory(ctx, b.rdb, s.keys())
		return float64(bytes), err
	}
	if fresh, err = take(j); err != nil {
		return 0, 0, err
	}
	if !c.about().fallible {
		j.callers = 9 // divides a power of ten minus one
	}
	j.calls = (permits - 1) / int64(j.callers)
	full, err = take(j)
	return fresh, full, err
}
