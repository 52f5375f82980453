// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

func TestCutCosts(t *testing.T) {
	before, after, err := cutCosts("a\n" + costsBegin + "\nold\ntable\n" + costsEnd + "\nb")
	require.NoError(t, err)
	require.Equal(t, []string{"a\n" + costsBegin + "\n", costsEnd + "\nb"}, []string{before, after})
	for name, text := range map[string]string{
		"none":         "a\nb\n",
		"no end":       costsBegin + "\n",
		"no begin":     costsEnd + "\n",
		"turned":       costsEnd + "\n" + costsBegin + "\n",
		"twice begun":  costsBegin + "\n" + costsBegin + "\n" + costsEnd + "\n",
		"twice ended":  costsBegin + "\n" + costsEnd + "\n" + costsEnd + "\n",
		"within lines": "see " + costsBegin + "\nand " + costsEnd + "\n",
	} {
		_, _, err := cutCosts(text)
		require.ErrorContains(t, err, "<!-- costs: ", name)
	}
}

// TestCostsDocument checks that a document that has no place for the table is reported before anything is measured,
// and that the text around the place is kept, even if it is changed meanwhile.
func TestCostsDocument(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "algorithms.md")
	b := &bench{options: options{out: filepath.Join(dir, "b.md")}}
	require.Empty(t, redistest.Must(b.costsDocument())(t), "the row is not measured")

	b.rows = []row{newCostRow(b.options)}
	require.Empty(t, redistest.Must(b.costsDocument())(t), "there is no document")

	b.options.costs = path
	_, err := b.costsDocument()
	require.ErrorIs(t, err, os.ErrNotExist, "it was asked for")

	b.options.costs = ""
	require.NoError(t, os.WriteFile(path, []byte("text\n"), 0o600))
	_, err = b.costsDocument()
	require.ErrorContains(t, err, path+": there is no line "+costsBegin)

	text := "text\n" + costsBegin + "\n" + costsEnd + "\nmore\n"
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	require.Equal(t, path, redistest.Must(b.costsDocument())(t))
	require.Equal(t, text, string(redistest.Must(os.ReadFile(path))(t)), "looking changes nothing")
	b.options.only = []string{limitGCRAKey}
	require.Empty(t, redistest.Must(b.costsDocument())(t), "the table of a few limiters is none for the document")

	require.NoError(t, os.WriteFile(path, []byte("new "+text), 0o600))
	for _, table := range []string{"| 1 |\n", "| 2 |\n"} {
		require.NoError(t, writeCosts(path, &table))
		require.Equal(t, "new text\n"+costsBegin+"\n\n"+table+"\n"+costsEnd+"\nmore\n", string(redistest.Must(os.ReadFile(path))(t)))
	}
}

func fakeLimitReport() report {
	cost := newCostRow(options{}).about()
	load := loadRow{limits: true, key: "limit-64", title: "many"}.about()
	r := report{
		results: results{}, options: options{repeats: 2},
		contestants: []about{{key: oursKey, title: "**this library**"}, {key: redisRateKey, title: "redis_rate", beside: true},
			{key: "throttled", title: "throttled", beside: true}, {key: limitGCRAKey, title: "limit.GCRA", limit: true},
			{key: "limit-sliding-log", title: "limit.SlidingLog", limit: true}},
		rows: []rowAbout{load, cost},
	}
	for i := range 2 {
		add := func(contestant string, rate, grant, bytes float64) {
			r.results.add("limit-64", contestant, sample{rateMetric: rate, p99Metric: 1})
			r.results.add(costsKey, contestant, sample{grantMetric: grant, freshMetric: bytes})
		}
		add(redisRateKey, 100, 5, 72)
		add("throttled", 40, 20, 72)
		add(limitGCRAKey, 80, 10+float64(i), 300)
		add("limit-sliding-log", 50+float64(i)*120, 15, 300)
		r.results.add(costsKey, oursKey, sample{grantMetric: 8, freshMetric: 400})
	}
	return r
}

// TestLimitReport checks that the rows of package limit are divided by redis_rate's, and that the report names the
// rows in which its limiters lose.
func TestLimitReport(t *testing.T) {
	text := fakeLimitReport().markdown("x.svg")
	require.Contains(t, text, "the baseline, in the rows of limit/ and those that say so redis_rate, of the same repeat.")
	require.Contains(t, text, "| redis_rate | 100 / **100** / 100 | 1 |")
	require.Contains(t, text, "| limit.GCRA | 80.0 / **80.0** / 80.0 | 0.80 / **0.80** / 0.80 |")
	require.Contains(t, text, "| many | requests/s | redis_rate | 100 | GCRA 0.80 |\n", "170 and 50 are 110 by the median")
	require.NotContains(t, text, "| many | requests/s | throttled |")
	require.NotContains(t, text, "| many | p99, ms | redis_rate |", "alike")
	cost := metricTitles[grantMetric]
	require.Contains(t, text, "| "+cost+" | redis_rate | 5.00 | SlidingLog 3.00, GCRA 2.10 |\n", "worst first, less is better")
	require.Contains(t, text, "| "+cost+" | RRateLimiter, by this library | 8.00 | SlidingLog 1.88, GCRA 1.31 |\n")
	require.NotContains(t, text, "| "+cost+" | throttled |")
	require.NotContains(t, text, "| "+cost+" | GCRA |", "they do not lose to each other")
	require.NotContains(t, text, "| limit.GCRA | 400 |", "nor RRateLimiter to them")
	require.Contains(t, text, "| "+cost+" | redis_rate | 8.00 | 5.00 | 1.60 / **1.60** / 1.60 |", "RRateLimiter is in the first table")

	r := fakeLimitReport()
	r.results["limit-64"][limitGCRAKey][0][rateMetric] = 110
	r.results["limit-64"]["limit-sliding-log"][1][rateMetric] = 60
	require.Contains(t, r.markdown("x.svg"), "| redis_rate | 100 | SlidingLog 0.55, GCRA (0.95) |\n", "the repeats do not agree on GCRA's")
}

func TestCostsTable(t *testing.T) {
	r := fakeLimitReport()
	text := r.costs()
	require.Contains(t, text, "| GCRA | 10.0 / **10.5** / 11.0 | – | – | 300 | – | – |\n", "one number where all agree")
	require.Contains(t, text, "| RRateLimiter, by this library | 8 |")
	require.Contains(t, text, "| redis_rate | 5 |")
	require.Contains(t, text, "2 repeats")
	require.Less(t, strings.Index(text, "| SlidingLog |"), strings.Index(text, "| RRateLimiter"), "first those that the document is about")
	require.NotContains(t, text, "-quick")
	r.options.quick = true
	require.Contains(t, r.costs(), "-quick, which measures nothing")
	r.rows = nil
	require.Empty(t, r.costs())
	require.Equal(t, 1, strings.Count(text, "\n|---|"), "one table")
}
