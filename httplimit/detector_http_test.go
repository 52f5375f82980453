// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/httplimit/internal/envelope"
	"github.com/stretchr/testify/require"
)

func headerLines(s string) (lines [][2]string) {
	for line := range strings.Lines(s) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		lines = append(lines, [2]string{name, strings.TrimSpace(value)})
	}
	return lines
}

// httpRows: RFC 9110 §10.2.3 and draft-ietf-httpapi-ratelimit-headers-11.
var httpRows = []detection{
	{name: "seconds", status: 429, until: 120 * time.Second, want: throttled("", "status 429"), header: "Retry-After: 120\n"},
	{name: "a date", status: 429, until: 57 * time.Second, want: throttled("", "status 429"), header: "Retry-After: Wed, 02 Sep 2026 16:01:59 GMT\n"},
	{name: "a date of an older form", status: 503, until: 57 * time.Second, want: throttled("", "status 503"), header: "Retry-After: Wednesday, 02-Sep-26 16:01:59 GMT\n"},
	{name: "a date in the past", status: 429, until: 0, want: throttled("", "status 429"), header: "Retry-After: Fri, 31 Dec 1999 23:59:59 GMT\n"},
	{name: "at once", status: 429, until: 0, want: throttled("", "status 429"), header: "Retry-After: 0\n"},
	{name: "a month", status: 429, until: time.Hour, asked: 30 * 24 * time.Hour, want: throttled("", "status 429"), header: "Retry-After: 2592000\n"},
	{name: "a huge number", status: 429, until: time.Hour, asked: envelope.MaxSeconds * time.Second, want: throttled("", "status 429"), header: "Retry-After: 123456789012345678901234567890\n"},
	{name: "without any header", status: 429, until: -1, want: throttled("", "status 429"), body: `{"message":"slow down"}`},
	{name: "a Retry-After that is none", status: 429, until: -1, want: throttled("", "status 429"), header: "Retry-After: -5\n"},
	{name: "a fraction", status: 429, until: -1, want: throttled("", "status 429"), header: "Retry-After: 1.5\n"},
	{name: "unavailable for a while", status: 503, until: 5 * time.Second, want: throttled("", "status 503"), header: "Retry-After: 5\n"},
	{name: "RateLimit", status: 429, until: 30 * time.Second, want: throttled("", "status 429"), header: "RateLimit: \"default\";r=0;t=30\n"},
	{name: "RateLimit on 503", status: 503, until: 30 * time.Second, want: throttled("", "status 503"), header: "RateLimit: \"default\";r=0;t=30\n"},
	{name: "Retry-After wins", status: 429, until: 5 * time.Second, want: throttled("", "status 429"), header: "Retry-After: 5\nRateLimit: \"default\";r=0;t=30\n"},
	{name: "RateLimit where Retry-After is none", status: 429, until: 30 * time.Second, want: throttled("", "status 429"), header: "Retry-After: soon\nRateLimit: \"default\";r=0;t=30\n"},
	{name: "the longest of those exhausted", status: 429, until: 40 * time.Second, want: throttled("", "status 429"),
		header: "RateLimit: \"second\";r=0;t=1, \"minute\";r=0;t=40, \"tick\";r=0;t=2\nRateLimit: \"hour\";r=50;t=3000\n"},
	{name: "the window for want of t", status: 429, until: time.Minute, want: throttled("", "status 429"),
		header: "RateLimit: \"burst\";r=0\nRateLimit-Policy: \"daily\";q=1000;w=86400,\"burst\";q=100;w=60\n"},
	{name: "the window is not for one that has t", status: 429, until: 7 * time.Second, want: throttled("", "status 429"),
		header: "RateLimit: \"burst\";r=0;t=7\nRateLimit-Policy: \"burst\";q=100;w=60\n"},
	{name: "a partition key", status: 429, until: 30 * time.Second, want: throttled("", "status 429"), header: "RateLimit: \"peruser\";r=0;pk=:cHsdsRa894==:;t=30\n"},
	{name: "nothing exhausted", status: 429, until: -1, want: throttled("", "status 429"), header: "RateLimit: \"default\";r=5;t=30\n"},
	{name: "a negative t", status: 429, until: -1, want: throttled("", "status 429"), header: "RateLimit: \"default\";r=0;t=-30\n"},
	{name: "a decimal t", status: 429, until: -1, want: throttled("", "status 429"), header: "RateLimit: \"default\";r=0;t=30.5\n"},
	{name: "a quoted r", status: 429, until: -1, want: throttled("", "status 429"), header: "RateLimit: \"default\";r=\"0\";t=30\n"},
	{name: "a malformed field is ignored", status: 429, until: -1, want: throttled("", "status 429"), header: "RateLimit: \"default\";r=0;t=30, \"second\";;\n"},
	{name: "the drafts before", status: 429, until: -1, want: throttled("", "status 429"), header: "RateLimit: limit=100, remaining=0, reset=30\n"},
	{name: "a reset of unknown unit is not read", status: 429, until: -1, want: throttled("", "status 429"), header: "X-RateLimit-Reset: 30\nX-RateLimit-Remaining: 0\n"},

	{name: "down", status: 503, body: `<html>503</html>`},
	{name: "down, with something left", status: 503, header: "RateLimit: \"default\";r=5;t=30\n"},
	{name: "the last request that was served", status: 200, header: "RateLimit: \"default\";r=0;t=30\n"},
	{name: "Retry-After on a redirect", status: 301, header: "Retry-After: 30\n"},
	{name: "Retry-After on 202", status: 202, header: "Retry-After: 30\n"},
	{name: "Retry-After on 413", status: 413, header: "Retry-After: 30\n"},
	{name: "403", status: 403, body: "rate limit exceeded"},
}

