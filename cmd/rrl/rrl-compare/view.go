// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/term"
	"github.com/goredisson/ratelimiter/internal/survey"
)

// A compareView shows comparisons.
type compareView interface {
	comparison(comparison)
	file(name string)
	// end shows what comes last and returns the first error of the writer.
	end() error
}

func newCompareView(out io.Writer, asJSON bool) compareView {
	if asJSON {
		return &compareJSON{out: out}
	}
	return &compareTable{out: out, colour: term.Colours(term.Is(out) && os.Getenv("NO_COLOR") == "")}
}

// A compareTable shows a table and a chart for each, at most 79 columns wide.
type compareTable struct {
	out    io.Writer
	colour term.Colours
	ahead  bool // permits could be granted ahead of their time
	err    error
}

func (v *compareTable) println(lines ...string) {
	for _, line := range lines {
		if v.err == nil {
			_, v.err = fmt.Fprintln(v.out, line)
		}
	}
}

func (v *compareTable) comparison(c comparison) {
	v.ahead = v.ahead || c.wait > 0
	about := wrapped(survey.Visible(c.name+": "+c.about), 79)
	about[0] = v.colour.Paint(term.Bold, c.name) + about[0][len(c.name):]
	v.println(about...)
	line := fmt.Sprintf("limit %v, %d permits asked", c.rate, c.asked().admitted)
	if c.wait > 0 {
		line += fmt.Sprintf(", turns up to %v ahead", c.wait)
	}
	v.println(line, "")
	v.println(v.colour.Paint(term.Dim, fmt.Sprintf("%-15s %9s %9s %9s %9s %7s %8s %8s",
		"limiter", "admitted", "rejected", "worst", "of limit", "bound", "waited", "told")))
	for _, o := range c.outcomes {
		row := fmt.Sprintf("%-15s %9d %9d %9d %9s %7d %8s %8s", o.limiter, o.admitted, o.rejected, o.worst,
			o.ofLimit(c.rate.Permits), o.bound, short(o.waited), short(o.told))
		if o.worst > c.rate.Permits {
			row = v.colour.Paint(term.Red, row)
		}
		v.println(row)
	}
	v.println("")
	v.chart(c)
}

func (v *compareTable) file(name string) { v.println("wrote " + survey.Visible(name)) }

// compareLegend explains the columns.
var compareLegend = []string{
	"Counts are permits. worst: the most in any window of the interval; ! is above the limit.",
	"bound: the most that the limiter promises to admit in one. told: the longest time that",
	"a rejected request was told until it would be granted; nobody asks again.",
}

var aheadLegend = []string{
	"LeakyQueue, SmoothBursty and SmoothWarmingUp hand out turns ahead of their time: such a",
	"request counts at its turn, and waited is the longest. The others grant at once or reject.",
}

func (v *compareTable) end() error {
	v.println(compareLegend...)
	if v.ahead {
		v.println(aheadLegend...)
	}
	return v.err
}

// ofLimit returns the worst window as a multiple of the limit, with a mark if it exceeds the limit.
func (o outcome) ofLimit(limit int64) string {
	if o.worst > limit {
		return o.times(limit) + " !"
	}
	return o.times(limit) + "  "
}

func (o outcome) times(limit int64) string {
	return fmt.Sprintf("%.2fx", float64(o.worst)/float64(limit))
}

// short formats d in few letters, 0 as a dash.
func short(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d < time.Millisecond:
		return "<1ms"
	}
	return d.Round(time.Millisecond).String()
}

// wrapped splits text into lines of at most width bytes.
func wrapped(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}

// A compareJSON writes one JSON object a line, each with an event.
type compareJSON struct {
	out io.Writer
	err error
}

type jsonCase struct {
	Event      string `json:"event"` // case
	Case       string `json:"case"`
	About      string `json:"about"`
	Permits    int64  `json:"permits"`
	IntervalMS int64  `json:"interval_ms"`
	WaitUS     int64  `json:"wait_us"` // how far ahead turns could be
	Asked      int64  `json:"asked_permits"`
	BinMS      int64  `json:"bin_ms"`
}

type jsonOutcome struct {
	Event    string  `json:"event"` // limiter
	Case     string  `json:"case"`
	Limiter  string  `json:"limiter"`
	Admitted int64   `json:"admitted_permits"`
	Rejected int64   `json:"rejected_permits"`
	Worst    int64   `json:"worst_window"` // the most in any window of the interval
	Above    bool    `json:"above_limit"`
	Bound    int64   `json:"bound"`
	WaitedUS int64   `json:"longest_wait_us"`
	ToldUS   int64   `json:"longest_told_us"`
	PerBin   []int64 `json:"admitted_per_bin"`
}

type jsonFile struct {
	Event string `json:"event"` // file
	Name  string `json:"name"`
}

func (v *compareJSON) write(o any) {
	if v.err == nil {
		v.err = term.EncodeJSON(v.out, o)
	}
}

func (v *compareJSON) comparison(c comparison) {
	v.write(jsonCase{"case", c.name, c.about, c.rate.Permits, c.rate.Interval.Milliseconds(), c.wait.Microseconds(),
		c.asked().admitted, c.bin.Milliseconds()})
	for _, o := range c.outcomes {
		v.write(jsonOutcome{"limiter", c.name, o.limiter, o.admitted, o.rejected, o.worst, o.worst > c.rate.Permits,
			o.bound, o.waited.Microseconds(), o.told.Microseconds(), c.perBin(o)})
	}
}

func (v *compareJSON) file(name string) { v.write(jsonFile{"file", name}) }
func (v *compareJSON) end() error       { return v.err }
