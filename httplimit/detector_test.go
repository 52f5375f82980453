// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

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

	want    Verdict       // without Until, Asked and Ignored
	until   time.Duration // after arrival; -1 for a zero Until
	asked   time.Duration // after arrival; 0 for a zero Asked
	ignored string        // of an answer that only looks like a rejection
}

// response is the row's answer, with a Date that is what the platform's clock shows at arrival, rounded
// down, and the Content-Type of a page or of JSON. header is "Name: value" lines; a Date or a Content-Type
// in it replaces these, and one without a value leaves none.
func (d detection) response() *Response {
	r := &Response{
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
func check(t *testing.T, d Detector, table []detection) {
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

func throttled(scope Scope, reason string) Verdict {
	return Verdict{Throttled: true, Scope: scope, Reason: reason}
}

func banned(scope Scope, reason string) Verdict {
	return Verdict{Throttled: true, Banned: true, Scope: scope, Reason: reason}
}

// TestFirst: the order decides, and the detectors are those of the call.
func TestFirst(t *testing.T) {
	say := func(v Verdict) Detector { return DetectorFunc(func(*Response) Verdict { return v }) }
	no, a, b := say(Verdict{Reason: "ignored"}), say(throttled("a", "")), say(banned("b", ""))
	list := []Detector{no, a, b}
	first := First(list...)
	list[1] = b
	require.Equal(t, throttled("a", ""), first.Detect(&Response{}))
	require.Equal(t, banned("b", ""), First(no, b, a).Detect(&Response{}))
	require.Equal(t, Verdict{}, First(no).Detect(&Response{}))
	require.Equal(t, Verdict{}, First().Detect(&Response{}))
}
