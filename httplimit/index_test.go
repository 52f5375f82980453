// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/http/authority"
	"github.com/goredisson/ratelimiter/internal/http/muxpattern"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestPlanFindsEveryRule: a plan has the rules that match the request, in their order, and shows them the same request,
// as when each rule is asked by itself and http.ServeMux is asked for each of its patterns.
func TestPlanFindsEveryRule(t *testing.T) {
	sampled := func(list ...string) *rapid.Generator[string] { return rapid.SampledFrom(list) }
	hosts := sampled("a.example.com", "A.example.com", "b.example.com", "*.example.com", "c")
	patternHosts := sampled("", "", "a.example.com", "B.example.com", "c")
	patternParts := sampled("a", "a", "b", "{}", "{}", "%61", "a%2Fb", "", "{...}", "{$}")
	methods := sampled("", "", "GET", "HEAD", "POST", "CONNECT")
	requestHosts := sampled("a.example.com", "A.Example.com:80", "b.example.com.", "d.example.com", "c", "d", "")
	parts := sampled("a", "a", "a", "b", "b", "%61", "a%2Fb", "%2F", "", ".", "..", "c%20")
	path := func(t *rapid.T, parts *rapid.Generator[string]) string {
		return "/" + strings.Join(rapid.SliceOfN(parts, 0, 4).Draw(t, "parts"), "/")
	}
	pattern := func(t *rapid.T) string {
		p := methods.Draw(t, "method") + " " + patternHosts.Draw(t, "host") + path(t, patternParts)
		for i := 0; strings.Contains(p, "{}") || strings.Contains(p, "{..."); i++ { // their names
			p = strings.Replace(strings.Replace(p, "{}", fmt.Sprintf("{x%d}", i), 1), "{...", fmt.Sprintf("{y%d...", i), 1)
		}
		return strings.TrimPrefix(p, " ")
	}
	matched, missed := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		var list []Rule
		var seen []string
		for i := range rapid.IntRange(0, 8).Draw(t, "rules") {
			m := Match{Func: func(r *http.Request) bool { seen = append(seen, describe(r)); return true }}
			if rapid.IntRange(0, 2).Draw(t, "with hosts") == 0 {
				m.Hosts = rapid.SliceOfN(hosts, 0, 3).Draw(t, "hosts")
			}
			for range rapid.SampledFrom([]int{0, 1, 1, 1, 2}).Draw(t, "patterns") {
				m.Patterns = append(m.Patterns, pattern(t))
			}
			if rapid.IntRange(0, 5).Draw(t, "with methods") == 0 {
				m.Methods = []string{"POST", "GET"}
			}
			if rapid.IntRange(0, 5).Draw(t, "with query") == 0 {
				m.Query = map[string]string{"q": "1"}
			}
			r := Rule{Name: fmt.Sprint(i), Match: m, Detectors: []Detector{says("", 0, "")}}
			if CheckRules([]Rule{r}) == nil { // a pattern may be none of http.ServeMux
				list = append(list, r)
			}
		}
		tr := &Transport{client: new(ratelimiter.Client), limiters: newLimiters(nil)}
		if err := tr.SetRules(list...); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			u, method := &url.URL{Scheme: "http", Host: requestHosts.Draw(t, "request host")}, methods.Draw(t, "request method")
			switch at := path(t, parts); rapid.IntRange(0, 6).Draw(t, "form") {
			case 0:
				u.Opaque = at
			case 1:
				u.Opaque = "//" + u.Host + at
			case 2:
				u.Path = strings.TrimPrefix(at, "/")
			case 3: // what goes out cannot be read; http.ServeMux panics at a CONNECT to such a path
				u.Opaque, u.Path = "/%zz", strings.TrimPrefix(at, "/")
				method = "GET"
			default:
				u.RawPath = at
				u.Path, _ = url.PathUnescape(at)
			}
			u.RawQuery = sampled("", "q=1", "q=2").Draw(t, "query")
			req := &http.Request{Method: method, URL: u, Host: sampled("", "", "c").Draw(t, "Host")}
			seen = nil
			p, err := tr.plan(req)
			if err != nil {
				t.Fatal(err)
			}
			got := seen
			seen = nil
			var names []string
			for _, r := range list {
				if matchesPlainly(r.Match, req) {
					names = append(names, r.Name)
				}
			}
			require.Equal(t, names, p.rules, "%s %q", req.Method, u)
			require.Equal(t, seen, got, "%s %q", req.Method, u)
			matched += len(names)
			missed += len(list) - len(names)
		}
	})
	require.NotZero(t, matched)
	require.NotZero(t, missed)
}

