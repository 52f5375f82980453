// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

func compiled(t *testing.T, m Match) *matcher {
	t.Helper()
	var list []error
	c := compileMatch(m, problems{list: &list})
	require.Empty(t, list)
	return c
}

func TestMatch(t *testing.T) {
	header := map[string]string{"X-App": "blue"}
	any := map[string]string{"x-app": "*"}
	cases := []struct {
		name  string
		match Match
		yes   []string // METHOD URL
		no    []string
	}{
		{"all", Match{}, []string{"GET http://x/", "POST https://y:1/z"}, nil},
		{"host and path", Match{Patterns: []string{"api.example.com/a/"}},
			[]string{"GET http://api.example.com/a/", "PUT http://API.EXAMPLE.com:8080/a/b", "GET http://api.example.com./a/b",
				"GET http://api.example.com//a//b", "GET http://api.example.com/x/../a/b", "GET http://api.example.com/%61/b"},
			[]string{"GET http://api.example.com/a", "GET http://example.com/a/", "GET http://xapi.example.com/a/",
				"GET http://api.example.com/a/../b"}},
		{"method", Match{Patterns: []string{"POST /send"}}, []string{"POST http://x/send"}, []string{"GET http://x/send", "POST http://x/send/"}},
		{"get is head", Match{Patterns: []string{"GET /"}}, []string{"GET http://x", "HEAD http://x/a"}, []string{"POST http://x"}},
		{"wildcard", Match{Patterns: []string{"/v1/{robot}/send"}}, []string{"GET http://x/v1/a%2Fb/send"},
			[]string{"GET http://x/v1/a/b/send", "GET http://x/v1/send"}},
		{"an escaped dot", Match{Patterns: []string{"/robot/send"}},
			[]string{"GET http://x/robot/%2e/send", "GET http://x/robot/%2E/send", "GET http://x/a/%2e%2e/robot/send", "GET http://x/a/.%2E/robot/send",
				"GET http://x/%2e/robot/send", "GET http://x/robot/send%2f%2e%2e/send", "GET http://x/robot/send/%2e"},
			[]string{"GET http://x/robot/%2e%2e/send", "GET http://x/robot/%252e/send"}},
		{"an escaped slash", Match{Patterns: []string{"/robot/send", "/only/{x}/{y}"}},
			[]string{"GET http://x/robot%2fsend", "GET http://x/robot%2Fsend", "GET http://x/%2frobot%2Fsend", "GET http://x/robot%2f%2e%2fsend",
				"GET http://x/only/a%2Fb", "GET http://x/only/a%2Fb/c"},
			[]string{"GET http://x/robot%252fsend", "GET http://x/robot%2fsend%2f", "GET http://x/only/a"}},
		{"rest", Match{Patterns: []string{"/v1/{rest...}"}}, []string{"GET http://x/v1/", "GET http://x/v1/a/b"}, []string{"GET http://x/v1"}},
		{"exact", Match{Patterns: []string{"/v1/{$}"}}, []string{"GET http://x/v1/"}, []string{"GET http://x/v1/a", "GET http://x/v1"}},
		{"root alone", Match{Patterns: []string{"/{$}"}}, []string{"GET http://x", "GET http://x/", "GET http://x?a=b"}, []string{"GET http://x/a"}},
		{"overlapping patterns", Match{Patterns: []string{"/a/{x}", "/{x}/b"}}, []string{"GET http://x/a/c", "GET http://x/c/b", "GET http://x/a/b"}, []string{"GET http://x/c/c"}},
		{"upper case host in a pattern", Match{Patterns: []string{"API.Example.com/"}}, []string{"GET http://api.example.com/"}, nil},
		{"hosts", Match{Hosts: []string{"a.com", "*.B.com"}},
			[]string{"GET http://a.com/", "GET http://A.com:99/", "GET http://x.b.com", "GET http://x.y.b.com"},
			[]string{"GET http://b.com/", "GET http://xb.com", "GET http://x.a.com", "GET http://b.com.x"}},
		{"an address is below no name", Match{Hosts: []string{"*.b.com"}}, nil, []string{"GET http://[::1%251.b.com]/", "GET http://[::ffff:10.0.0.1%25x.b.com]/"}},
		{"an address in any writing", Match{Hosts: []string{"0xa.0.0.1"}},
			[]string{"GET http://10.0.0.1/", "GET http://[::ffff:a00:1]/", "GET http://012.1/", "GET http://167772161./"}, []string{"GET http://10.0.0.1.a.com/"}},
		{"an internationalized name", Match{Hosts: []string{"*.bücher.example"}, Patterns: []string{"a.xn--bcher-kva.example/", "/b"}},
			[]string{"GET http://A.BÜCHER.example/", "GET http://x.xn--bcher-kva.example/b"}, []string{"GET http://xn--bcher-kva.example/b"}},
		{"methods", Match{Methods: []string{"POST", "PUT"}}, []string{"PUT http://x"}, []string{"GET http://x"}},
		{"query", Match{Query: map[string]string{"a": "1", "b": "*"}},
			[]string{"GET http://x?a=1&b=", "GET http://x?b=2&a=0&a=1"}, []string{"GET http://x?a=1", "GET http://x?a=2&b=1"}},
		{"header", Match{Header: header}, []string{"GET http://x X-App=blue"}, []string{"GET http://x", "GET http://x X-App=red"}},
		{"any header", Match{Header: any}, []string{"GET http://x X-App=red"}, []string{"GET http://x"}},
		{"func", Match{Func: func(r *http.Request) bool { return r.URL.Path == "/a" }}, []string{"GET http://x//a"}, []string{"GET http://x/b"}},
		{"all must hold", Match{Hosts: []string{"x"}, Methods: []string{"GET"}, Query: map[string]string{"a": "*"}},
			[]string{"GET http://x?a"}, []string{"GET http://y?a", "PUT http://x?a", "GET http://x"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := compiled(t, c.match)
			check := func(list []string, want bool) {
				for _, s := range list {
					fields := strings.Fields(s)
					r := request(t, fields[0], fields[1], nil)
					if len(fields) > 2 {
						name, value, _ := strings.Cut(fields[2], "=")
						r.Header.Set(name, value)
					}
					require.Equal(t, want, m.matches(newProbe(r, hostOf(r))) != nil, s)
				}
			}
			check(c.yes, true)
			check(c.no, false)
		})
	}
}

