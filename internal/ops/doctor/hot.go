// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/redis/go-redis/v9"
)

// slowCall is from which time on a call in the slow log matters.
const slowCall = 10 * time.Millisecond

// manyUses is the LFU counter from which on a limiter is worth naming: about 50,000 calls within minutes.
const manyUses = 128

// frequency reads how often the limiter is used, where the eviction policy has Redis count that.
func (d *Doctor) frequency(ctx context.Context, p *patient, skip func(string, error) error) error {
	if d.noFrequency.Load() || p.main.Types[0] != "hash" {
		return nil
	}
	n, ok, err := d.Survey.Frequency(ctx, p.name, p.main.Keys[0])
	if err != nil {
		if d.noFrequency.Swap(true) { // once is enough
			return nil
		}
		return skip("hot-key", fmt.Errorf("OBJECT FREQ: %w", err))
	}
	if p.uses = n; !ok {
		d.noFrequency.Store(true)
	}
	return nil
}

func (p *patient) hotKey() []Finding {
	if p.uses < manyUses {
		return nil
	}
	f := p.of(p.main, "hot-key", Info, Text{}, "the LFU counter of the hash, which every call reads, is %d of 255", p.uses)
	f.Means = "the limiter is among the most used keys of its server, whose one thread serves all of its calls"
	f.Java, f.Go = "each call is a script of its own", "the calls of a process share scripts"
	return []Finding{f}
}

// hot looks in the slow log of a server for calls of limiters, and at how often scripts are called. What the log does
// not say for sure, whose script a call was, it takes from the keys.
func (d *Doctor) hot(ctx context.Context, node survey.Node, f facts, r *Report) {
	add := func(s Severity, found Text, means string, fix Text) {
		x := finding("hot-key", s, found, fix)
		x.Node, x.Means = node.Addr, means
		x.Java, x.Go = "all callers of the server wait as long", "all callers of the server wait as long"
		r.Findings = append(r.Findings, x)
	}
	log, err := node.Client.SlowLogGet(ctx, 128).Result()
	if err != nil {
		r.skip(Skip{Check: "hot-key", Node: node.Addr}, true, fmt.Errorf("SLOWLOG GET: %w", err))
	}
	now, err := node.Client.Time(ctx).Result()
	if err != nil {
		r.skip(Skip{Check: "hot-key", Node: node.Addr}, true, err)
		return
	}
	var elsewhere slowCalls // that limiters cannot have caused
	for i, c := range slowOf(log, now) {
		if i >= 5 || c.count == 1 || !d.canBeSlow(ctx, c.limiter) {
			elsewhere.count += c.count
			elsewhere.worst = max(elsewhere.worst, c.worst)
			continue
		}
		s, found := Warning, say("%s in the slow log of the last hour, the slowest of %v", Counted(c.count, "call"), c.worst.Round(time.Millisecond))
		if f.databases() > 1 { // the log does not say which
			s, found = Info, say("%s in the slow log of the last hour, in this database or in another, the slowest of %v", Counted(c.count, "call"), c.worst.Round(time.Millisecond))
		}
		x := finding("hot-key", s, found, say("%s says whether its set is huge", showing(d.target().At(node.Addr).Command("doctor", []string{c.limiter}))))
		x.Limiter, x.Node = c.limiter, node.Addr
		r.Findings = append(r.Findings, x)
	}
	if elsewhere.count > 0 {
		add(Info, say("%s in the slow log of the last hour that limiters do not explain, the slowest of %v", Counted(elsewhere.count, "call"), elsewhere.worst.Round(time.Millisecond)),
			"they were slow once, or their limiters hold too few permits to take long, are gone, or are in another database: the server was busy with something else, or its host was",
			say("%s; %s; and look at the load of the host", showing(d.target().At(node.Addr).RedisCLI("--latency")), showing(d.target().At(node.Addr).RedisCLI("info", "stats"))))
	}
	if up, calls := f.number("uptime_in_seconds"), f.scripts(); up > 60 && calls/up > 10_000 {
		add(Info, say("%d script calls a second since the start", calls/up), "the server spends much of its one thread on scripts", Text{})
	}
}

// slowCalls are the calls of one limiter in the slow log.
type slowCalls struct {
	limiter string
	count   int
	worst   time.Duration
}

// slowOf returns the calls of limiters of the last hour in a slow log, those of the limiter with the most first.
func slowOf(log []redis.SlowLog, now time.Time) []*slowCalls {
	var list []*slowCalls
	for _, entry := range log {
		name, ok := limiterOf(entry.Args)
		if !ok || entry.Duration < slowCall || now.Sub(entry.Time) > time.Hour {
			continue
		}
		i := slices.IndexFunc(list, func(c *slowCalls) bool { return c.limiter == name })
		if i < 0 {
			i = len(list)
			list = append(list, &slowCalls{limiter: name})
		}
		list[i].count++
		list[i].worst = max(list[i].worst, entry.Duration)
	}
	slices.SortStableFunc(list, func(a, b *slowCalls) int { return b.count - a.count })
	return list
}

// quickMembers is how many members a call of Redisson reclaims within slowCall: 100,000 take about 100 ms.
const quickMembers = 5000

// canBeSlow reports whether there is such a limiter, and it holds so many permits that a call of it can take long, whoever
// makes it.
func (d *Doctor) canBeSlow(ctx context.Context, name string) bool {
	st, err := d.Survey.Read(ctx, name, "")
	return err == nil && st.Problem == nil && st.Shows() && (st.Rate.Permits > quickMembers || st.Count > quickMembers)
}

// databases returns how many databases have keys. The counts are in INFO.
func (f facts) databases() (n int) {
	for field, text := range f {
		if _, err := strconv.Atoi(strings.TrimPrefix(field, "db")); err == nil && strings.HasPrefix(text, "keys=") {
			n++
		}
	}
	return n
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
