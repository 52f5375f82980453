// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"
)

// A row is something to measure, for every contestant that can do it.
type row interface {
	about() rowAbout
	takes(c contestant) bool
	measure(ctx context.Context, b *bench, c contestant, name string) (sample, error)
}

// rowAbout describes a row and its table.
type rowAbout struct {
	key, title, text string
	metrics          []metric
	baseline         string // the contestant by which the others' figures are divided; "" for baselineKey
}

func (r rowAbout) by() string {
	if r.baseline == "" {
		return baselineKey
	}
	return r.baseline
}

// callerCounts returns the numbers of callers on one limiter.
func callerCounts(o options) []int {
	if o.quick {
		return []int{1, 64, 512}
	}
	return []int{1, 8, 64, 512, 4096}
}

func callersKey(callers int) string { return fmt.Sprintf("callers-%d", callers) }

func callersTitle(callers int) string {
	if callers == 1 {
		return "1 caller on one limiter, all granted"
	}
	return fmt.Sprintf("%d callers on one limiter, all granted", callers)
}

func allRows(o options) []row {
	var rows []row
	d := o.duration
	for _, callers := range callerCounts(o) {
		rows = append(rows, loadRow{callers: callers, limiters: 1, duration: d, key: callersKey(callers),
			title: callersTitle(callers)})
	}
	limiters, processes, many, expired, waiters := 10_000, 4, 8, []int{100_000, 1_000_000}, 500
	if o.quick {
		limiters, many, expired, waiters = 500, 3, []int{10_000}, 100
	}
	rows = append(rows,
		loadRow{callers: 64, limiters: 1, duration: d, interval: 250 * time.Millisecond, key: "expiring",
			title: "64 callers, permits expire all the time",
			text:  "An interval of 250 ms, so that every call also takes back what has expired."},
		loadRow{callers: 64, limiters: limiters, duration: d, key: "limiters",
			title: fmt.Sprintf("64 callers on %s limiters", grouped(limiters)), text: "Each request takes a limiter at random."},
		loadRow{callers: 1, limiters: limiters, duration: d, key: "limiters-1",
			title: fmt.Sprintf("1 caller on %s limiters", grouped(limiters))},
		loadRow{callers: 8, limiters: limiters, duration: d, key: "limiters-8",
			title: fmt.Sprintf("8 callers on %s limiters", grouped(limiters)),
			text:  "So few that their calls do not share round trips."},
		loadRow{callers: 512, limiters: limiters, duration: d, key: "limiters-512",
			title: fmt.Sprintf("512 callers on %s limiters", grouped(limiters))},
		linkRow{loadRow{callers: 256, limiters: limiters, duration: d, key: "link",
			title:    fmt.Sprintf("256 callers on %s limiters, on a link of 2 ms", grouped(limiters)),
			text:     "A proxy delays what callers and Redis send by a millisecond each. limit.GCRA has as many keys.",
			baseline: redisRateKey}, time.Millisecond},
		loadRow{callers: 64, limiters: limiters, duration: d, processes: many, key: "limiters-processes", baseline: redisRateKey,
			title: fmt.Sprintf("%d processes on %s limiters, 64 callers each", many, grouped(limiters)),
			text:  "Each request takes a limiter at random; limit.GCRA has as many keys."},
		clusterRow{loadRow{callers: 64, limiters: limiters, duration: d, key: "cluster", baseline: redisRateKey,
			title: fmt.Sprintf("64 callers on %s limiters in a cluster of %d", grouped(limiters), len(nodeMetrics)),
			text: "Three masters on this machine, which share its cores with each other and with the callers: server time counts, and its share on each node. " +
				"limit.GCRA has as many keys."}},
		flightsRow{loadRow{callers: 512, limiters: limiters, duration: d, key: "flights", baseline: redisRateKey,
			title: fmt.Sprintf("How long a pipeline keeps Redis from others, 512 callers on %s limiters", grouped(limiters)),
			text: fmt.Sprintf("One pipeline in %d begins and ends with INFO cpu: the CPU time of Redis between the two counts. "+
				"A pipeline of more than 16 KiB lets others in between, whose time is in it. "+
				"limit.GCRA has as many keys.", flightsTimed)}},
		loadRow{callers: 64, limiters: 1, duration: d, reject: true, key: "rejections", title: "64 callers, all rejected"},
		loadRow{callers: 16, limiters: 1, duration: d, processes: processes, key: "processes",
			title: fmt.Sprintf("%d processes share one limiter, 16 callers each", processes)},
		waitersRow{waiters},
	)
	for _, n := range expired {
		rows = append(rows, expiredRow{n})
	}
	rows = append(rows, transportRow{rules: 100, duration: 2 * d})
	return append(rows, limitRows(o, limiters)...)
}

// limitRows returns the rows about package limit. They are shorter than the others, since they have many contestants.
func limitRows(o options, keys int) []row {
	r := loadRow{limits: true, callers: 64, limiters: 1, duration: o.duration * 3 / 10}
	one, many, most, each, none := r, r, r, r, r
	one.callers = 1
	one.key, one.title, one.text = "limit-1", "limit/: 1 caller on one limiter, all granted", fmt.Sprintf(limitText, r.duration)
	many.key, many.title = "limit-64", "limit/: 64 callers on one limiter, all granted"
	most.callers = 512
	most.key, most.title = "limit-512", "limit/: 512 callers on one limiter, all granted"
	each.limiters = keys
	each.key, each.title = "limit-keys", fmt.Sprintf("limit/: 64 callers, a limiter for each of %s keys", grouped(keys))
	each.text = "Each request is of a key at random, as where every user has a limiter."
	few, crowd := each, each
	few.callers, few.text = 8, ""
	few.key, few.title = "limit-keys-8", fmt.Sprintf("limit/: 8 callers, a limiter for each of %s keys", grouped(keys))
	crowd.callers = 512
	crowd.key, crowd.title = "limit-keys-512", fmt.Sprintf("limit/: 512 callers, a limiter for each of %s keys", grouped(keys))
	none.reject, none.duration = true, 2*o.duration
	none.text = fmt.Sprintf("For %v each, since a process asks about a key that it knows to have no permits left once a second. "+
		"throttled rejects by what it reads, without a script.", none.duration)
	none.key, none.title = "limit-rejected", "limit/: 64 callers on one limiter, all rejected"
	waiters := 200
	if o.quick {
		waiters = 20
	}
	return []row{one, many, most, each, few, crowd, none, limitWaitersRow{waiters}, newCostRow(o)}
}

// limitText is the text of all rows about package limit.
const limitText = "The limiters of package limit beside those that do the same, each request one call; × is the ratio to redis_rate's. " +
	"%v each. Server time is all that Redis did for a request, throttled's reads included. LeakyQueue and SmoothWarmingUp, " +
	"which let go one permit at a time, are asked for a turn (Reserve) that nobody waits for, the others for a permit (Allow). " +
	"SlidingLog has an interval of 250 ms, so that its set is as long as a quarter of a second's grants and calls drop what has expired."

var (
	loadMetrics     = []metric{rateMetric, p50Metric, p99Metric, failedMetric}
	limitMetrics    = []metric{rateMetric, p50Metric, p99Metric, askMetric, keysMetric, failedMetric}
	resourceMetrics = []metric{cpuMetric, serverMetric, callsMetric, bytesMetric, allocsMetric}
)
