// SPDX-License-Identifier: Apache-2.0

package benchmarks

import (
	"fmt"
	"net/http"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

// otherRules are rules for others than a POST to https://api.example.com/v2/user/get, by what they tell it apart.
var otherRules = map[string]func(i string) httplimit.Match{
	"hosts":        func(i string) httplimit.Match { return pattern("POST api" + i + ".example.com/v2/{id}") },
	"paths":        func(i string) httplimit.Match { return pattern("POST api.example.com/v2/user/x" + i) },
	"any-host":     func(i string) httplimit.Match { return pattern("/v2/x" + i + "/") },
	"longer-paths": func(i string) httplimit.Match { return pattern("/{a}/{b}/{c}/{d}/x" + i) },
	"methods":      func(i string) httplimit.Match { return pattern("GET /v2/{v}/{x" + i + "}") },
	"host-lists":   func(i string) httplimit.Match { return httplimit.Match{Hosts: []string{"api" + i + ".example.com"}} },
	"wildcards":    func(i string) httplimit.Match { return httplimit.Match{Hosts: []string{"*.api" + i + ".example.com"}} },
	"headers":      func(i string) httplimit.Match { return httplimit.Match{Header: map[string]string{"X-App": i}} },
}

func pattern(p string) httplimit.Match { return httplimit.Match{Patterns: []string{p}} }

// A transport measures what an httplimit.Transport adds to a request that none of its rules is for, above a base that returns at
// once. There are so many rules, and match makes each.
type transport struct {
	rules int
	match func(i string) httplimit.Match
}

func (r transport) run(b meter, at place, _ contestant, n int) {
	require.Zero(b, r.calls(b, at, n), "script calls of requests that no rule is for")
}

// calls makes n requests, each of which must reach the base, and returns how many script calls these made.
func (r transport) calls(b meter, at place, n int) int64 {
	rdb := at.client()
	defer rdb.Close()
	client := redistest.Must(ratelimiter.New(rdb))(b)
	defer client.Close()
	rules := make([]httplimit.Rule, r.rules)
	for i := range rules {
		rules[i] = httplimit.Rule{Match: r.match(fmt.Sprint(i)), Limits: []httplimit.Limit{{Name: fmt.Sprint(prefix, i), Rate: ratelimiter.Rate{Permits: 1, Interval: time.Hour}}}}
	}
	base := &countedBase{response: &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}}
	limited := redistest.Must(httplimit.New(client, httplimit.WithBase(base), httplimit.WithRules(rules...)))(b)
	req := redistest.Must(http.NewRequestWithContext(b.Context(), http.MethodPost, "https://api.example.com/v2/user/get?access_token=T", nil))(b)
	at.resetUsage(b)
	b.ResetTimer()
	for range n {
		if _, err := limited.RoundTrip(req); err != nil { //nolint:bodyclose // NoBody
			b.Fatal(err)
		}
	}
	b.StopTimer()
	require.Equal(b, n, base.requests)
	return at.usage(b).calls
}

// A countedBase counts requests and replies at once.
type countedBase struct {
	requests int
	response *http.Response
}

func (b *countedBase) RoundTrip(*http.Request) (*http.Response, error) {
	b.requests++
	return b.response, nil
}