// TestEscapedPathsShareALimit sends the writings of one path, of which each takes a permit of the same limiter.
func TestEscapedPathsShareALimit(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		tr := w.transport(base(ok), WithMaxWait(0), WithRules(Rule{Match: Match{Patterns: []string{"/robot/send"}},
			Limits: []Limit{w.limit("robot", 4, time.Hour)}}))
		for _, url := range []string{"http://x/robot/send", "http://x/robot/%2e/send", "http://x/robot%2fsend", "http://x/robot%2F%2e%2Fsend"} {
			get(t, tr, url)
		}
		require.Zero(t, w.available("robot"))
		_, err := tr.RoundTrip(request(t, "GET", "http://x/robot%2fsend", nil))
		require.ErrorIs(t, err, ErrRejected)
	})
}

// The host is the one that the server is told, and the path the one that is sent.
func TestMatchWhatGoesOut(t *testing.T) {
	m := compiled(t, Match{Patterns: []string{"api.example.com/a"}})
	r := request(t, "GET", "http://10.0.0.1:8443/a", nil)
	require.Nil(t, m.matches(newProbe(r, hostOf(r))))
	r.Host = "api.example.com"
	require.NotNil(t, m.matches(newProbe(r, hostOf(r))))

	r = &http.Request{URL: &url.URL{Scheme: "http", Host: "api.example.com", Opaque: "//api.example.com/a?b"}}
	require.NotNil(t, m.matches(newProbe(r, hostOf(r))), "no method is GET; an opaque URL is what goes out")
	r.URL.Opaque = "/b"
	require.Nil(t, m.matches(newProbe(r, hostOf(r))))
	r.URL.Opaque = "//api.example.com"
	require.Nil(t, m.matches(newProbe(r, hostOf(r))))
	require.NotNil(t, compiled(t, Match{Patterns: []string{"CONNECT example.com/"}}).matches(
		newProbe(&http.Request{Method: "CONNECT", URL: &url.URL{Host: "example.com:443"}, Host: "example.com:443"}, "example.com")))
}

