// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
)

// A loss is a figure in which another contestant is better than ours, by the median.
type loss struct {
	row    rowAbout
	metric metric
	other  about
	ours   series
	theirs series
	ratio  series // ours by theirs, repeat by repeat
}

// findLosses returns the losses among all figures that both contestants have.
func (r report) findLosses() []loss {
	var losses []loss
	for _, row := range r.rows {
		metrics := row.metrics
		if row.key == callersKey(1) || row.key == callersKey(512) {
			metrics = slices.Concat(metrics, resourceMetrics)
		}
		for _, m := range metrics {
			if m == commandsMetric {
				continue // the time of the commands is a figure, too
			}
			ours := r.results.series(row.key, oursKey, m)
			for _, a := range r.contestants {
				theirs := r.results.series(row.key, a.key, m)
				if a.key == oursKey || a.again || a.limit || len(ours) == 0 || len(theirs) == 0 || !m.better(theirs.median(), ours.median()) ||
					number(theirs.median()) == number(ours.median()) { // equal in all digits that are shown
					continue
				}
				losses = append(losses, loss{row, m, a, ours, theirs, ours.over(theirs)})
			}
		}
	}
	return losses
}

func (r report) losses(w *strings.Builder) {
	fmt.Fprintf(w, "## Where we lose\n\n")
	fmt.Fprintf(w, "Every figure of this run in which somebody's median is better than ours. Where the ratio's range holds 1, "+
		"the repeats do not agree on it.\n\n")
	var limiters, ceilings []loss
	for _, l := range r.findLosses() {
		if l.other.ceiling {
			ceilings = append(ceilings, l)
		} else {
			limiters = append(limiters, l)
		}
	}
	lossTable(w, limiters)
	if len(ceilings) > 0 {
		fmt.Fprintf(w, "And to what limits nothing that processes share, the ceilings:\n\n")
		lossTable(w, ceilings)
	}
	r.limitLosses(w)
}

func lossTable(w *strings.Builder, losses []loss) {
	if len(losses) == 0 {
		fmt.Fprintf(w, "Nowhere in this run.\n\n")
		return
	}
	fmt.Fprintf(w, "| row | figure | to | ours | theirs | ours ÷ theirs |\n|---|---|---|---|---|---|\n")
	for _, l := range losses {
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s |\n", l.row.title, metricTitles[l.metric], l.other.titleWithVersion(),
			number(l.ours.median()), number(l.theirs.median()), spread(l.ratio))
	}
	fmt.Fprintln(w)
}
