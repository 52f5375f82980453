// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// write writes the tables and the chart of a run.
func (b *bench) write(ctx context.Context) error {
	info, err := info(ctx, b.rdb, "server")
	if err != nil {
		return err
	}
	r := report{results: b.results, options: b.options, redis: info["redis_version"]}
	for _, c := range b.contestants {
		r.contestants = append(r.contestants, c.about())
	}
	for _, row := range b.rows {
		if len(b.results[row.about().key]) > 0 {
			r.rows = append(r.rows, row.about())
		}
	}
	chart := strings.TrimSuffix(b.options.out, filepath.Ext(b.options.out)) + ".svg"
	if err := r.draw(chart); err != nil {
		return err
	}
	b.say("writing %s and %s", b.options.out, chart)
	if err := os.WriteFile(b.options.out, []byte(r.markdown(filepath.Base(chart))), 0o644); err != nil { //nolint:gosec // a document
		return err
	}
	table := r.costs()
	if b.costsInto == "" || table == "" {
		return nil
	}
	b.say("writing the table of costs into %s", b.costsInto)
	return writeCosts(b.costsInto, &table)
}

// A report is the document about a run.
type report struct {
	results     results
	options     options
	contestants []about
	rows        []rowAbout
	redis       string
}

func (r report) markdown(chart string) string {
	var w strings.Builder
	fmt.Fprintf(&w, "# Benchmarks: the whole run\n\n")
	fmt.Fprintf(&w, "Written by `make bench`; do not edit. [benchmarks.md](benchmarks.md) is the summary, [benchmarks](../benchmarks) the program.\n\n")
	if r.options.quick {
		fmt.Fprintf(&w, "**From a run with -quick, which shows that everything works and measures nothing.**\n\n")
	}
	fmt.Fprintf(&w, "- Machine: %s. Client and server share it; ratios count, absolute figures are this machine's.\n", machine())
	fmt.Fprintf(&w, "- %s, go-redis %s, Redis %s without persistence on loopback, %s.\n", runtime.Version(),
		moduleVersion("github.com/redis/go-redis/v9"), r.redis, javaVersion())
	fmt.Fprintf(&w, "- Command, in `benchmarks`: `%s`\n", strings.TrimSpace("./prepare.sh && go run . "+strings.Join(r.options.args, " ")))
	fmt.Fprintf(&w, "- %d repeats of %v. In each repeat and each row every contestant has its turn, so that all meet the same minutes.\n",
		r.options.repeats, r.options.duration)
	fmt.Fprintf(&w, "- Every figure is min / **median** / max over the repeats. × is the ratio to the baseline, %s, of the same repeat.\n",
		r.baselines())
	pool := fmt.Sprintf("%d connections each", r.options.pool)
	if r.options.pool == 0 {
		pool = "the default number of connections of go-redis"
	}
	fmt.Fprintf(&w, "- All Go contestants have %s, Redisson its own defaults (without pings on idle connections) and one thread a caller.\n", pool)
	fmt.Fprintf(&w, "- What callers were granted was compared with what Redis held after each cell; a difference ends the program.\n\n")
	r.contestantTable(&w)
	fmt.Fprintf(&w, "![Requests a second and latency by number of callers](%s)\n\n", chart)
	r.goals(&w)
	r.losses(&w)
	for _, row := range r.rows {
		if row.by() == baselineKey {
			r.table(&w, row)
		}
	}
	for _, row := range r.rows {
		if row.key == callersKey(1) || row.key == callersKey(512) {
			row.title, row.text, row.metrics = "What it costs: "+row.title, resourceText, resourceMetrics
			r.table(&w, row)
		}
	}
	for _, row := range r.rows {
		if row.by() != baselineKey {
			r.table(&w, row)
		}
	}
	return w.String()
}

// baselines returns the titles of the baselines of the rows that were measured.
func (r report) baselines() string {
	var all []string
	for _, row := range r.rows {
		words := r.title(row.by())
		if row.by() != baselineKey {
			words = "in the rows of limit/ and those that say so " + words
		}
		if !slices.Contains(all, words) {
			all = append(all, words)
		}
	}
	return strings.Join(all, "; ")
}

const resourceText = "CPU and server time are from INFO, bytes from MEMORY USAGE of the limiter's keys by permits granted, " +
	"allocations from runtime.MemStats of the calling process."

func (r report) contestantTable(w *strings.Builder) {
	fmt.Fprintf(w, "| contestant | `-only` | version |\n|---|---|---|\n")
	for _, a := range r.contestants {
		fmt.Fprintf(w, "| %s | `%s` | %s |\n", a.title, a.key, a.version)
	}
	fmt.Fprintf(w, "\n%s\n\n", absent)
}

// absent names contestants that a reader might expect.
const absent = "Not here: two Go ports of RRateLimiter, github.com/linkerlin/redi.go and github.com/Tinaliasd/redisson. " +
	"They could not be had as Go modules when this was written, and copies of their code are not kept here. " +
	"redis_rate and throttled have no blocking acquire, and hold an instant instead of a window."

// A column is a metric, with or without its ratio to the baseline.
type column struct {
	metric metric
	ratio  bool
}

// table writes one row of the run: a line for each contestant, a column for each metric that one of them has.
func (r report) table(w *strings.Builder, row rowAbout) {
	var columns []column
	for _, m := range row.metrics {
		some, ratio := false, false
		for _, a := range r.contestants {
			some = some || len(r.results.series(row.key, a.key, m)) > 0
			ratio = ratio || a.key != row.by() && len(r.results.ratio(row.key, a.key, row.by(), m)) > 0
		}
		if some {
			columns = append(columns, column{m, ratio})
		}
	}
	fmt.Fprintf(w, "## %s\n\n", row.title)
	if row.text != "" {
		fmt.Fprintf(w, "%s\n\n", row.text)
	}
	head, rule := "| |", "|---|"
	for _, c := range columns {
		head += " " + metricTitles[c.metric] + " |"
		rule += "---|"
		if c.ratio {
			head += " × |"
			rule += "---|"
		}
	}
	fmt.Fprintf(w, "%s\n%s\n", head, rule)
	for _, a := range r.contestants {
		if len(r.results[row.key][a.key]) == 0 {
			continue
		}
		fmt.Fprintf(w, "| %s |", a.titleWithVersion())
		for _, c := range columns {
			fmt.Fprintf(w, " %s |", spread(r.results.series(row.key, a.key, c.metric)))
			if c.ratio && a.key == row.by() {
				fmt.Fprintf(w, " 1 |")
			} else if c.ratio {
				fmt.Fprintf(w, " %s |", spread(r.results.ratio(row.key, a.key, row.by(), c.metric)))
			}
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
}

// titleWithVersion returns the title, with the version if there are several.
func (a about) titleWithVersion() string {
	if a.java {
		return a.title + ", " + a.version
	}
	return a.title
}

func (r report) title(key string) string {
	for _, a := range r.contestants {
		if a.key == key {
			return a.titleWithVersion()
		}
	}
	return key
}

// spread returns min / median / max.
func spread(s series) string {
	switch len(s) {
	case 0:
		return "–"
	case 1:
		return "**" + number(s[0]) + "**"
	}
	return fmt.Sprintf("%s / **%s** / %s", number(s.min()), number(s.median()), number(s.max()))
}
