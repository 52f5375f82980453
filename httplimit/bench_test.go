// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// BenchmarkRoundTrip is what a Transport costs a request that none of its 100 rules is for, by what tells them from
// it, beside a base without a Transport.
func BenchmarkRoundTrip(b *testing.B) {
	resp := respond(200, "text/plain", "")
	resp.Body = http.NoBody
	still := base(func(*http.Request) (*http.Response, error) { return resp, nil })
	req, err := http.NewRequest("POST", "https://oapi.example.com/topapi/v2/user/get?access_token=T", nil)
	if err != nil {
		b.Fatal(err)
	}
	run := func(name string, rt http.RoundTripper) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if r, err := rt.RoundTrip(req); err != nil || r.StatusCode != 200 {
					b.Fatal(r, err)
				}
			}
		})
	}
	run("base", still)
	client := clienttest.New(b, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}))
	for _, c := range otherRules {
		tr, err := New(client, WithBase(still), WithRules(hundred(c.match)...))
		if err != nil {
			b.Fatal(err)
		}
		run(c.name, tr)
	}
}

// otherRules are a hundred rules each that no request of the benchmark matches.
var otherRules = []struct {
	name  string
	match func(i int) Match
}{
	{"other hosts in patterns", func(i int) Match { return Match{Patterns: []string{fmt.Sprintf("POST api%d.example.com/a/{id}", i)}} }},
	{"other hosts in lists", func(i int) Match { return Match{Hosts: []string{fmt.Sprintf("api%d.example.com", i)}} }},
	{"other paths", func(i int) Match {
		return Match{Patterns: []string{fmt.Sprintf("POST oapi.example.com/topapi/v2/user/x%d", i)}}
	}},
	{"other paths, any host", func(i int) Match { return Match{Patterns: []string{fmt.Sprintf("/topapi/v2/x%d/", i)}} }},
	{"other methods", func(i int) Match { return Match{Patterns: []string{fmt.Sprintf("GET /topapi/{v}/user/{x%d}", i)}} }},
	{"longer paths", func(i int) Match { return Match{Patterns: []string{fmt.Sprintf("/{a}/{b}/{c}/{d}/x%d", i)}} }},
	{"other wildcard hosts", func(i int) Match { return Match{Hosts: []string{fmt.Sprintf("*.api%d.example.com", i)}} }},
	{"other headers", func(i int) Match { return Match{Header: map[string]string{"X-App": fmt.Sprint(i)}} }},
}

func hundred(match func(i int) Match) (list []Rule) {
	for i := range 100 {
		list = append(list, Rule{Match: match(i), Limits: []Limit{{Name: fmt.Sprint(i), Rate: ratelimiter.Rate{Permits: 1, Interval: time.Second}}}})
	}
	return list
}

// TestRulesThatDoNotMatchCostLittle: 908 allocations were what a hundred rules cost a request that none was for.
func TestRulesThatDoNotMatchCostLittle(t *testing.T) {
	client := clienttest.New(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}))
	resp := respond(200, "text/plain", "")
	for _, c := range otherRules {
		tr := redistest.Must(New(client, WithBase(base(func(*http.Request) (*http.Response, error) { return resp, nil })), WithRules(hundred(c.match)...)))(t)
		req := request(t, "POST", "https://oapi.example.com/topapi/v2/user/get?access_token=T", nil)
		require.LessOrEqual(t, testing.AllocsPerRun(100, func() { _, _ = tr.RoundTrip(req) }), 20., c.name) //nolint:bodyclose // NoBody
	}
}
