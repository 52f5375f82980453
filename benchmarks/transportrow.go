// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
)

// A transportRow measures what an httplimit.Transport adds to a request that none of its rules is for.
type transportRow struct {
	rules    int
	duration time.Duration // of all kinds of rules together
}

func (r transportRow) about() rowAbout {
	return rowAbout{
		key: "transport", title: fmt.Sprintf("httplimit: a request that none of %d rules is for", r.rules),
		text: "Transport.RoundTrip above a base that returns at once. The rules are for other hosts, paths, methods or headers, " +
			"one kind after the other, and the slowest kind counts. Nothing goes to Redis; a request that a rule is for does, afterwards.",
		metrics: []metric{roundTripMetric, roundAllocsMetric}, baseline: redisRateKey,
	}
}

func (r transportRow) takes(c contestant) bool { return c.about().key == oursKey }

// The request that no rule is for.
const (
	strangeMethod = http.MethodPost
	strangeURL    = "https://api.example.com/v2/user/get?access_token=T"
)

// otherRules are the kinds of rules, by what they tell the request apart.
var otherRules = []struct {
	name  string
	match func(i int) httplimit.Match
}{
	{"hosts in patterns", func(i int) httplimit.Match { return pattern("POST api%d.example.com/v2/{id}", i) }},
	{"hosts in lists", func(i int) httplimit.Match {
		return httplimit.Match{Hosts: []string{fmt.Sprintf("api%d.example.com", i)}}
	}},
	{"wildcard hosts", func(i int) httplimit.Match {
		return httplimit.Match{Hosts: []string{fmt.Sprintf("*.api%d.example.com", i)}}
	}},
	{"paths", func(i int) httplimit.Match { return pattern("POST api.example.com/v2/user/x%d", i) }},
	{"paths on any host", func(i int) httplimit.Match { return pattern("/v2/x%d/", i) }},
	{"longer paths", func(i int) httplimit.Match { return pattern("/{a}/{b}/{c}/{d}/x%d", i) }},
	{"methods", func(i int) httplimit.Match { return pattern("GET /v2/{v}/{x%d}", i) }},
	{"headers", func(i int) httplimit.Match {
		return httplimit.Match{Header: map[string]string{"X-App": fmt.Sprint(i)}}
	}},
}

func pattern(format string, i int) httplimit.Match {
	return httplimit.Match{Patterns: []string{fmt.Sprintf(format, i)}}
}

// A counted base counts requests and replies at once.
type countedBase struct {
	requests int64
	response *http.Response
}

func (b *countedBase) RoundTrip(*http.Request) (*http.Response, error) {
	b.requests++
	return b.response, nil
}

func (r transportRow) measure(ctx context.Context, b *bench, c contestant, name string) (sample, error) {
	out := sample{}
	for k, kind := range otherRules {
		rules := make([]httplimit.Rule, r.rules)
		for i := range rules {
			rules[i] = r.rule(fmt.Sprintf("%s%d.%d", name, k, i), kind.match(i))
		}
		micros, allocs, err := r.pass(ctx, b, c.(*ours).client, rules)
		if err != nil {
			return nil, fmt.Errorf("rules for other %s: %w", kind.name, err)
		}
		out[roundTripMetric] = max(out[roundTripMetric], micros)
		out[roundAllocsMetric] = max(out[roundAllocsMetric], allocs)
	}
	return out, r.bites(ctx, b, c.(*ours).client, name+"own")
}

func (transportRow) rule(name string, match httplimit.Match) httplimit.Rule {
	return httplimit.Rule{Match: match, Limits: []httplimit.Limit{{Name: name, Rate: ratelimiter.Rate{Permits: 1, Interval: time.Hour}}}}
}

// pass returns the time and the allocations of a request that no rule is for, after checking that the base got each
// of them and Redis nothing.
func (r transportRow) pass(ctx context.Context, b *bench, client *ratelimiter.Client, rules []httplimit.Rule) (micros, allocs float64, err error) {
	base, transport, req, err := r.transport(ctx, client, rules)
	if err != nil {
		return 0, 0, err
	}
	if _, err := resetUsage(ctx, b.rdb); err != nil {
		return 0, 0, err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began, passed, n := time.Now(), time.Duration(0), int64(0)
	for ; passed < r.duration/time.Duration(len(otherRules)); passed = time.Since(began) {
		const turn = 100
		for range turn {
			if _, err := transport.RoundTrip(req); err != nil { //nolint:bodyclose // NoBody
				return 0, 0, err
			}
		}
		n += turn
	}
	runtime.ReadMemStats(&after)
	u, err := readUsage(ctx, b.rdb)
	if err != nil {
		return 0, 0, err
	}
	if base.requests != n || u.scriptCalls != 0 {
		return 0, 0, fmt.Errorf("of %d requests %d reached the base, with %d script calls", n, base.requests, u.scriptCalls)
	}
	return passed.Seconds() * 1e6 / float64(n), float64(after.Mallocs-before.Mallocs) / float64(n), nil
}

// bites checks that the same request costs a permit when a rule is for it.
func (r transportRow) bites(ctx context.Context, b *bench, client *ratelimiter.Client, name string) error {
	_, transport, req, err := r.transport(ctx, client, []httplimit.Rule{
		r.rule(name, httplimit.Match{Patterns: []string{"POST api.example.com/v2/user/get"}}),
	})
	if err != nil {
		return err
	}
	if _, err := transport.RoundTrip(req); err != nil { //nolint:bodyclose // NoBody
		return err
	}
	used, err := usedPermits(ctx, b.rdb, name, "-inf")
	if err == nil && used != 1 {
		err = fmt.Errorf("a request that a rule is for used %d permits of %s", used, name)
	}
	return err
}

func (transportRow) transport(ctx context.Context, client *ratelimiter.Client, rules []httplimit.Rule) (*countedBase, *httplimit.Transport, *http.Request, error) {
	base := &countedBase{response: &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}}
	transport, err := httplimit.New(client, httplimit.WithBase(base), httplimit.WithRules(rules...))
	if err != nil {
		return nil, nil, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, strangeMethod, strangeURL, nil)
	return base, transport, req, err
}
