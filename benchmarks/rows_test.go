// SPDX-License-Identifier: Apache-2.0

package benchmarks

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"
	"time"
)

// A row is something to measure, for the contestants whose names match takes.
type row struct {
	name  string
	takes *regexp.Regexp
	at    func(testing.TB) place
	whole bool // what run does does not depend on n
	run   func(b meter, at place, c contestant, n int)
}

// times returns how often to run a row for so many requests.
func (r row) times(n int) int {
	if r.whole {
		return n
	}
	return 1
}

// rows returns all rows. README.md explains them.
func rows() (list []row) {
	many := short(10_000, 500)
	add := func(name, takes string, run func(meter, place, contestant, int)) *row {
		list = append(list, row{name: name, takes: regexp.MustCompile("^(" + takes + ")$"), run: run, at: func(testing.TB) place { return local }})
		return &list[len(list)-1]
	}
	whole := func(name, takes string, run func(meter, place, contestant)) {
		add(name, takes, func(b meter, at place, c contestant, _ int) { run(b, at, c); b.ReportMetric(0, "ns/op") }).whole = true
	}
	const redisson = "ours|script|java-.*"
	for _, callers := range []int{1, 8, 64, 512, short(4096, 1024)} {
		add(fmt.Sprintf("callers-%d", callers), redisson+"|ours-endable|redis_rate", load{callers: callers}.run)
	}
	add("expiring", redisson+"|ours-endable|least", load{callers: 64, interval: 250 * time.Millisecond}.run)
	for _, callers := range []int{1, 8, 64, 512} {
		add(fmt.Sprintf("limiters-%d", callers), redisson+"|ours-endable|redis_rate.*|least.*", load{callers: callers, limiters: many}.run)
	}
	add("limiters-expiring", redisson+"|redis_rate.*|least.*", load{callers: 64, limiters: many, interval: time.Second}.run)
	add("link", "ours|limit-gcra|redis_rate.*|least", load{callers: 256, limiters: many}.run).at = farAway
	add("processes", "ours|script|redis_rate", load{callers: 16, processes: 4}.run)
	for _, processes := range []int{1, 2, 8} {
		add(fmt.Sprintf("processes-%d", processes), "ours", load{callers: 16, processes: processes}.run)
	}
	add("limiters-processes", "ours|script|limit-gcra|redis_rate.*|least", load{callers: 64, limiters: many, processes: short(8, 3)}.run)
	add("cluster", "ours|limit-gcra|redis_rate", load{callers: 64, limiters: many}.run).at = cluster
	add("flights", "ours|limit-gcra|redis_rate-autopipeline", load{callers: 512, limiters: many, flights: true}.run)
	add("rejections", redisson+"|ours-endable|redis_rate", load{callers: 64, reject: true}.run)
	whole("waiters", redisson, waiters{short(500, 40), fullWindow}.run)
	for _, limiters := range []int{1, 100, short(10_000, 200), short(1_000_000, 300)} {
		whole(fmt.Sprintf("grows-%d", limiters), "ours", crowd{limiters, short(10_000, 100)}.run)
	}
	for _, members := range []int{short(100_000, 2000), short(1_000_000, 3000)} {
		whole(fmt.Sprintf("expired-%d", members), "ours|script|least", expired(members).run)
	}
	for _, kind := range slices.Sorted(maps.Keys(otherRules)) {
		add("transport-"+kind, "ours", transport{short(100, 5), otherRules[kind]}.run)
	}
	const limits = "limit-.*|redis_rate"
	add("limit-1", limits+"|ours", load{callers: 1}.run)
	add("limit-64", limits, load{callers: 64}.run)
	add("limit-512", "limit-gcra|redis_rate", load{callers: 512}.run)
	for _, callers := range []int{8, 64, 512} {
		add(fmt.Sprintf("limit-keys-%d", callers), limits+".*", load{callers: callers, limiters: many}.run)
	}
	add("limit-rejected", limits+"|ours", load{callers: 64, reject: true}.run)
	whole("limit-waiters", "limit-(gcra|token-bucket)", waiters{short(200, 20), fullKey}.run)
	whole("limit-costs", limits+"|ours", costs)
	return list
}
