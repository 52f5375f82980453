// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/urfave/cli/v3"
)

// What a picture shows.
const (
	byCase    = "case"
	byLimiter = "limiter"
)

// A compare holds the settings of one run of the command.
type compare struct {
	cases []traffic
	who   []contestant
	wait  time.Duration // negative for the interval of each case
	svg   string
	png   string
	by    string
	json  bool
}

func newCompare(c *cli.Command) (k compare, err error) {
	k = compare{wait: -1, svg: c.String("svg"), png: c.String("png"), by: c.String("by"), json: c.Bool("json")}
	if k.cases, err = chosenCases(c); err != nil {
		return k, err
	}
	if k.who, err = chosen(c.StringSlice("limiter")); err != nil {
		return k, err
	}
	if c.IsSet("wait") {
		k.wait = c.Duration("wait")
		if k.wait < 0 || k.wait > patternMostTime || k.wait%time.Microsecond != 0 {
			return k, fmt.Errorf("--wait: %v is not in 0s to %v, in whole microseconds", k.wait, patternMostTime)
		}
	}
	if k.by != byCase && k.by != byLimiter {
		return k, fmt.Errorf("--by: %q is neither case nor limiter", k.by)
	}
	return k, k.checkFiles(c)
}

func caseNames() (names []string) {
	for _, t := range theCases() {
		names = append(names, t.name)
	}
	return names
}

// chosenCases returns the traffics that the flags name.
func chosenCases(c *cli.Command) ([]traffic, error) {
	names, file, text := c.StringSlice("case"), c.String("pattern"), c.String("rate")
	switch {
	case file == "" && c.IsSet("pattern"):
		return nil, errors.New("--pattern: the name of the file is empty")
	case file == "" && c.IsSet("rate"):
		return nil, errors.New("--rate is the limit of a --pattern; the cases have their own")
	case file != "" && text == "":
		return nil, errors.New("--pattern needs a --rate, as in 1000/3s")
	}
	cases, err := namedCases(names)
	if err != nil || file == "" {
		return cases, err
	}
	rate, err := parseRate(text)
	if err != nil {
		return nil, fmt.Errorf("--rate: %w", err)
	}
	bursts, err := readPattern(file)
	if err != nil {
		return nil, fmt.Errorf("--pattern: %w", err)
	}
	for _, b := range bursts {
		if b.permits > rate.Permits {
			return nil, fmt.Errorf("--pattern: %s: a request at %v is for %d permits, more than the limit of %s",
				file, b.from, b.permits, text)
		}
	}
	if len(names) == 0 {
		cases = nil
	}
	return append(cases, traffic{name: "pattern", about: "the requests of " + file, rate: rate, bursts: bursts}), nil
}

// namedCases returns the cases of those names, in the order of theCases; all of them if names is empty.
func namedCases(names []string) ([]traffic, error) {
	for _, n := range names {
		if !slices.Contains(caseNames(), n) {
			return nil, fmt.Errorf("--case: there is no %q; there are %s", n, strings.Join(caseNames(), ", "))
		}
	}
	return slices.DeleteFunc(theCases(), func(t traffic) bool {
		return len(names) > 0 && !slices.Contains(names, t.name)
	}), nil
}

// parseRate parses a rate such as 1000/3s. Whether a limiter can have it is for the limiter to say.
func parseRate(s string) (limit.Rate, error) {
	permits, interval, ok := strings.Cut(s, "/")
	n, err := strconv.ParseInt(permits, 10, 64)
	if !ok || err != nil || n < 1 || n > math.MaxUint32 {
		return limit.Rate{}, fmt.Errorf("%q is not permits and interval, as in 1000/3s", s)
	}
	d, err := time.ParseDuration(interval)
	if err != nil || d < time.Millisecond || d%time.Millisecond != 0 || d > 24*time.Hour {
		return limit.Rate{}, fmt.Errorf("%q: the interval is not a time of whole milliseconds, at most a day, as in 1000/3s", s)
	}
	return limit.Rate{Permits: n, Interval: d}, nil
}

// run compares, writes the files, and then shows the result.
func (k compare) run(ctx context.Context, out io.Writer) error {
	// Little of what is allocated stays in use; with fewer collections it takes half as long.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	var all []comparison
	for _, t := range k.cases {
		wait := k.wait
		if wait < 0 {
			wait = t.rate.Interval
		}
		c, err := t.compare(ctx, k.who, wait)
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	files, err := k.draw(all)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return command.ErrInterrupted
	}
	if err := replaceFiles(files); err != nil {
		return err
	}
	v := newCompareView(out, k.json)
	for _, c := range all {
		v.comparison(c)
	}
	for _, f := range files {
		v.file(f.name)
	}
	return v.end()
}

// draw returns the files of the pictures, to be written.
func (k compare) draw(all []comparison) (files []file, err error) {
	if k.svg == "" && k.png == "" {
		return nil, nil
	}
	for _, f := range figures(all, k.by) {
		for _, p := range []struct {
			name   string
			render func(figure) ([]byte, error)
		}{{k.svg, figure.svg}, {k.png, figure.png}} {
			if p.name == "" {
				continue
			}
			data, err := p.render(f)
			if err != nil {
				return nil, err
			}
			files = append(files, file{k.fileName(p.name, f.name), data})
		}
	}
	return files, nil
}

// fileName returns the name of the file for a picture: that of the flag, with the name of the figure before
// the extension if there are several.
func (k compare) fileName(flag, figure string) string {
	if k.pictures() == 1 {
		return flag
	}
	dot := strings.LastIndexByte(flag, '.')
	if dot <= strings.LastIndexAny(flag, `/\`) {
		dot = len(flag)
	}
	return flag[:dot] + "-" + strings.ToLower(figure) + flag[dot:]
}

func (k compare) pictures() int {
	if k.by == byLimiter {
		return len(k.who)
	}
	return len(k.cases)
}

// checkFiles checks, before anything is computed, that the files can be written. It refuses to replace
// anything but regular files.
func (k compare) checkFiles(c *cli.Command) error {
	names := map[string]string{}
	for _, flag := range []string{"svg", "png"} {
		name := c.String(flag)
		if name == "" {
			if c.IsSet(flag) {
				return fmt.Errorf("--%s: the name of the file is empty", flag)
			}
			continue
		}
		for _, t := range k.figureNames() {
			target := k.fileName(name, t)
			if other, ok := names[target]; ok {
				return fmt.Errorf("--%s: %s is the file of --%s, too", flag, target, other)
			}
			names[target] = flag
			if err := checkTarget(target); err != nil {
				return fmt.Errorf("--%s: %w", flag, err)
			}
		}
	}
	return nil
}

func (k compare) figureNames() (names []string) {
	if k.by == byLimiter {
		for _, w := range k.who {
			names = append(names, w.name)
		}
		return names
	}
	for _, t := range k.cases {
		names = append(names, t.name)
	}
	return names
}

func checkTarget(name string) error {
	info, err := os.Stat(name)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("%s is there and is no regular file", name)
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return directoryOf(name)
}
