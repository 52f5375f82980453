// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// An expiredRow measures the first calls after all grants of a large window have expired.
type expiredRow struct {
	members int
}

func (r expiredRow) about() rowAbout {
	return rowAbout{
		key: fmt.Sprintf("expired-%d", r.members), title: grouped(r.members) + " members have expired at once",
		text: "The longest script call, by SLOWLOG, while one caller acquires until all of them are reclaimed: every other client waits that long. " +
			"The log tells real time, in which the machine may stall. So it is done twice, and of each call, which has the same to reclaim " +
			"both times, the shorter counts: what the script does is in both, a stall in one.",
		metrics: []metric{longestMetric, call999Metric, serverMetric},
	}
}

// Java is left out: it sends the same script as the baseline, and sends it again when it exceeds the timeout.
func (r expiredRow) takes(c contestant) bool {
	return c.about().keeps && !c.about().java && !c.about().again
}

func (r expiredRow) measure(ctx context.Context, b *bench, c contestant, name string) (sample, error) {
	var runs [2][]time.Duration
	if _, err := resetUsage(ctx, b.rdb); err != nil {
		return nil, err
	}
	for i := range runs {
		var err error
		if runs[i], err = r.reclaimAll(ctx, b, c, fmt.Sprint(name, "-", i)); err != nil {
			return nil, err
		}
	}
	u, err := readUsage(ctx, b.rdb)
	if err != nil {
		return nil, err
	}
	calls0, calls1 := len(runs[0]), len(runs[1])
	if d := calls0 - calls1; max(d, -d) > 4+calls0/10 { // a few are sent again, or look for lost permits
		return nil, fmt.Errorf("one run took %d calls, the other %d", calls0, calls1)
	}
	longest, calls := time.Duration(0), new(histogram)
	for i := range min(calls0, calls1) {
		d := min(runs[0][i], runs[1][i])
		longest = max(longest, d)
		calls.add(d)
	}
	if longest == 0 {
		return nil, fmt.Errorf("the slow log holds no script call")
	}
	return sample{
		longestMetric: longest.Seconds() * 1e3,
		call999Metric: calls.quantile(0.999).Seconds() * 1e3,
		serverMetric:  u.scriptTime * 1e6 / float64(u.scriptCalls),
	}, nil
}

// reclaimAll returns how long each script call took, in order.
func (r expiredRow) reclaimAll(ctx context.Context, b *bench, c contestant, name string) ([]time.Duration, error) {
	now, err := redisNow(ctx, b.rdb)
	if err != nil {
		return nil, err
	}
	const interval = time.Hour
	oldest := now.Add(-3 * interval).UnixMilli()
	err = seedMembers(ctx, b.rdb, name, r.members, interval, func(i int) int64 { return oldest + int64(i)/100 })
	if err != nil {
		return nil, err
	}
	s, err := c.open(ctx, job{prefix: name, limiters: 1, permits: int64(r.members), interval: interval})
	if err != nil {
		return nil, err
	}
	if err := logSlow(ctx, b, 0); err != nil {
		return nil, err
	}
	calls, err := r.reclaim(ctx, b, s, name)
	if err != nil {
		return nil, err
	}
	return calls, logSlow(ctx, b, -1)
}

// slowLogLength exceeds the entries that come between two reads of the log, which include the commands of scripts.
const slowLogLength = 100_000

// logSlow sets the least time of a command to be logged, in microseconds; a negative one logs nothing. It empties
// the log.
func logSlow(ctx context.Context, b *bench, micros int) error {
	if err := b.rdb.ConfigSet(ctx, "slowlog-log-slower-than", fmt.Sprint(micros)).Err(); err != nil {
		return err
	}
	if err := b.rdb.ConfigSet(ctx, "slowlog-max-len", fmt.Sprint(slowLogLength)).Err(); err != nil {
		return err
	}
	return b.rdb.Do(ctx, "slowlog", "reset").Err()
}

// reclaim acquires permits until no expired member is left.
func (r expiredRow) reclaim(ctx context.Context, b *bench, s session, name string) ([]time.Duration, error) {
	granted := int64(0)
	var calls []time.Duration
	for left := int64(1); left > 0; {
		// Only a few requests at a time, so that the log holds all of their calls.
		t, err := s.load(ctx, job{prefix: name, limiters: 1, callers: 1, calls: 50})
		if err != nil {
			return nil, err
		}
		if t.Failed > 0 || t.Rejected > 0 || t.Granted == 0 {
			return nil, fmt.Errorf("%d requests were granted, %d rejected, %d failed: %s", t.Granted, t.Rejected, t.Failed, t.Error)
		}
		granted += t.Granted
		slow, err := b.rdb.SlowLogGet(ctx, slowLogLength).Result()
		if err != nil {
			return nil, err
		}
		for _, entry := range slices.Backward(slow) { // the newest comes first
			if len(entry.Args) > 0 && (strings.HasPrefix(strings.ToLower(entry.Args[0]), "eval")) {
				calls = append(calls, entry.Duration)
			}
		}
		if err := b.rdb.Do(ctx, "slowlog", "reset").Err(); err != nil {
			return nil, err
		}
		members, err := b.rdb.ZCard(ctx, permitsKey(name)).Result()
		if err != nil {
			return nil, err
		}
		left = members - granted
	}
	spent, err := s.spent(ctx)
	if err == nil && spent != granted {
		err = fmt.Errorf("%d requests were granted, and the limiter holds %d", granted, spent)
	}
	return calls, err
}