// The path values of one rule are not there for the next.
func TestPathValuesStayInTheirRule(t *testing.T) {
	p := newProbe(request(t, "GET", "http://x/a/b", nil), "x")
	require.Equal(t, "b", compiled(t, Match{Patterns: []string{"/a/{v}"}}).matches(p).PathValue("v"))
	require.Empty(t, compiled(t, Match{}).matches(p).PathValue("v"))
}

func TestNames(t *testing.T) {
	patterns := []string{"POST /robot/{id}/{rest...}"}
	long := strings.Repeat("x", 129)
	cases := []struct{ template, url, want string }{
		{"plain", "http://x/robot/1/", "plain"},
		{"a:{host}:{method}", "http://X.com:1/robot/1/", "a:x.com:POST"},
		{"{path}", "http://x/robot//1/a%20b/{c}", "/robot/1/a%20b/%7Bc%7D"},
		{"r{path.id}:{path.rest}", "http://x/robot%2Fa/%2e/c/d", "ra:c%2Fd"},
		{"r{path.id}:{path.rest}", "http://x/robot/a%2Fb:/c/d", "ra%2Fb%3A:c%2Fd"},
		{"{query.t|hash}", "http://x/robot/1/?t=secret", "2bb80d537b1da3e38bd30361aa855686"},
		{"{query.t}", "http://x/robot/1/?t=ok-._~@&t=2", "ok-._~@"},
		{"{query.t}", "http://x/robot/1/?t=" + long[1:], long[1:]},
		{"{query.t}", "http://x/robot/1/?t=" + long, Hash(long)},
		{"{query.t}", "http://x/robot/1/?t=" + strings.Repeat("%20", 43), Hash(strings.Repeat(" ", 43))},
		{"{query.t}", "http://x/robot/1/?t=%C3%A9%00", "%C3%A9%00"},
		{"x{query.none}y", "http://x/robot/1/", "xy"},
		{"{header.X-App}", "http://x/robot/1/", "blue"},
		{"{{ding}}:{host}", "http://x/robot/1/", "{ding}:x"},
	}
	for _, c := range cases {
		n, err := parseTemplate(c.template, wildcards(patterns))
		require.NoError(t, err, c.template)
		r := request(t, "POST", c.url, nil)
		r.Header.Set("x-app", "blue")
		p := newProbe(r, hostOf(r))
		matched := compiled(t, Match{Patterns: patterns}).matches(p)
		require.NotNil(t, matched, c.url)
		require.Equal(t, c.want, n.expand(matched, p.queryValues, nil), c.template)
	}
	require.Len(t, Hash(""), 32)
}

// Different parts never make the same name, whatever they hold.
func TestNamesDoNotCollide(t *testing.T) {
	n := redistest.Must(parseTemplate("{query.a}:{query.b}", nil))(t)
	seen := map[string]string{}
	parts := []string{"", ":", "a", "a:", ":a", "%3A", "%", "{", "}", "/", "a/b", " ", "+", "é", strings.Repeat(":", 60)}
	for _, a := range parts {
		for _, b := range parts {
			q := url.Values{"a": {a}, "b": {b}}
			name := n.expand(&http.Request{}, func() url.Values { return q }, nil)
			require.NotContains(t, seen, name)
			require.NotRegexp(t, `[{}]`, name)
			seen[name] = a + b
		}
	}
}

