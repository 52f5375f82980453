// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

func TestHistogram(t *testing.T) {
	last := -1
	for d := time.Duration(1); d < time.Minute; d += d/3 + 1 {
		n := bucketOf(d)
		require.GreaterOrEqual(t, n, last)
		require.LessOrEqual(t, lowest(n), d)
		require.Greater(t, lowest(n+1), d)
		require.LessOrEqual(t, float64(lowest(n+1)-lowest(n)), math.Max(1, float64(d)/64))
		last = n
	}
	require.Equal(t, buckets-1, bucketOf(time.Hour))
	require.Zero(t, bucketOf(-1))

	h, other := new(histogram), new(histogram)
	require.Zero(t, h.quantile(0.99))
	for i := range 1000 {
		h.add(time.Duration(i) * time.Microsecond)
	}
	other.add(time.Second)
	require.InEpsilon(t, 500*time.Microsecond, h.quantile(0.5), 0.02)
	require.InEpsilon(t, 990*time.Microsecond, h.quantile(0.99), 0.02)
	h.merge(other)
	require.InEpsilon(t, time.Second, h.quantile(0.9999), 0.02)
}

func TestSeries(t *testing.T) {
	require.Equal(t, 2.0, series{3, 1, 2}.median())
	require.Equal(t, 2.5, series{4, 1, 2, 3}.median())
	require.Equal(t, series{2, 5}, series{4, 10}.over(series{2, 2}))
	require.Nil(t, series{4, 10}.over(series{2}))
	require.Nil(t, series{4}.over(series{0}))
	for v, want := range map[float64]string{
		0: "0", 0.00123: "0.0012", 0.123: "0.12", 1.234: "1.23", 12.34: "12.3", 123.4: "123", 1234: "1,234", 123456: "123,456", 1.234e6: "1.23 M",
	} {
		require.Equal(t, want, number(v))
	}
	require.Equal(t, []string{"100", "10,000", "1,000,000"}, []string{grouped(100), grouped(10_000), grouped(1_000_000)})
	require.Equal(t, "1.00 / **2.00** / 3.00", spread(series{2, 3, 1}))
	require.Equal(t, "–", spread(nil))
}

func fakeReport(ours, theirs []float64) report {
	r := report{
		results:     results{},
		options:     options{repeats: len(ours), duration: time.Second},
		contestants: []about{{key: oursKey, title: "ours"}, {key: baselineKey, title: "script"}, {key: "ping", title: "ping", ceiling: true}},
		rows:        []rowAbout{{key: callersKey(512), title: "many", metrics: loadMetrics}},
	}
	for i := range ours {
		r.results.add(callersKey(512), oursKey, sample{rateMetric: ours[i], p99Metric: 1})
		r.results.add(callersKey(512), baselineKey, sample{rateMetric: theirs[i], p99Metric: 20})
		r.results.add(callersKey(512), "ping", sample{rateMetric: 1e7})
	}
	return r
}

// TestReport checks that ratios pair the repeats, that goals are judged by the median, and that losses come from the
// figures.
func TestReport(t *testing.T) {
	text := fakeReport([]float64{3000, 1000, 2000}, []float64{100, 50, 50}).markdown("x.svg")
	require.Contains(t, text, "| ours | 1,000 / **2,000** / 3,000 | 20.0 / **30.0** / 40.0 |")
	require.Contains(t, text, "| script | 50.0 / **50.0** / 100 | 1 |")
	require.Contains(t, text, "| 512 callers, against Redisson's script | ≥ 25.0 × | 20.0 / **30.0** / 40.0 | yes |")
	require.Contains(t, text, "| 512 callers, p99 against Redisson's script | ≤ 0.10 × | 0.05 / **0.05** / 0.05 | yes |")
	require.Contains(t, text, "| 512 callers, against redis_rate | ≥ 20.0 × | – | not measured |")
	require.Contains(t, text, "| many | requests/s | ping | 2,000 | 10.00 M |")
	require.NotContains(t, text, "| many | requests/s | script |")
	require.Contains(t, text, "(x.svg)")
	require.Contains(t, text, "Nowhere in this run.\n\nAnd to what limits nothing", "a ceiling is no competitor")

	text = fakeReport([]float64{40}, []float64{50}).markdown("x.svg")
	require.Contains(t, text, "| ≥ 25.0 × | **0.80** | **no** |")
	require.Contains(t, text, "| many | requests/s | script | 40.0 | 50.0 | **0.80** |")
	require.NotContains(t, text, "| many | p99, ms |")
}

func TestChart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.svg")
	for _, r := range []report{fakeReport([]float64{3000, 1000}, []float64{100, 50}), {results: results{}}} {
		require.NoError(t, r.draw(path))
		text := redistest.Must(os.ReadFile(path))(t)
		require.Contains(t, string(text), "</svg>")
		require.Contains(t, string(text), "callers on one limiter")
	}
}

// TestChartOfOnePoint checks an axis with a single value, such as that of one caller. It has no length, and its ends
// must not be 0, which has no logarithm.
func TestChartOfOnePoint(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.svg")
	for _, callers := range []int{1, 512} {
		r := fakeReport(nil, nil)
		r.rows = []rowAbout{{key: callersKey(callers), title: "one", metrics: loadMetrics}}
		r.results.add(callersKey(callers), oursKey, sample{rateMetric: 0.5, p99Metric: 1})
		require.NoError(t, r.draw(path))
		text := redistest.Must(os.ReadFile(path))(t)
		require.Contains(t, string(text), "</svg>")
		require.NotContains(t, string(text), "NaN")
	}
}

func TestFlags(t *testing.T) {
	o := redistest.Must(parseFlags(strings.Fields("-repeats 2 -seconds 0.5 -rows ^a -only ours -callers 8")))(t)
	require.Equal(t, 500*time.Millisecond, o.duration)
	require.Equal(t, []string{oursKey, baselineKey}, o.only, "no ratio without the baseline")
	require.True(t, o.rows.MatchString("ab"))
	require.False(t, o.profiling())
	for _, bad := range []string{"-repeats 0", "-seconds 0", "-rows (", "stray"} {
		_, err := parseFlags(strings.Fields(bad))
		require.Error(t, err, bad)
	}
}

// TestGoalsNameRows checks that every goal is about a row that a run has: any other goal would never be judged.
func TestGoalsNameRows(t *testing.T) {
	keys := map[string][]metric{}
	for _, r := range allRows(options{}) {
		keys[r.about().key] = append(r.about().metrics, resourceMetrics...)
	}
	for _, g := range allGoals() {
		require.Contains(t, keys[g.row], g.metric, g.text)
	}
}