// describe tells all of a request that a rule can see and that the Transport makes.
func describe(r *http.Request) string {
	s := fmt.Sprintf("%s %s %s %q %q %q %q", r.Method, r.Host, r.URL.Host, r.URL.Path, r.URL.RawPath, r.URL.Opaque, r.URL.RawQuery)
	for i := range 8 {
		s += fmt.Sprintf(" %q %q", r.PathValue(fmt.Sprint("x", i)), r.PathValue(fmt.Sprint("y", i)))
	}
	return s
}

// matchesPlainly is what a Match says of a request, without index, hints and shapes.
func matchesPlainly(m Match, req *http.Request) bool {
	path := requestPath(req.URL)
	split := strings.ReplaceAll(strings.ReplaceAll(path, "%2F", "/"), "%2f", "/")
	return matchesPath(m, req, path) || len(m.Patterns) > 0 && split != path && matchesPath(m, req, split)
}

func matchesPath(m Match, req *http.Request, path string) bool {
	u := *req.URL
	u.Host = hostOf(req)
	escaped := muxpattern.CleanPath(strings.ReplaceAll(strings.ReplaceAll(path, "%2E", "."), "%2e", "."))
	u.Opaque = ""
	if plain, err := url.PathUnescape(escaped); err == nil {
		u.Path, u.RawPath = plain, escaped
	}
	r := req.WithContext(req.Context())
	r.Host, r.URL = u.Host, &u
	if r.Method == "" {
		r.Method = "GET"
	}
	if len(m.Methods) > 0 && !slices.Contains(m.Methods, r.Method) {
		return false
	}
	if len(m.Hosts) > 0 && !slices.ContainsFunc(m.Hosts, func(s string) bool { return authority.Covers(strings.ToLower(s), r.Host) }) {
		return false
	}
	for name, want := range m.Query {
		if !slices.Contains(u.Query()[name], want) {
			return false
		}
	}
	if len(m.Patterns) == 0 {
		return m.Func(r)
	}
	for _, pattern := range m.Patterns {
		if p, _ := muxpattern.Compile(pattern); p.Decide(r) {
			p.SetPathValues(r)
			return m.Func(r)
		}
	}
	return false
}

// TestIndexGrowsWithTheRules: rules that name a host beside rules that name none do not multiply.
func TestIndexGrowsWithTheRules(t *testing.T) {
	for _, named := range []int{0, 1} {
		var rules []Rule
		for i := range 2000 {
			r := Rule{Detectors: []Detector{HTTPDetector()}}
			if i/1000 == named {
				r.Match.Hosts = []string{fmt.Sprintf("h%d.example.com", i)}
			}
			rules = append(rules, r)
		}
		all := redistest.Must(compileAll(rules))(t)
		x := newIndex(all)
		candidates := len(x.others)
		for _, list := range x.byHost {
			candidates += len(list)
		}
		require.Equal(t, 2000, candidates)
	}
}

// otherRules are a hundred rules each that the request of the test does not match.
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

// TestRulesThatDoNotMatchCostLittle: a request that no rule is for passes with few allocations, and nothing is asked of Redis.
// 908 were what a hundred rules cost.
func TestRulesThatDoNotMatchCostLittle(t *testing.T) {
	client := clienttest.New(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}))
	resp := respond(200, "text/plain", "")
	for _, c := range otherRules {
		tr := redistest.Must(New(client, WithBase(base(func(*http.Request) (*http.Response, error) { return resp, nil })), WithRules(hundred(c.match)...)))(t)
		req := request(t, "POST", "https://oapi.example.com/topapi/v2/user/get?access_token=T", nil)
		require.Same(t, resp, redistest.Must(tr.RoundTrip(req))(t), c.name)
		require.LessOrEqual(t, testing.AllocsPerRun(100, func() { _, _ = tr.RoundTrip(req) }), 20., c.name) //nolint:bodyclose // NoBody
	}
}