func TestInvalidRules(t *testing.T) {
	rate := ratelimiter.Rate{Permits: 1, Interval: 1e9}
	limits := []Limit{{Name: "a", Rate: rate}}
	limit := func(f func(*Limit)) Rule {
		l := Limit{Name: "a", Rate: rate}
		f(&l)
		return Rule{Limits: []Limit{l}}
	}
	weights := func(list ...int64) (limits []Limit) { // of one limiter
		for _, w := range list {
			limits = append(limits, Limit{Name: "w", Rate: ratelimiter.Rate{Permits: 6, Interval: 1e9}, Weight: w})
		}
		return limits
	}
	cases := []struct {
		rule  Rule
		field string
		says  string
	}{
		{Rule{}, "limits", "none"},
		{Rule{Limits: limits, OnePlatform: true}, "one_platform", "the match names no host"},
		{Rule{Limits: limits, OnePlatform: true, Match: Match{Patterns: []string{"a.b/", "/a"}}}, "one_platform", "the match names no host"},
		{Rule{Limits: limits, Match: Match{Patterns: []string{"/", "GET"}}}, "match.patterns[1]", "no path"},
		{Rule{Limits: limits, Match: Match{Patterns: []string{"a.com:80/"}}}, "match.patterns[0]", "port"},
		{Rule{Limits: limits, Match: Match{Patterns: []string{"/{a}/{a}"}}}, "match.patterns[0]", "duplicate"},
		{Rule{Limits: limits, Match: Match{Patterns: []string{"/{a"}}}, "match.patterns[0]", "wildcard"},
		{Rule{Limits: limits, Match: Match{Patterns: []string{""}}}, "match.patterns[0]", "no path"},
		{Rule{Limits: limits, Match: Match{Hosts: []string{"*"}}}, "match.hosts[0]", "host"},
		{Rule{Limits: limits, Match: Match{Hosts: []string{"a:1"}}}, "match.hosts[0]", "port"},
		{Rule{Limits: limits, Match: Match{Hosts: []string{"a", "*.0.0.1"}}}, "match.hosts[1]", "below an address"},
		{Rule{Limits: limits, Match: Match{Patterns: []string{"*.example.com/"}}}, "match.patterns[0]", "its host"},
		{Rule{Limits: limits, Match: Match{Patterns: []string{"PURGE a.com/", "get a.com/"}}}, "match.patterns[1]", `"get" is no method; it is such as POST`},
		{Rule{Limits: limits, Match: Match{Patterns: []string{"Post /"}}}, "match.patterns[0]", `"Post" is no method`},
		{Rule{Limits: limits, Match: Match{Patterns: []string{"GET,POST /"}}}, "match.patterns[0]", `"GET,POST" is no method`},
		{Rule{Limits: limits, Match: Match{Methods: []string{"get"}}}, "match.methods[0]", `"get" is no method; it is such as POST`},
		{Rule{Limits: limits, Match: Match{Methods: []string{"M-SEARCH", "GET,POST"}}}, "match.methods[1]", `"GET,POST" is no method`},
		{Rule{Limits: limits, Match: Match{Header: map[string]string{"host": "a"}}}, "match.header", "hosts"},
		{Rule{Limits: limits, Match: Match{Header: map[string]string{"": "a"}}}, "match.header", "name"},
		{Rule{Limits: limits, Match: Match{Query: map[string]string{"": "a"}}}, "match.query", "name"},
		{Rule{Detectors: []Detector{nil}}, "detectors[0]", "nil"},
		{limit(func(l *Limit) { l.Name = "" }), "limits[0].name", "empty"},
		{limit(func(l *Limit) { l.Name = "{path.a}" }), "limits[0].name", "wildcard"},
		{limit(func(l *Limit) { l.Name = "{a}" }), "limits[0].name", "not known"},
		{limit(func(l *Limit) { l.Name = "{host.a}" }), "limits[0].name", "no parts"},
		{limit(func(l *Limit) { l.Name = "{query.}" }), "limits[0].name", "needs a name"},
		{limit(func(l *Limit) { l.Name = "{host|upper}" }), "limits[0].name", "hash is"},
		{limit(func(l *Limit) { l.Name = "{host" }), "limits[0].name", "single {"},
		{limit(func(l *Limit) { l.Name = "host}" }), "limits[0].name", "single }"},
		{limit(func(l *Limit) { l.Key = func(*http.Request) string { return "" } }), "limits[0].name", "one of them"},
		{limit(func(l *Limit) { l.Weight = -1 }), "limits[0].weight", "negative"},
		{limit(func(l *Limit) { l.Weight = 2 }), "limits[0].weight", "more than the 1"},
		{limit(func(l *Limit) { l.Weight = 1; l.WeightFunc = func(*http.Request) int64 { return 1 } }), "limits[0].weight", "one of them"},
		{Rule{Limits: weights(3, 2, 2)}, "limits[2].weight", "2, with the others of \"w\" 7, is more than the 6"},
		{Rule{Limits: weights(6, 0)}, "limits[1].weight", "1, with the others"},
		{limit(func(l *Limit) { l.LeaveFree = -1 }), "limits[0].leave_free", "-1 is not in"},
		{limit(func(l *Limit) { l.Rate = ratelimiter.Rate{}; l.LeaveFree = 1 << 32 }), "limits[0].leave_free", "4294967296 is not in"},
		{limit(func(l *Limit) { l.LeaveFree = 1 }), "limits[0].leave_free", "none for a request of 1"},
		{limit(func(l *Limit) { l.Rate.Permits, l.Weight, l.LeaveFree = 9, 4, 6 }), "limits[0].leave_free", "none for a request of 4"},
		{limit(func(l *Limit) { l.Rate.Permits, l.LeaveFree, l.LeaveFreeFor = 9, 6, -1 }), "limits[0].leave_free_for", "negative"},
		{limit(func(l *Limit) { l.LeaveFreeFor = 1 }), "limits[0].leave_free_for", "without leave_free"},
		{limit(func(l *Limit) { l.Reopen = -1 }), "limits[0].reopen", "negative"},
		{limit(func(l *Limit) { l.Reopen = 1 }), "limits[0].reopen", "milliseconds"},
		{limit(func(l *Limit) { l.Rate.Type = 7 }), "limits[0].type", "7"},
		{limit(func(l *Limit) { l.Rate.Permits = 0 }), "limits[0].permits", "0 is not in"},
		{limit(func(l *Limit) { l.Rate.Permits = -3 }), "limits[0].permits", "-3 is not in"},
		{limit(func(l *Limit) { l.Rate.Interval = 0 }), "limits[0].interval", "shorter"},
		{limit(func(l *Limit) { l.Rate.Interval = 1500001 }), "limits[0].interval", "milliseconds"},
		{limit(func(l *Limit) { l.Rate.KeepAlive = 1e6 }), "limits[0].keep_alive", "shorter"},
		{limit(func(l *Limit) { l.Rate.KeepAlive = -1e6 }), "limits[0].keep_alive", "negative"},
		{limit(func(l *Limit) { l.Rate.MinGap = 2e9 }), "limits[0].min_gap", "longer"},
		{limit(func(l *Limit) { l.Rate.MinGap = 1 }), "limits[0].min_gap", "milliseconds"},
	}
	require.NoError(t, CheckRules([]Rule{{Limits: weights(3, 2, 0)}}), "they fit together")
	for _, c := range cases {
		err := CheckRules([]Rule{{Limits: limits}, c.rule})
		require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
		var f *FieldError
		require.ErrorAs(t, err, &f)
		require.Equal(t, "rules[1]."+c.field, f.Field, f.Problem)
		require.Contains(t, f.Problem, c.says)
	}
	err := CheckRules([]Rule{{Limits: limits}, limit(func(l *Limit) { l.Rate.Permits = 2 })})
	require.ErrorContains(t, err, `rules[1].limits[0]: limiter "a" has the rate`)
	require.NoError(t, CheckRules([]Rule{{Limits: limits}}))
}

