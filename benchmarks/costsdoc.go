// SPDX-License-Identifier: Apache-2.0

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

// costsDocument finds the document that has a place for the table, before anything is measured. It returns ""
// if there is nothing to write: the row is not measured, or no document is named and -only leaves limiters out
// or there is no document next to -out.
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

// writeCosts writes the table into the document. Without a table it only checks that the document has a place
// for one.
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

// cutCosts returns what is before and after the table, with the markers. The text must have each marker once,
// on its own line.
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

// costs returns the table of costs for docs/algorithms.md: without ratios, and with one number where all repeats
// agree.
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
	for _, limits := range []bool{true, false} { // the limiters of package limit come first
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

// agreed returns the spread, or one number if all agree.
func agreed(s series) string {
	switch {
	case len(s) == 0 || number(s.min()) != number(s.max()):
		return spread(s)
	case s[0] == math.Trunc(s[0]):
		return grouped(int(s[0]))
	}
	return number(s[0])
}

// inCosts returns the name of a contestant in tables about package limit.
func (a about) inCosts() string {
	if a.key == oursKey {
		return "RRateLimiter, by this library"
	}
	return strings.TrimPrefix(a.title, "limit.")
}
