// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/internal/envelope"
	"github.com/stretchr/testify/require"
)

// arrival is when the responses of these tests arrive: 2026-09-03 00:01:02.5 in China.
var arrival = time.Date(2026, 9, 2, 16, 1, 2, 500_000_000, time.UTC)

// A detection is one row of a table: what a platform answers, and what a detector makes of it.
type detection struct {
	name   string
	status int // 200 when 0
	header string
	body   string
	cut    bool   // the body goes on after what is here
	url    string // of the request

	want    httplimit.Verdict // without Until, Asked and Ignored
	until   time.Duration     // after arrival; -1 for a zero Until
	asked   time.Duration     // after arrival; 0 for a zero Asked
	ignored string            // of an answer that only looks like a refusal
}

// response is the row's answer, with a Date that is what the platform's clock shows at arrival, rounded
// down, and the Content-Type of a page or of JSON. header is "Name: value" lines; a Date or a Content-Type
// in it replaces these, and one without a value leaves none.
func (d detection) response() *httplimit.Response {
	r := &httplimit.Response{
		Status: d.status, Body: []byte(d.body), Complete: !d.cut, Now: arrival,
		Header: http.Header{"Date": {arrival.Format(http.TimeFormat)}, "Content-Type": {"application/json"}},
	}
	if strings.HasPrefix(strings.TrimSpace(d.body), "<") {
		r.Header.Set("Content-Type", "text/html;charset=UTF-8")
	}
	if r.Status == 0 {
		r.Status = http.StatusOK
	}
	if d.url != "" {
		r.Request = httptest.NewRequest(http.MethodPost, d.url, nil)
	}
	set := map[string]bool{}
	for _, line := range headerLines(d.header) {
		if !set[line[0]] {
			r.Header.Del(line[0])
		}
		if set[line[0]] = true; line[1] != "" {
			r.Header.Add(line[0], line[1])
		}
	}
	return r
}

// check runs a detector over a table.
func check(t *testing.T, d httplimit.Detector, table []detection) {
	t.Helper()
	for _, row := range table {
		t.Run(row.name, func(t *testing.T) {
			want := row.want
			if want.Throttled && row.until >= 0 {
				want.Until = arrival.Add(row.until)
			}
			if row.asked > 0 {
				want.Asked = arrival.Add(row.asked)
			}
			got := d.Detect(row.response())
			require.Equal(t, row.ignored, got.Ignored)
			if row.ignored != "" {
				require.NotEmpty(t, got.Reason)
				got.Ignored, got.Reason = "", ""
			}
			require.Equal(t, want, got, "%s", row.body)
		})
	}
}

func throttled(scope httplimit.Scope, reason string) httplimit.Verdict {
	return httplimit.Verdict{Throttled: true, Scope: scope, Reason: reason}
}

func banned(scope httplimit.Scope, reason string) httplimit.Verdict {
	return httplimit.Verdict{Throttled: true, Banned: true, Scope: scope, Reason: reason}
}

func headerLines(s string) (lines [][2]string) {
	for line := range strings.Lines(s) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		lines = append(lines, [2]string{name, strings.TrimSpace(value)})
	}
	return lines
}

// TestNeedsBody: an answer is not read ahead for detectors that can tell without its body.
func TestNeedsBody(t *testing.T) {
	text, image := http.Header{"Content-Type": {"application/json"}}, http.Header{"Content-Type": {"image/png"}}
	for _, c := range []struct {
		name            string
		d               httplimit.Detector
		ok, no, picture bool // a text with 200, one with 403, a picture with 403
	}{
		{"old", DingTalkOldDetector(), true, true, false},
		{"new", DingTalkNewDetector(), false, true, true},
		{"GitHub", GitHubDetector(), false, true, true},
		{"HTTP", httplimit.HTTPDetector(), false, false, false},
		{"none", httplimit.First(), false, false, false},
		{"first of those without", httplimit.First(httplimit.HTTPDetector(), GitHubDetector()), false, true, true},
		{"first of all", httplimit.First(httplimit.HTTPDetector(), WeComDetector()), true, true, false},
		{"adjusted", adjusted{Detector: GitHubDetector()}, false, true, true},
	} {
		require.Equal(t, c.ok, envelope.NeedsBody(c.d, 200, text), c.name)
		require.Equal(t, c.no, envelope.NeedsBody(c.d, 403, text), c.name)
		require.Equal(t, c.picture, envelope.NeedsBody(c.d, 403, image), c.name)
	}
}