func TestHTTPDetector(t *testing.T) { check(t, HTTPDetector(), httpRows) }

// TestParseItems: beside it, TestFieldsThatRFC9651Rejects has most of what is no list.
func TestParseItems(t *testing.T) {
	item := func(name string, integers map[string]int64) fieldItem { return fieldItem{name, integers} }
	none := map[string]int64{}
	for _, c := range []struct {
		field string
		want  []fieldItem
		ok    bool
	}{
		{``, nil, true},
		{`  `, nil, true},
		{`"a"`, []fieldItem{item("a", none)}, true},
		{`tok/en;w=1`, []fieldItem{item("tok/en", map[string]int64{"w": 1})}, true},
		{`""`, []fieldItem{item("", none)}, true},
		{`"a\"\\b";r=0`, []fieldItem{item(`a"\b`, map[string]int64{"r": 0})}, true},
		{`"a" ,	"b"`, []fieldItem{item("a", none), item("b", none)}, true},
		{`"a";  r=1;t=-2`, []fieldItem{item("a", map[string]int64{"r": 1, "t": -2})}, true},
		{`"a";r=1;r=2`, []fieldItem{item("a", map[string]int64{"r": 2})}, true},
		{`"a";r=1;r`, []fieldItem{item("a", none)}, true},
		{`"a";b;c=?1;d=?0;e=tok;f=:YQ==:;g=@1;h=%"%c3%bc";i=1.25;j="5";*k=3`, []fieldItem{item("a", map[string]int64{"*k": 3})}, true},
		{`"a";r=999999999999999`, []fieldItem{item("a", map[string]int64{"r": 999999999999999})}, true},

		{`"a`, nil, false},
		{`"a\`, nil, false},
		{`"ü"`, nil, false},
		{`"a" "b"`, nil, false},
		{`"a";r=`, nil, false},
		{`"a";r=-`, nil, false},
		{`"a";r=?`, nil, false},
		{`"a";r=@x`, nil, false},
		{`"a";r=%a`, nil, false},
		{`"a";r=%"a`, nil, false},
		{`5;r=0`, nil, false},
		{`?1;r=0`, nil, false},
		{`:YQ==:;r=0`, nil, false},
		{`("a" "b");r=0`, nil, false},
		{`a=1`, nil, false},
	} {
		got, ok := parseItems([]string{c.field})
		require.Equal(t, c.ok, ok, "%s", c.field)
		require.Equal(t, c.want, got, "%s", c.field)
	}
}
