// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// limitLosses writes where the limiters of package limit lose, with one line for each figure and other contestant.
func (r report) limitLosses(w *strings.Builder) {
	lines := 0
	for _, row := range r.rows {
		if row.by() == baselineKey {
			continue
		}
		for _, m := range row.metrics {
			if m == commandsMetric {
				continue // the time of the commands is a figure, too
			}
			for _, other := range r.contestants {
				words := r.losers(row, m, other)
				if len(words) == 0 {
					continue
				}
				if lines++; lines == 1 {
					fmt.Fprintf(w, "And of the limiters of limit/, whose figure by theirs is the median over the repeats, worst first; in brackets where "+
						"the repeats do not agree:\n\n| row | figure | to | theirs | who loses |\n|---|---|---|---|---|\n")
				}
				fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", row.title, metricTitles[m], other.inCosts(),
					number(r.results.series(row.key, other.key, m).median()), strings.Join(words, ", "))
			}
		}
	}
	if lines > 0 {
		fmt.Fprintln(w)
	}
}

// losers returns the limiters of package limit that lose to another contestant in a figure, worst first, each with
// its figure divided by the other's.
func (r report) losers(row rowAbout, m metric, other about) []string {
	type loser struct {
		name  string
		ratio series
	}
	var losers []loser
	theirs := r.results.series(row.key, other.key, m)
	for _, a := range r.contestants {
		ours := r.results.series(row.key, a.key, m)
		ratio := ours.over(theirs)
		if !a.limit || a.again || other.limit || len(ratio) == 0 || !m.better(theirs.median(), ours.median()) ||
			number(theirs.median()) == number(ours.median()) {
			continue
		}
		losers = append(losers, loser{a.inCosts(), ratio})
	}
	slices.SortStableFunc(losers, func(a, b loser) int {
		worse := cmp.Compare(b.ratio.median(), a.ratio.median())
		if m.better(2, 1) {
			worse = -worse
		}
		return worse
	})
	var words []string
	for _, l := range losers {
		text := number(l.ratio.median())
		if l.ratio.min() < 1 && l.ratio.max() > 1 {
			text = "(" + text + ")"
		}
		words = append(words, l.name+" "+text)
	}
	return words
}