// TestSecretsAreHashed checks that a secret in a URL or a header is nowhere in the names that go to Redis, nor in our errors, and that
// with a key nobody who reads Redis finds it by trying out all of them.
func TestSecretsAreHashed(t *testing.T) {
	key := []byte("0123456789abcdef")
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("4711"))
	keyed := hex.EncodeToString(mac.Sum(nil)[:16])
	require.Equal(t, keyed, KeyedHash(key, "4711"))
	require.Equal(t, Hash("4711"), KeyedHash(nil, "4711"))
	for want, opts := range map[string][]Option{Hash("4711"): nil, keyed: {WithHashKey(key)}} {
		inWorld(t, func(t *testing.T, w *world) {
			tr := w.transport(base(ok), append(opts, rules(w.limit("{query.pin|hash}:{header.Authorization|hash}", 1, time.Minute)), WithMaxWait(0))...)
			send := func() error {
				r := request(t, "POST", "http://x/?pin=4711", nil)
				r.Header.Set("Authorization", "Bearer TOPSECRET")
				_, err := tr.RoundTrip(r)
				return err
			}
			require.NoError(t, send())
			err := send()
			require.ErrorIs(t, err, ErrRejected)
			keys := redistest.Must(w.rdb.Keys(t.Context(), "*"+w.key+"*").Result())(t)
			require.NotEmpty(t, keys)
			for _, text := range append(keys, err.Error()) {
				require.Contains(t, text, want)
				require.NotContains(t, text, "SECRET")
				require.Equal(t, opts == nil, strings.Contains(text, Hash("4711")), "which can be tried out")
			}
		})
	}
	for _, short := range [][]byte{nil, {}, make([]byte, 15)} {
		_, err := New(clienttest.Unused(t), WithHashKey(short))
		require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
	}
}
