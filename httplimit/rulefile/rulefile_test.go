// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const everything = `# a comment
rules:
  - name: messages of a robot
    match:
      patterns: ["POST oapi.example.com/robot/{kind}"]
      hosts: ["*.example.com"]
      methods:
        - POST
      header: {X-App: "*"}
      query:
        access_token: "*"
        "n": "1"
    one_platform: true
    limits:
      - name: "robot:{path.kind}:{query.access_token|hash}"
        permits: 20
        interval: 1m30s
        min_gap: 100ms
        keep_alive: 1h
        type: per_client
        weight: 2
        scope: robot
        reopen: 10s
        outage_policy: closed
      - {name: ip, permits: 10000, interval: 20s, outage_policy: {local_quota: 8}, type: overall, leave_free: 500, leave_free_for: 1m}
      - {name: elsewhere, outage_policy: open}
    detectors: [http, mine, {status: [429, 503], paths: ["/v1/*"], header: {X-State: "!ok"}, json: {error.code: "limit*|quota*", errors.*.type: "LIMIT"}, reason: busy, scope: account, banned: true, wait: 5s, wait_from: [X-Reset], wait_from_body: [error.details.*.retryDelay], max_wait: 1m}]
  - detectors: [github]
    dry_run: true
`

// A mine is a detector that can be told from others.
type mine struct{ name string }

func (*mine) Detect(*httplimit.Response) httplimit.Verdict { return httplimit.Verdict{} }

// TestErrorsAreInvalidArguments checks that what is wrong with a file or an option can be told as with httplimit.New.
func TestErrorsAreInvalidArguments(t *testing.T) {
	for _, text := range []string{"", "rules: [", "rulez: []", "rules: []", "rules: [{limits: [{name: a, permits: 0, interval: 1s}]}]",
		"rules: &a []", `{"rules":`, strings.Repeat("#", maxSize+1)} {
		_, err := Parse([]byte(text))
		require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument, "%.40q", text)
	}
	for name, o := range map[string]Option{
		"an Option of Parse is nil": nil, "the name is empty": WithDetector("", &mine{}), `("x"): rules[0].detectors[0]: it is nil`: WithDetector("x", nil),
		"detectors[0].status": WithDetector("http", httplimit.Signature{}),
	} {
		rules, err := Parse([]byte(everything), WithDetector("mine", &mine{}), o)
		require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
		require.ErrorContains(t, err, name)
		require.Nil(t, rules)
	}
}

func TestParseEverything(t *testing.T) {
	own := &mine{}
	rules := redistest.Must(Parse([]byte(everything), WithDetector("mine", own)))(t)
	require.Len(t, rules, 2)
	r := rules[0]
	require.Equal(t, "messages of a robot", r.Name)
	require.True(t, r.OnePlatform)
	require.False(t, rules[1].OnePlatform)
	require.Equal(t, httplimit.Match{
		Patterns: []string{"POST oapi.example.com/robot/{kind}"},
		Hosts:    []string{"*.example.com"},
		Methods:  []string{"POST"},
		Header:   map[string]string{"X-App": "*"},
		Query:    map[string]string{"access_token": "*", "n": "1"},
	}, r.Match)
	policy := func(p ratelimiter.OutagePolicy) *ratelimiter.OutagePolicy { return &p }
	ip := ratelimiter.Rate{Permits: 10000, Interval: 20 * time.Second}
	require.Equal(t, []httplimit.Limit{
		{
			Name: "robot:{path.kind}:{query.access_token|hash}",
			Rate: ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 20, Interval: 90 * time.Second,
				KeepAlive: time.Hour, MinGap: 100 * time.Millisecond},
			Weight: 2, Scope: "robot", Reopen: 10 * time.Second, OutagePolicy: policy(ratelimiter.FailClosed()),
		},
		{Name: "ip", Rate: ip, LeaveFree: 500, LeaveFreeFor: time.Minute, OutagePolicy: policy(ratelimiter.LocalQuota(ip, 8))},
		{Name: "elsewhere", OutagePolicy: policy(ratelimiter.FailOpen())},
	}, r.Limits)
	require.Len(t, r.Detectors, 3)
	require.Same(t, own, r.Detectors[1])
	require.Equal(t, httplimit.Signature{
		Status: []int{429, 503}, Paths: []string{"/v1/*"}, Header: map[string]string{"X-State": "!ok"},
		JSON: map[string]string{"error.code": "limit*|quota*", "errors.*.type": "LIMIT"}, Reason: "busy", Scope: "account", Banned: true,
		Wait: 5 * time.Second, WaitFrom: []string{"X-Reset"}, WaitFromBody: []string{"error.details.*.retryDelay"}, MaxWait: time.Minute,
	}, r.Detectors[2])
	require.Len(t, rules[1].Detectors, 1)
	require.True(t, rules[1].DryRun)
	require.False(t, r.DryRun)
}

// TestRatesAreThoseOfParseRate checks that the field rate takes what ParseRate takes, and that the other fields of a rate keep their
// meaning beside it, before it or after it.
func TestRatesAreThoseOfParseRate(t *testing.T) {
	for text, want := range map[string]ratelimiter.Rate{
		"rate: 10/min":                      ratelimiter.PerMinute(10),
		"rate: 100/d":                       {Permits: 100, Interval: 24 * time.Hour},
		"rate: 5/10s":                       {Permits: 5, Interval: 10 * time.Second},
		"rate: 5/10s, min_gap: 1s":          {Permits: 5, Interval: 10 * time.Second, MinGap: time.Second},
		"type: per_client, rate: 100/1m30s": {Type: ratelimiter.PerClient, Permits: 100, Interval: 90 * time.Second},
		"keep_alive: 1h, rate: 3/hour":      {Permits: 3, Interval: time.Hour, KeepAlive: time.Hour},
		`rate: "PER_CLIENT 5/10s keep-alive 1h0m0s gap 1s"`: {Type: ratelimiter.PerClient, Permits: 5, Interval: 10 * time.Second, KeepAlive: time.Hour, MinGap: time.Second},
	} {
		rules, err := Parse([]byte("rules: [{limits: [{name: a, " + text + ", outage_policy: {local_quota: 2}}]}]"))
		require.NoError(t, err, text)
		require.Equal(t, want, rules[0].Limits[0].Rate, text)
		require.Equal(t, ratelimiter.LocalQuota(want, 2), *rules[0].Limits[0].OutagePolicy, text)
	}
}

// What is wrong is named by its line and its field; all of it at once.
func TestErrorsNameLineAndField(t *testing.T) {
	limit := func(s string) string { return "rules:\n- limits:\n  - name: a\n    " + s + "\n" }
	cases := []struct {
		name, file string
		line       int
		field      string
		says       string
	}{
		{"empty", "", 0, "", "it is empty"},
		{"only a comment", "# nothing\n", 0, "", "it is empty"},
		{"null", "rules:\n", 1, "rules", "a list"},
		{"no rules", "rules: []", 1, "rules", "none"},
		{"not a mapping", "\n- a\n", 2, "", "a mapping, not a list"},
		{"unknown field", "rules:\n- limits: []\n  limit: 3\n", 3, "rules[0].limit", "unknown field; there are detectors, dry_run, limits, match, name, one_platform, rejection"},
		{"unknown at the top", "rule:\n- a\n", 1, "rule", "unknown field; there are profiles, rules"},
		{"unknown in a limit", limit("intervall: 3s"), 4, "rules[0].limits[0].intervall", "interval,"},
		{"twice", limit("name: b"), 4, "rules[0].limits[0].name", "twice"},
		{"a number for a name", "rules:\n- name: 12\n", 2, "rules[0].name", `put it in quotes: "12"`},
		{"true for a name", "rules:\n- name: true\n", 2, "rules[0].name", "true"},
		{"a duration without a unit", limit("interval: 20"), 4, "rules[0].limits[0].interval", "20 has no unit"},
		{"a bad duration", limit("interval: 20 seconds"), 4, "rules[0].limits[0].interval", `"20 seconds" is no duration`},
		{"a negative duration", limit("interval: -20s"), 4, "rules[0].limits[0].interval", "negative"},
		{"too fine a duration", limit("permits: 1\n    interval: 1ms500us"), 5, "rules[0].limits[0].interval", "milliseconds"},
		{"a negative rate", limit("permits: -1\n    interval: 1s"), 4, "rules[0].limits[0].permits", "-1 is not in 1..4294967295"},
		{"a rate of 0", limit("permits: 0\n    interval: 1s"), 4, "rules[0].limits[0].permits", "0 is not in"},
		{"no permits", limit("interval: 1s"), 3, "rules[0].limits[0].permits", "0 is not in"},
		{"permits as a string", limit(`permits: "20"`), 4, "rules[0].limits[0].permits", "a number, not a string"},
		{"permits that are no whole number", limit("permits: 1.5"), 4, "rules[0].limits[0].permits", "whole number"},
		{"octal permits", limit("permits: 010"), 4, "rules[0].limits[0].permits", "whole number"},
		{"hexadecimal permits", limit("permits: 0x10"), 4, "rules[0].limits[0].permits", "whole number"},
		{"too many permits", limit("permits: 99999999999999999999"), 4, "rules[0].limits[0].permits", "too large"},
		{"a weight of 0", limit("weight: 0"), 4, "rules[0].limits[0].weight", "leave it out"},
		{"a negative weight", limit("weight: -2"), 4, "rules[0].limits[0].weight", "negative"},
		{"a weight above the rate", limit("permits: 3\n    interval: 1s\n    weight: 4"), 6, "rules[0].limits[0].weight", "more than the 3"},
		{"a type", limit("type: global"), 4, "rules[0].limits[0].type", "overall"},
		{"a policy", limit("outage_policy: maybe"), 4, "rules[0].limits[0].outage_policy", "closed, open"},
		{"a share of nobody", limit("outage_policy: {local_quota: 0}"), 4, "rules[0].limits[0].outage_policy", "1 or more"},
		{"a share of nothing", limit("outage_policy: {local_quota: 2}"), 4, "rules[0].limits[0].outage_policy", "needs a rate here, or permits and interval"},
		{"a settlement", "rules:\n- limits:\n  - name: a\n    settle: dollars\n", 4, "rules[0].limits[0].settle", "there is tokens"},
		{"rejections that are not known", "rules:\n- rejection: discrod\n", 2, "rules[0].rejection", `the rejections of "discrod" are not known; there are anthropic, discord, feishu, github, gitlab, openai, slack, telegram`},
		{"rejections that are no name", "rules:\n- rejection: [discord]\n", 2, "rules[0].rejection", "it must be a string, not a list"},
		{"a signature's field", "rules:\n- detectors:\n  - statsu: 429\n", 3, "rules[0].detectors[0].statsu", "unknown field; there are banned, header, json, max_wait, paths, reason, scope, status, wait, wait_from, wait_from_body, xml"},
		{"a signature's status", "rules:\n- detectors:\n  - status: 42\n", 3, "rules[0].detectors[0].status", "42 is no status"},
		{"a signature's statuses", "rules:\n- detectors:\n  - status: [4294967725]\n", 3, "rules[0].detectors[0].status", "no status"},
		{"a signature without one", "rules:\n- detectors:\n  - json: {code: a}\n", 3, "rules[0].detectors[0].status", "there is none"},
		{"a signature's pattern", "rules:\n- detectors:\n  - status: 429\n    json:\n      a: 3\n", 5, "rules[0].detectors[0].json.a", "put it in quotes"},
		{"a signature's path", "rules:\n- detectors:\n  - status: 200\n    json: {\"errors[].type\": a}\n", 4, "rules[0].detectors[0].json", "a list's elements are *, as in errors.*.type"},
		{"a signature's wait", "rules:\n- detectors:\n  - status: 429\n    wait: 25h\n", 4, "rules[0].detectors[0].wait", "25h0m0s is not in"},
		{"a detector", "rules:\n- detectors:\n  - http\n  - htpp\n", 4, "rules[0].detectors[1]", `"htpp" is not known; there are anthropic,`},
		{"a pattern", "rules:\n- match:\n    patterns:\n    - /a\n    - /{a}{b}\n  detectors: [http]\n", 5, "rules[0].match.patterns[1]", "/{a}{b}"},
		{"a host", "rules:\n- match: {hosts: [\"a:1\"]}\n  detectors: [http]\n", 2, "rules[0].match.hosts[0]", "port"},
		{"a platform that is a text", "rules:\n- one_platform: \"true\"\n  detectors: [http]\n", 2, "rules[0].one_platform", "neither true nor false"},
		{"a platform that is a mapping", "rules:\n- one_platform: {}\n  detectors: [http]\n", 2, "rules[0].one_platform", "a mapping is neither true nor false"},
		{"a platform without hosts", "rules:\n- detectors: [http]\n  one_platform: true\n", 3, "rules[0].one_platform", "names no host"},
		{"a pattern's method", "rules:\n- match:\n    patterns:\n    - GET a.com/\n    - get a.com/\n  detectors: [http]\n", 5, "rules[0].match.patterns[1]", `"get a.com/": "get" is no method; it is such as POST`},
		{"a method", "rules:\n- detectors: [http]\n  match:\n    methods: [post]\n", 4, "rules[0].match.methods[0]", "post"},
		{"a header that is a list", "rules:\n- match:\n    header: [a]\n", 3, "rules[0].match.header", "a mapping, not a list"},
		{"a header twice", "rules:\n- match:\n    header:\n      a: b\n      a: c\n", 5, "rules[0].match.header", "twice"},
		{"a template", "rules:\n- limits:\n  - name: \"{body}\"\n", 3, "rules[0].limits[0].name", "{body} is not known"},
		{"a rule of nothing", "rules:\n- detectors: [http]\n- name: b\n", 3, "rules[1].limits", "none"},
		{"a rate of the wrong form", limit("rate: 20 per second"), 4, "rules[0].limits[0].rate", `the rate "20 per second" is not in the form 10/s, 100/1m30s, 1000/day or OVERALL 10/s gap 100ms`},
		{"a rate that is a number", limit("rate: 20"), 4, "rules[0].limits[0].rate", `the rate "20" is not in the form 10/s, 100/1m30s or 1000/day`},
		{"a rate that is a list", limit("rate: [20/s]"), 4, "rules[0].limits[0].rate", "it must be a string, not a list"},
		{"a rate of an unknown unit", limit("rate: 20/2days"), 4, "rules[0].limits[0].rate", "the interval of the rate \"20/2days\" is not one such as s, min, hour, day, 10s or 1m30s"},
		{"a rate of nothing", limit("rate: 0/s"), 4, "rules[0].limits[0].rate", "0 is not in 1..4294967295"},
		{"too fine a rate", limit("rate: 1/1500us"), 4, "rules[0].limits[0].rate", "the interval 1.5ms is no whole number of milliseconds"},
		{"a rate twice", limit("rate: 20/s\n    permits: 20"), 5, "rules[0].limits[0].permits", "rate says it already"},
		{"an interval twice", limit("interval: 1s\n    rate: 20/s"), 4, "rules[0].limits[0].interval", "rate says it already"},
		{"a gap twice", limit("rate: OVERALL 20/s gap 1ms\n    min_gap: 1ms"), 5, "rules[0].limits[0].min_gap", "rate says it already"},
		{"days", limit("interval: 1d"), 4, "rules[0].limits[0].interval", `"1d" is no duration; it is such as 20s, 1m30s, 100ms, or 24h for a day`},
		{"two rates", "rules:\n- limits:\n  - {name: a, permits: 1, interval: 1s}\n  - {name: a, permits: 2, interval: 1s}\n", 4, "rules[0].limits[1]", "elsewhere"},
		{"an alias", "rules:\n- &a {detectors: [http]}\n- *a\n", 2, "", "anchors"},
		{"a merge", "rules:\n- <<: {name: a}\n", 2, "", "the name of a field"},
		{"a tag", "rules:\n- name: !!str a\n", 2, "", "tags"},
		{"a second document", "rules: []\n---\nrules: []\n", 0, "", "more"},
		{"no YAML", "rules:\n  - a: [\n", 0, "", ""},
		{"a tab", "rules:\n\t- a\n", 2, "", "cannot start"},
		{"no JSON", "{\n\"rules\": [}\n", 2, "", "invalid"},
		{"half of it", `{"rules": [`, 1, "", "unexpected"},
		{"JSON and more", "{\"rules\": []}\n\n{}", 3, "", "trailing data"},
		{"JSON with an unknown field", "{\n\t\"rules\": [\n\t\t{\"nam\": \"a\"}\n\t]\n}", 3, "rules[0].nam", "unknown"},
		{"JSON with a field twice", "{\"rules\": [{\"name\": \"a\",\n \"name\": \"b\"}]}", 2, "rules[0].name", "twice"},
		{"JSON null", `{"rules": null}`, 1, "rules", "a list"},
		{"JSON number", `{"rules": [{"limits": [{"name": "a", "permits": 1e3}]}]}`, 1, "rules[0].limits[0].permits", "whole"},
		{"deep YAML", "rules: " + strings.Repeat("[", 40) + strings.Repeat("]", 40), 1, "", "deep"},
		{"deep JSON", `{"rules": ` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + "}", 1, "", "deep"},
		{"long", strings.Repeat(" ", maxSize+1), 0, "", "longer than"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			rules, err := Parse([]byte(c.file))
			require.Error(t, err)
			require.Nil(t, rules)
			list := []error{err}
			if joined, ok := err.(interface{ Unwrap() []error }); ok {
				list = joined.Unwrap()
			}
			require.True(t, slices.ContainsFunc(list, func(err error) bool {
				var e *Error
				require.ErrorAs(t, err, &e)
				return strings.Contains(e.Problem, c.says) && (c.line == 0 || c.line == e.Line) && c.field == e.Field
			}), "%v", err)
		})
	}
}

// TestLinesOfSyntaxErrors: the YAML parser counts some lines from 0, names where the list around an error begins, or none.
func TestLinesOfSyntaxErrors(t *testing.T) {
	for _, c := range []struct {
		line int
		file string
	}{
		{3, "rules:\n- name: a\n- name: \"b\x01\"\n"},
		{2, "rules:\n- name: \x7f\n"},
		{3, "rules:\n- name: a\n- name: \ufffe\n"},
		{4, "rules:\n- name: |\n    x\n  \x02\n"},
		{2, "rules:\n- name: \xff\n"},
		{3, "rules:\n- name: a\n  x: [1, 2\n"},
		{3, "rules:\n- name: a\n  x: {a: b\n- name: c\n"},
		{3, "rules:\n- name: a\n  x: \"abc\n"},
		{2, "rules:\n- name: a: b\n- name: c\n"},
		{3, "rules:\n- name: a\n name: b\n"},
		{3, "rules:\n- name: a\n\tname: b\n"},
		{3, "rules:\n- name: a\n  b\n- c: d\n"},
		{3, "rules:\n- name: a\n}\n"},
		{3, "rules:\n- name: a\n- name: @x\n"},
		{3, "rules:\n- name: a\n- *x\n"},
		{3, "rules:\n- name: a\n- name: !<x y\n"},
		{1, "rules: ]\n"},
		{2, "rules:\n  - a: [\n"},
		{5, "rules:\n- name: a\n  limits:\n  - name: b\n   permits: 1\n"},
		{6, "rules:\n- match: {hosts: [a\n   , b]}\n- match: {hosts: [a\n   , b]}\n- x: [1, 2\n"},
		{9, "rules:\n- match: {hosts: [a\n   ,\n b,\n c, d,\n e,\n f]}\n# more\n- x: [1, 2\n"},
	} {
		_, err := Parse([]byte(c.file))
		var e *Error
		require.ErrorAs(t, err, &e, "%q", c.file)
		require.Equal(t, c.line, e.Line, "%q: %v", c.file, err)
	}
}

// TestLargestFiles: the time for a file, right or wrong, grows with its size and not with the square of it: the hosts of one
// limiter were compared for each of its rules.
func TestLargestFiles(t *testing.T) {
	redistest.NoServer(t)
	redistest.NoRace(t, "one goroutine parses")
	write := func(rules int) string {
		var b strings.Builder
		b.WriteString("rules:\n")
		for i := range rules {
			fmt.Fprintf(&b, "- {match: {hosts: [h%d.x]}, limits: [{name: a}]}\n", i)
		}
		return b.String()
	}
	took := func(file string) time.Duration {
		begin := time.Now()
		_, err := Parse([]byte(file))
		require.NoError(t, err)
		return time.Since(begin)
	}
	small, large, ratio := write(500), write(4000), 64.
	for n := 0; n < 10 && ratio >= 24; n++ { // a machine that does something else disturbs some of them
		ratio = min(ratio, float64(took(large))/float64(took(small)))
	}
	require.Less(t, ratio, 24., "4,000 rules take much longer than 8 times 500")
	_, err := Parse([]byte(large + "- a: [\n"))
	require.ErrorContains(t, err, "line 4002")
}

// All that is wrong is told at once, in the order of the lines, and not without end.
func TestAllErrorsAreTold(t *testing.T) {
	_, err := Parse([]byte("rules:\n- limits:\n  - permits: x\n    name: 7\n  matsch: 1\n- detectors: [a, b]\n"))
	want := []string{
		`rulefile: line 3: rules[0].limits[0].permits: it must be a number, not a string: x`,
		`rulefile: line 4: rules[0].limits[0].name: it must be a string, not a number; put it in quotes: "7"`,
		`rulefile: line 5: rules[0].matsch: unknown field; there are detectors, dry_run, limits, match, name, one_platform, rejection`,
	}
	require.Equal(t, want, strings.Split(err.Error(), "\n")[:3])
	_, err = Parse([]byte("rules:\n" + strings.Repeat("- a\n", 50)))
	require.Len(t, strings.Split(err.Error(), "\n"), maxProblems+1)
	require.ErrorContains(t, err, "and 30 more")
	_, err = Parse([]byte("rules:\n- \"" + strings.Repeat("x", 1000) + "\"\n"))
	require.Less(t, len(err.Error()), 200)
}

func TestByteOrderMark(t *testing.T) {
	require.Len(t, redistest.Must(Parse([]byte("\xef\xbb\xbfrules:\n- detectors: [http]\n")))(t), 1)
}

// TestUTF16: Windows PowerShell writes files in UTF-16. With a byte order mark YAML and JSON are read as in UTF-8, with the lines of
// mistakes; what looks like UTF-16 and has no mark, or is cut, is rejected as that.
func TestUTF16(t *testing.T) {
	write := func(order binary.AppendByteOrder, text string) (data []byte) {
		for _, unit := range utf16.Encode([]rune(text)) {
			data = order.AppendUint16(data, unit)
		}
		return data
	}
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		for _, file := range []string{"rules:\r\n- detectors: [http]\r\n  name: 机器人😀\r\n", "\t{\"rules\": [\r\n\t{\"detectors\": [\"http\"], \"name\": \"机器人😀\"}]}"} {
			data := write(order, "\ufeff"+file)
			require.Equal(t, "机器人😀", redistest.Must(Parse(data))(t)[0].Name)
			_, err := Parse(write(order, "\ufeff"+strings.Replace(file, "http", "htpp", 1)))
			require.ErrorContains(t, err, "line 2: rules[0].detectors[0]")
			_, err = Parse(write(order, "\ufeff"+strings.Replace(file, "]", "", 1)))
			require.ErrorContains(t, err, "line 2: ")
			_, err = Parse(write(order, file))
			require.EqualError(t, err, "rulefile: it is in UTF-16 without a byte order mark; save it as UTF-8")
			_, err = Parse(data[:len(data)-1])
			require.EqualError(t, err, "rulefile: it is in UTF-16, and ends in half a character; save it as UTF-8")
		}
		_, err := Parse(write(order, "\ufeff"))
		require.EqualError(t, err, "rulefile: it is empty")
	}
}

// TestOtherEncodings has files that are in neither: the line of the first wrong character, in YAML as in JSON.
func TestOtherEncodings(t *testing.T) {
	for file, want := range map[string]string{
		"rules:\n- name: caf\xe9\n":                  "rulefile: line 2: it is not in UTF-8",
		"\xef\xbb\xbfrules: []\n# caf\xe9\n":         "rulefile: line 2: it is not in UTF-8",
		"{\n\"rules\": [{\"name\": \"caf\xe9\"}]}":   "rulefile: line 2: it is not in UTF-8",
		"\xff\xfe\x00\x00r\x00\x00\x00u\x00\x00\x00": "rulefile: it is in UTF-32; save it as UTF-8",
	} {
		_, err := Parse([]byte(file))
		require.EqualError(t, err, want, "%q", file)
	}
}

// TestStatusOfAnotherKind checks that the error names both forms that are taken.
func TestStatusOfAnotherKind(t *testing.T) {
	_, err := Parse([]byte("rules:\n- detectors:\n  - status: \"429\"\n"))
	require.ErrorContains(t, err, `rules[0].detectors[0].status: it must be a number or a list, not a string: 429`)
}

// TestInvalidUTF8 checks that a file that is not text is rejected with the line, in JSON as in YAML.
func TestInvalidUTF8(t *testing.T) {
	for _, file := range []string{"rules:\n- detectors: [http]\n  name: \xe9\n", "{\"rules\": [{\"detectors\": [\"http\"],\n\n\"name\": \"\xe9\"}]}"} {
		_, err := Parse([]byte(file))
		require.ErrorContains(t, err, "rulefile: line 3: ")
		require.ErrorContains(t, err, "UTF-8")
	}
}

// TestLinesOfLargeFiles: what is parsed to find the line of an error does not grow with the place of the error. A file whose last
// list is not closed took 20 times as long as one that is right.
func TestLinesOfLargeFiles(t *testing.T) {
	redistest.NoServer(t)
	redistest.NoRace(t, "it parses files of a megabyte many times, in one goroutine")
	items := func(n int) string { return strings.Repeat("- name: a\n", n) }
	for _, c := range []struct {
		file string
		line int
		most int // times the size of the file
	}{
		{"rules:\n" + items(90_000) + "- a: [\n", 90_002, 2},
		{"rules:\n" + items(90_000) + " name: b\n", 90_002, 2},
		{"rules:\n" + items(45_000) + "- a: [\n" + items(45_000), 45_002, 2},
		{"rules:\n" + items(45_000) + "- a: \"\n" + items(45_000), 45_002, 3},
		{"# rules\nrules: [\n" + strings.Repeat("{name: a},\n", 80_000), 2, 4},
		{"rules: [\n" + strings.Repeat("{name: a},\n", 80_000) + "{a: @}]\n", 0, 6}, // it would take 18 times
	} {
		var document yaml.Node
		s := search{problem: problem(yaml.Unmarshal([]byte(c.file), &document))}
		require.Equal(t, c.line, s.line(bytes.SplitAfter([]byte(c.file), []byte("\n"))), "%.30q: %s", c.file, s.problem)
		require.LessOrEqual(t, s.parsed, c.most*len(c.file), "%.30q", c.file)
	}
}

// TestAllMistakesAtOnce: mistakes of what the file says and of what the rules mean are found together, but none that only
// follows from another.
func TestAllMistakesAtOnce(t *testing.T) {
	_, err := Parse([]byte(`rules:
  - name: a
    match: {hosts: [api.example.com]}
    limits:
      - {name: x, permits: "5", interval: 1s}
      - {name: "{nothing}", permits: 5, interval: 1s}
  - name: b
    limits: []
  - name: c
    limit: []
`))
	var lines []string
	for line := range strings.Lines(err.Error()) {
		at, _, _ := strings.Cut(strings.TrimPrefix(line, "rulefile: line "), ": ")
		lines = append(lines, at)
	}
	require.Equal(t, []string{"5", "6", "8", "10"}, lines, "%v", err)
}
