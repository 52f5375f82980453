package main

import (
	"context"
	"fmt"
	"time"
)

// A row is one thing to measure of every contestant that can do it.
type row interface {
	about() rowAbout
	takes(c contestant) bool
	measure(ctx context.Context, b *bench, c contestant, name string) (sample, error)
}

// rowAbout names a row and says what its tables show.
type rowAbout struct {
	key, title, text string
	metrics          []metric
}

// callerCounts are the loads on one limiter.
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
	limiters, processes, expired, waiters := 10_000, 4, []int{100_000, 1_000_000}, 500
	if o.quick {
		limiters, expired, waiters = 500, []int{10_000}, 100
	}
	rows = append(rows,
		loadRow{callers: 64, limiters: 1, duration: d, interval: 250 * time.Millisecond, key: "expiring",
			title: "64 callers, permits expire all the time",
			text:  "An interval of 250 ms, so that every call also takes back what has expired."},
		loadRow{callers: 64, limiters: limiters, duration: d, key: "limiters",
			title: fmt.Sprintf("64 callers on %s limiters", grouped(limiters)), text: "Each request takes a limiter at random."},
		loadRow{callers: 64, limiters: 1, duration: d, refuse: true, key: "refusals", title: "64 callers, all refused"},
		loadRow{callers: 16, limiters: 1, duration: d, processes: processes, key: "processes",
			title: fmt.Sprintf("%d processes share one limiter, 16 callers each", processes)},
		waitersRow{waiters},
	)
	for _, n := range expired {
		rows = append(rows, expiredRow{n})
	}
	return rows
}

var (
	loadMetrics     = []metric{rateMetric, p50Metric, p99Metric, failedMetric}
	resourceMetrics = []metric{cpuMetric, serverMetric, callsMetric, bytesMetric, allocsMetric}
)
