// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// A goal is a bound on a figure of this library, or on its ratio to that of another contestant in the same repeat.
type goal struct {
	of     string // the contestant of this library
	text   string
	row    string
	metric metric
	by     string // the other contestant; "" for the figure itself
	bound  float64
}

// allGoals returns the goals of the library.
func allGoals() []goal {
	java := "java-" + newestRedisson
	one, many := callersKey(1), callersKey(512)
	rr, gcra := oursKey, limitGCRAKey
	return []goal{
		{rr, "512 callers, against Redisson's script", many, rateMetric, baselineKey, 25},
		{rr, "512 callers, against redis_rate", many, rateMetric, redisRateKey, 20},
		{rr, "512 callers, against Redisson in Java", many, rateMetric, java, 60},
		{rr, "512 callers, p99 against Redisson's script", many, p99Metric, baselineKey, 0.1},
		{rr, "512 callers, p99 against redis_rate", many, p99Metric, redisRateKey, 0.1},
		{rr, "64 callers, against Redisson's script", callersKey(64), rateMetric, baselineKey, 5},
		{rr, "1 caller, against Redisson's script", one, rateMetric, baselineKey, 0.95},
		{rr, "64 callers on 10,000 limiters, against the least script of the format", "limiters", rateMetric, leastKey, 0.9},
		{rr, "512 callers on 10,000 limiters, against the least script of the format", "limiters-512", rateMetric, leastKey, 0.9},
		{rr, "64 callers on 10,000 limiters, p99 against redis_rate", "limiters", p99Metric, redisRateKey, 0.8},
		{rr, "512 callers on 10,000 limiters, p99 against redis_rate", "limiters-512", p99Metric, redisRateKey, 0.8},
		{rr, "1 caller on 10,000 limiters, against redis_rate", "limiters-1", rateMetric, redisRateKey, 0.95},
		{rr, "256 callers on a link of 2 ms, against redis_rate", "link", rateMetric, redisRateKey, 8},
		{rr, "server time a call, one request", one, serverMetric, baselineKey, 1.3},
		{rr, "server time a call, 512 callers in batches", many, serverMetric, baselineKey, 2},
		{rr, "longest call after 100,000 expired, ms", "expired-100000", longestMetric, "", 2},
		{rr, "longest call after 1,000,000 expired, ms", "expired-1000000", longestMetric, "", 2},
		{rr, "bytes a permit in the window, 512 callers", many, bytesMetric, "", 6},
		{rr, "script calls a grant, 500 waiters", "waiters", callsMetric, "", 1.2},
		{rr, "wake-up lag of a waiter, p99, ms", "waiters", lag99Metric, "", 5},
		{rr, "allocations an acquire, 512 callers", many, allocsMetric, "", 2},
		{rr, "longest pipeline, ms of Redis", "flights", flightMetric, "", 2},
		{rr, "httplimit: µs of a request that none of 100 rules is for", "transport", roundTripMetric, "", 3},
		{rr, "httplimit: allocations of a request that none of 100 rules is for", "transport", roundAllocsMetric, "", 20},
		{gcra, "limit.GCRA, 64 callers on 10,000 keys, against redis_rate", "limit-keys", rateMetric, redisRateKey, 2},
		{gcra, "limit.GCRA, 512 callers on 10,000 keys, against redis_rate", "limit-keys-512", rateMetric, redisRateKey, 3},
		{gcra, "limit.GCRA, 64 callers on 10,000 keys, against redis_rate's script on rueidis", "limit-keys", rateMetric, rueidisKey, 0.9},
		{gcra, "limit.GCRA, 512 callers on 10,000 keys, against redis_rate's script on rueidis", "limit-keys-512", rateMetric, rueidisKey, 0.9},
		{gcra, "limit.GCRA, 64 callers on one key, against redis_rate", "limit-64", rateMetric, redisRateKey, 5},
		{gcra, "limit.GCRA, 512 callers on one key, against redis_rate", "limit-512", rateMetric, redisRateKey, 15},
		{gcra, "limit.GCRA, 64 callers rejected, against redis_rate", "limit-rejected", rateMetric, redisRateKey, 50},
		{gcra, "limit.GCRA, 64 callers rejected, script calls a second", "limit-rejected", callRateMetric, "", 2},
		{gcra, "limit.GCRA, 256 callers on a link of 2 ms, against redis_rate", "link", rateMetric, redisRateKey, 8},
		{gcra, "limit.GCRA, 1 caller, against redis_rate", "limit-1", rateMetric, redisRateKey, 0.95},
		{gcra, "limit.GCRA, longest pipeline, ms of Redis", "flights", flightMetric, "", 2},
		{gcra, "limit.GCRA, Redis time of a granted call, against redis_rate", costsKey, grantMetric, redisRateKey, 1.15},
		{gcra, "limit.GCRA, bytes of a key after one call, against redis_rate", costsKey, freshMetric, redisRateKey, 1.5},
		{gcra, "limit.GCRA, bytes of a key, 10,000 in a minute, against redis_rate", costsKey, full10000Metric, redisRateKey, 1.5},
		{gcra, "limit.GCRA, script calls a grant, 200 waiters", "limit-waiters", callsMetric, "", 1.2},
	}
}

// reached reports whether the median reaches the goal.
func (g goal) reached(s series) bool {
	if g.metric == rateMetric {
		return s.median() >= g.bound
	}
	return s.median() <= g.bound
}

func (g goal) figures(r results) series {
	if g.by == "" {
		return r.series(g.row, g.of, g.metric)
	}
	return r.ratio(g.row, g.of, g.by, g.metric)
}

func (r report) goals(w *strings.Builder) {
	fmt.Fprintf(w, "## Goals\n\nThe median decides.\n\n| goal | wanted | measured | reached |\n|---|---|---|---|\n")
	for _, g := range allGoals() {
		sign, unit := "≤", ""
		if g.metric == rateMetric {
			sign = "≥"
		}
		if g.by != "" {
			unit = " ×"
		}
		answer := "not measured"
		s := g.figures(r.results)
		if len(s) > 0 {
			answer = "**no**"
			if g.reached(s) {
				answer = "yes"
			}
		}
		fmt.Fprintf(w, "| %s | %s %s%s | %s | %s |\n", g.text, sign, number(g.bound), unit, spread(s), answer)
	}
	fmt.Fprintln(w)
}
