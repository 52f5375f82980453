// SPDX-License-Identifier: Apache-2.0

// Package detecttest has the tables by which detectors are tested.
package detecttest

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/stretchr/testify/require"
)

// Arrival is when the responses arrive: 2026-09-03 00:01:02.5 in China.
var Arrival = time.Date(2026, 9, 2, 16, 1, 2, 500_000_000, time.UTC)

// A Row is what a platform answers, and what a detector makes of it.
type Row struct {
	Name   string
	Status int // 200 when 0
	Header string
	Body   string
	Cut    bool   // the body goes on after what is here
	URL    string // of the request

	Want    httplimit.Verdict // without Until, Asked and Ignored
	Until   time.Duration     // after arrival; -1 for a zero Until
	Asked   time.Duration     // after arrival; 0 for a zero Asked
	Ignored string            // of an answer that only looks like a rejection
}

// Response returns the row's answer, with a Date that is what the platform's clock shows at arrival, rounded down, and the
// Content-Type of a page or of JSON. Header is "Name: value" lines; a Date or a Content-Type in it replaces these, and one without a
// value leaves none.
func (d Row) Response() *httplimit.Response {
	r := &httplimit.Response{
		Status: cmp.Or(d.Status, http.StatusOK), Body: []byte(d.Body), Complete: !d.Cut, Now: Arrival,
		Header: http.Header{"Date": {Arrival.Format(http.TimeFormat)}, "Content-Type": {"application/json"}},
	}
	if strings.HasPrefix(strings.TrimSpace(d.Body), "<") {
		r.Header.Set("Content-Type", "text/html;charset=UTF-8")
	}
	if d.URL != "" {
		r.Request = httptest.NewRequest(http.MethodPost, d.URL, nil)
	}
	set := map[string]bool{}
	for _, line := range HeaderLines(d.Header) {
		if !set[line[0]] {
			r.Header.Del(line[0])
		}
		if set[line[0]] = true; line[1] != "" {
			r.Header.Add(line[0], line[1])
		}
	}
	return r
}

// HeaderLines returns the names and values of "Name: value" lines.
func HeaderLines(s string) (lines [][2]string) {
	for line := range strings.Lines(s) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		lines = append(lines, [2]string{name, strings.TrimSpace(value)})
	}
	return lines
}

// Check runs a detector over a table.
func Check(t *testing.T, d httplimit.Detector, table []Row) {
	t.Helper()
	for _, row := range table {
		t.Run(row.Name, func(t *testing.T) {
			want := row.Want
			if want.Throttled && row.Until >= 0 {
				want.Until = Arrival.Add(row.Until)
			}
			if row.Asked > 0 {
				want.Asked = Arrival.Add(row.Asked)
			}
			got := d.Detect(row.Response())
			require.Equal(t, row.Ignored, got.Ignored)
			if row.Ignored != "" {
				require.NotEmpty(t, got.Reason)
				got.Ignored, got.Reason = "", ""
			}
			require.Equal(t, want, got, "%s", row.Body)
		})
	}
}

// Throttled returns the verdict of a request that was throttled.
func Throttled(scope httplimit.Scope, reason string) httplimit.Verdict {
	return httplimit.Verdict{Throttled: true, Scope: scope, Reason: reason}
}

// Banned returns the verdict of a request whose sender is banned.
func Banned(scope httplimit.Scope, reason string) httplimit.Verdict {
	return httplimit.Verdict{Throttled: true, Banned: true, Scope: scope, Reason: reason}
}
