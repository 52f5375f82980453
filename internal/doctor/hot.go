package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/survey"
)

// slowCall is from which time on a call in the slow log matters.
const slowCall = 10 * time.Millisecond

// hot looks in the slow log of a server for calls of limiters, and at how often scripts are called. What the log does
// not say for sure, whose script a call was, it takes from the keys.
func (d *Doctor) hot(ctx context.Context, node survey.Node, f facts, r *Report) {
	add := func(s Severity, found, means, mend string) {
		x := finding("hot-key", s, found)
		x.Node, x.Mend = node.Addr, mend
		if means != "" {
			x.Means = means
		}
		r.Findings = append(r.Findings, x)
	}
	log, err := node.Client.SlowLogGet(ctx, 128).Result()
	if err != nil {
		r.Skipped = append(r.Skipped, Skip{Check: "hot-key", Node: node.Addr, Why: oneLine(fmt.Errorf("SLOWLOG GET: %w", err))})
	}
	slow, worst := map[string]time.Duration{}, map[string]int{}
	var names []string
	for _, entry := range log {
		name, ok := limiterOf(entry.Args)
		if !ok || entry.Duration < slowCall {
			continue
		}
		if worst[name]++; worst[name] == 1 {
			names = append(names, name)
		}
		slow[name] = max(slow[name], entry.Duration)
	}
	for i, name := range names {
		if i == 5 {
			break
		}
		x := finding("hot-key", Warning, fmt.Sprintf("%d calls in the slow log, the slowest of %v", worst[name], slow[name].Round(time.Millisecond)))
		x.Limiter, x.Node = name, node.Addr
		x.Mend = "rrl doctor " + ShellQuote(name) + " says whether its set is huge"
		r.Findings = append(r.Findings, x)
	}
	if up, calls := f.number("uptime_in_seconds"), f.scripts(); up > 60 && calls/up > 10_000 {
		add(Info, fmt.Sprintf("%d script calls a second since the start", calls/up), "the server spends much of its one thread on scripts", "")
	}
}

// scripts returns how many calls of scripts INFO commandstats counts.
func (f facts) scripts() (n int64) {
	for _, name := range []string{"cmdstat_eval", "cmdstat_evalsha"} {
		for _, part := range strings.Split(f[name], ",") {
			if calls, ok := strings.CutPrefix(part, "calls="); ok {
				n += facts{"calls": calls}.number("calls")
			}
		}
	}
	return n
}

// limiterOf returns the limiter that a script call in the slow log is about: the first of its keys, where one of the
// others belongs to the state of that limiter.
func limiterOf(args []string) (string, bool) {
	if len(args) < 5 || !strings.EqualFold(args[0], "eval") && !strings.EqualFold(args[0], "evalsha") {
		return "", false
	}
	for _, key := range args[4:] {
		if key == survey.ValueKey(args[3]) {
			return args[3], true
		}
	}
	return "", false
}
