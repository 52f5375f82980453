// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A sample is what one cell measured, by metric.
type sample map[metric]float64

func (s sample) String() string {
	var words []string
	for _, m := range slices.Sorted(maps.Keys(s)) {
		words = append(words, fmt.Sprintf("%s=%s", m, number(s[m])))
	}
	return strings.Join(words, " ")
}

// results holds every sample: by row, by contestant, in order of repeats.
type results map[string]map[string][]sample

func (r results) add(row, contestant string, s sample) {
	if r[row] == nil {
		r[row] = map[string][]sample{}
	}
	r[row][contestant] = append(r[row][contestant], s)
}

// series returns one metric over the repeats. It is empty if the metric was not measured.
func (r results) series(row, contestant string, m metric) series {
	var values series
	for _, s := range r[row][contestant] {
		v, ok := s[m]
		if !ok {
			return nil
		}
		values = append(values, v)
	}
	return values
}

// ratio returns the ratio of two contestants in each repeat, so that both have run in the same minutes.
func (r results) ratio(row, contestant, by string, m metric) series {
	return r.series(row, contestant, m).over(r.series(row, by, m))
}

// A series is one figure for each repeat.
type series []float64

func (s series) over(other series) series {
	if len(s) != len(other) {
		return nil
	}
	var quotients series
	for i, v := range s {
		if other[i] == 0 {
			return nil
		}
		quotients = append(quotients, v/other[i])
	}
	return quotients
}

func (s series) min() float64 { return slices.Min(s) }
func (s series) max() float64 { return slices.Max(s) }

// median returns the median.
func (s series) median() float64 {
	sorted := slices.Sorted(slices.Values(s))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// A metric is something that is measured. Its value is its key in logs.
type metric string

const (
	rateMetric      metric = "rate"
	p50Metric       metric = "p50"
	p99Metric       metric = "p99"
	failedMetric    metric = "failed"
	cpuMetric       metric = "cpu"
	serverMetric    metric = "server"
	callsMetric     metric = "calls"
	bytesMetric     metric = "bytes"
	allocsMetric    metric = "allocs"
	askMetric       metric = "ask"
	keysMetric      metric = "keys"
	lag50Metric     metric = "lag50"
	lag99Metric     metric = "lag99"
	overtakenMetric metric = "overtaken"
	longestMetric   metric = "longest"
	call999Metric   metric = "call999"

	callRateMetric    metric = "callrate"
	flightMetric      metric = "flight"
	flight99Metric    metric = "flight99"
	flightCallsMetric metric = "flightcalls"
	roundTripMetric   metric = "roundtrip"
	roundAllocsMetric metric = "roundallocs"

	grantMetric     metric = "grant"
	rejectionMetric metric = "rejection"
	commandsMetric  metric = "commands"
	freshMetric     metric = "fresh"
	full100Metric   metric = "full100"
	full10000Metric metric = "full10000"
)

// nodeMetrics are the server times of the nodes of a cluster. Their sum is askMetric.
var nodeMetrics = [3]metric{"node1", "node2", "node3"}

// metricTitles holds the headings of columns.
var metricTitles = map[metric]string{
	rateMetric:      "requests/s",
	p50Metric:       "p50, ms",
	p99Metric:       "p99, ms",
	failedMetric:    "errors, %",
	cpuMetric:       "CPU of Redis, µs a request",
	serverMetric:    "server time, µs a script call",
	callsMetric:     "script calls a request",
	bytesMetric:     "bytes a permit",
	allocsMetric:    "allocations a request",
	askMetric:       "server time, µs a request",
	keysMetric:      "bytes of its keys",
	lag50Metric:     "lag p50, ms",
	lag99Metric:     "lag p99, ms",
	overtakenMetric: "overtaken pairs, %",
	longestMetric:   "longest call, ms",
	call999Metric:   "p99.9 of the calls, ms",

	callRateMetric:    "script calls a second",
	flightMetric:      "longest flight, ms of Redis",
	flight99Metric:    "p99 of the flights, ms of Redis",
	flightCallsMetric: "calls a flight",
	roundTripMetric:   "µs a request",
	roundAllocsMetric: "allocations a request",
	nodeMetrics[0]:    "of that, node 1",
	nodeMetrics[1]:    "of that, node 2",
	nodeMetrics[2]:    "of that, node 3",

	grantMetric:     "Redis time of a granted call, µs",
	rejectionMetric: "Redis time of a rejected call, µs",
	commandsMetric:  "Redis commands of a granted call",
	freshMetric:     "bytes after one call",
	full100Metric:   "bytes, 100 in a minute",
	full10000Metric: "bytes, 10,000 in a minute",
}

// better reports whether a is the better value of m.
func (m metric) better(a, b float64) bool {
	if m == rateMetric || m == flightCallsMetric {
		return a > b
	}
	return a < b
}

// number formats v with three significant digits.
func number(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.2f M", v/1e6)
	case v >= 1000:
		return grouped(int(v + 0.5))
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v == 0:
		return "0"
	case v >= 0.01:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.2g", v)
	}
}

// grouped formats n with commas.
func grouped(n int) string {
	text := fmt.Sprint(n)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}
