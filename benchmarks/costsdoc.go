package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// The table of costs goes between these lines of docs/algorithms.md.
const (
	costsBegin = "<!-- costs: begin -->"
	costsEnd   = "<!-- costs: end -->"
)

// costsDocument looks for the document with a place for the table before anything is measured. It answers
// "" where none is wanted: the row is not measured, or none is named and -only leaves limiters out or no
// document lies beside -out.
func (b *bench) costsDocument() (path string, err error) {
	if b.options.profiling() || !slices.ContainsFunc(b.rows, func(r row) bool { return r.about().key == costsKey }) {
		return "", nil
	}
	path = b.options.costs
	if path == "" && len(b.options.only) > 0 {
		return "", nil
	}
	if path == "" {
		path = filepath.Join(filepath.Dir(b.options.out), "algorithms.md")
	}
	err = writeCosts(path, nil)
	if errors.Is(err, fs.ErrNotExist) && b.options.costs == "" {
		b.say("there is no %s: the table of costs is only in %s", path, b.options.out)
		return "", nil
	}
	return path, err
}

// writeCosts puts the table into the document, which may have changed since it was looked for; without a
// table it only looks.
func writeCosts(path string, table *string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, after, err := cutCosts(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if table == nil {
		return nil
	}
	return os.WriteFile(path, []byte(before+"\n"+*table+"\n"+after), 0o644) //nolint:gosec // a document
}

// cutCosts cuts a text around what is between the markers, each of which it must have once, on a line of
// its own.
func cutCosts(text string) (before, after string, err error) {
	lines := strings.SplitAfter(text, "\n")
	at := map[string]int{}
	for i, line := range lines {
		marker := strings.TrimSuffix(line, "\n")
		if marker != costsBegin && marker != costsEnd {
			continue
		}
		if _, twice := at[marker]; twice {
			return "", "", fmt.Errorf("the line %s is there twice", marker)
		}
		at[marker] = i
	}
	begin, hasBegin := at[costsBegin]
	end, hasEnd := at[costsEnd]
	if !hasBegin || !hasEnd || end < begin {
		return "", "", fmt.Errorf("there is no line %s with a line %s below it", costsBegin, costsEnd)
	}
	return strings.Join(lines[:begin+1], ""), strings.Join(lines[end:], ""), nil
}

// costs is the table of costs as docs/algorithms.md shows it: without ratios, and one number where all
// repeats agree.
func (r report) costs() string {
	var w strings.Builder
	if r.options.quick {
		fmt.Fprintf(&w, "**From a run with -quick, which measures nothing.**\n\n")
	}
	at := slices.IndexFunc(r.rows, func(row rowAbout) bool { return row.key == costsKey })
	if at < 0 {
		return ""
	}
	fmt.Fprintf(&w, "Written by `make bench`: %s, Redis %s, %s; min / **median** / max of %d repeats, or the only number. %s\n\n",
		machine(), r.redis, runtime.Version(), r.options.repeats, r.rows[at].text)
	head, rule := "| |", "|---|"
	for _, m := range costMetrics {
		head += " " + metricTitles[m] + " |"
		rule += "---|"
	}
	fmt.Fprintf(&w, "%s\n%s\n", head, rule)
	for _, limits := range []bool{true, false} { // first those that the document is about
		for _, a := range r.contestants {
			if a.limit != limits || len(r.results[costsKey][a.key]) == 0 {
				continue
			}
			fmt.Fprintf(&w, "| %s |", a.inCosts())
			for _, m := range costMetrics {
				fmt.Fprintf(&w, " %s |", agreed(r.results.series(costsKey, a.key, m)))
			}
			fmt.Fprintln(&w)
		}
	}
	return w.String()
}

// agreed is a spread, or the only number.
func agreed(s series) string {
	switch {
	case len(s) == 0 || number(s.min()) != number(s.max()):
		return spread(s)
	case s[0] == math.Trunc(s[0]):
		return grouped(int(s[0]))
	}
	return number(s[0])
}

// inCosts is what a contestant is called where all is about package limit.
func (a about) inCosts() string {
	if a.key == oursKey {
		return "RRateLimiter, by this library"
	}
	return strings.TrimPrefix(a.title, "limit.")
}
