// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// options holds the values of the flags.
type options struct {
	args     []string
	repeats  int
	duration time.Duration
	rows     *regexp.Regexp
	only     []string // keys of contestants; empty for all
	quick    bool
	server   string // the redis-server program
	out      string // docs/benchmarks-run.md; the chart goes beside it
	costs    string // docs/algorithms.md, in which the costs of package limit go; "" for the one beside out
	pool     int

	callers                  int // of a profile
	cpuProfile, mutexProfile string
	blockProfile             string
}

func parseFlags(args []string) (options, error) {
	o := options{args: args}
	f := flag.NewFlagSet("benchmarks", flag.ContinueOnError)
	f.IntVar(&o.repeats, "repeats", 5, "how often each figure is taken")
	seconds := f.Float64("seconds", 1, "how long each load runs")
	rows := f.String("rows", "", "only the rows whose key matches this regular expression")
	only := f.String("only", "", "only these contestants, by key, separated by commas; the baselines are always among them")
	f.BoolVar(&o.quick, "quick", false, "one repeat of 0.2 s, small sets: shows that everything works, measures nothing")
	f.StringVar(&o.server, "server", "redis-server", "the server program")
	f.StringVar(&o.out, "out", "../docs/benchmarks-run.md", "where the tables go; the chart goes beside them")
	f.StringVar(&o.costs, "costs", "", "the document whose table of costs is replaced; by default algorithms.md beside -out, if it is there")
	f.IntVar(&o.pool, "pool", 0, "connections of a Go client; 0 is the default of go-redis")
	f.IntVar(&o.callers, "callers", 512, "callers of a profile")
	f.StringVar(&o.cpuProfile, "cpuprofile", "", "run only ours, and write a CPU profile here")
	f.StringVar(&o.mutexProfile, "mutexprofile", "", "run only ours, and write a mutex profile here")
	f.StringVar(&o.blockProfile, "blockprofile", "", "run only ours, and write a blocking profile here")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("what is %q?", f.Args())
	}
	o.duration = time.Duration(*seconds * float64(time.Second))
	if o.quick {
		o.repeats, o.duration = 1, 200*time.Millisecond
	}
	if o.repeats < 1 || o.duration <= 0 || o.callers < 1 {
		return o, errors.New("-repeats, -seconds and -callers must be above 0")
	}
	var err error
	if o.rows, err = regexp.Compile(*rows); err != nil {
		return o, err
	}
	if *only != "" {
		o.only = strings.Split(*only, ",")
		baselines := []string{baselineKey}
		if slices.ContainsFunc(o.only, func(key string) bool { return strings.HasPrefix(key, "limit-") }) {
			baselines = append(baselines, redisRateKey)
		}
		for _, key := range baselines {
			if !slices.Contains(o.only, key) {
				o.only = append(o.only, key)
			}
		}
	}
	return o, nil
}

func (o options) profiling() bool {
	return o.cpuProfile != "" || o.mutexProfile != "" || o.blockProfile != ""
}
