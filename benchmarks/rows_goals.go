package main

import (
	"fmt"
	"strings"
)

// A goal is a bound on a figure of this library, or on its ratio to that of another contestant in the same repeat.
type goal struct {
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
	return []goal{
		{"512 callers, against Redisson's script", many, rateMetric, baselineKey, 25},
		{"512 callers, against redis_rate", many, rateMetric, redisRateKey, 20},
		{"512 callers, against Redisson in Java", many, rateMetric, java, 60},
		{"512 callers, p99 against Redisson's script", many, p99Metric, baselineKey, 0.1},
		{"512 callers, p99 against redis_rate", many, p99Metric, redisRateKey, 0.1},
		{"64 callers, against Redisson's script", callersKey(64), rateMetric, baselineKey, 5},
		{"1 caller, against Redisson's script", one, rateMetric, baselineKey, 0.95},
		{"64 callers on 10,000 limiters, against redis_rate", "limiters", rateMetric, redisRateKey, 1.8},
		{"512 callers on 10,000 limiters, against redis_rate", "limiters-512", rateMetric, redisRateKey, 2.5},
		{"512 callers on 10,000 limiters, p99 against redis_rate", "limiters-512", p99Metric, redisRateKey, 0.8},
		{"1 caller on 10,000 limiters, against redis_rate", "limiters-1", rateMetric, redisRateKey, 0.95},
		{"256 callers on a link of 2 ms, against redis_rate", "link", rateMetric, redisRateKey, 8},
		{"server time a call, one request", one, serverMetric, baselineKey, 1.3},
		{"server time a call, 512 callers in batches", many, serverMetric, baselineKey, 2},
		{"longest call after 100,000 expired, ms", "expired-100000", longestMetric, "", 2},
		{"longest call after 1,000,000 expired, ms", "expired-1000000", longestMetric, "", 2},
		{"bytes a permit in the window, 512 callers", many, bytesMetric, "", 6},
		{"script calls a grant, 500 waiters", "waiters", callsMetric, "", 1.2},
		{"wake-up lag of a waiter, p99, ms", "waiters", lag99Metric, "", 5},
		{"allocations an acquire, 512 callers", many, allocsMetric, "", 2},
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
		return r.series(g.row, oursKey, g.metric)
	}
	return r.ratio(g.row, oursKey, g.by, g.metric)
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
