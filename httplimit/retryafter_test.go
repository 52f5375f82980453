// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWaits: HTTPDetector and Signature understand the same forms of a wait, and take the longest plausible one. The response
// arrives at 08:00:00 on a Tuesday.
func TestWaits(t *testing.T) {
	now := time.Date(2026, 11, 24, 8, 0, 0, 0, time.UTC)
	const none, most = -1, time.Hour
	for _, c := range []struct {
		header http.Header
		wait   time.Duration
	}{
		// RFC 9110: seconds, or one of the three forms of a date.
		{http.Header{"Retry-After": {"30"}}, 30 * time.Second},
		{http.Header{"Retry-After": {"0"}}, 0},
		{http.Header{"Retry-After": {"Tue, 24 Nov 2026 08:00:40 GMT"}}, 40 * time.Second},
		{http.Header{"Retry-After": {"Tuesday, 24-Nov-26 08:00:40 GMT"}}, 40 * time.Second},
		{http.Header{"Retry-After": {"Tue Nov 24 08:00:40 2026"}}, 40 * time.Second},
		{http.Header{"Retry-After": {"Tue, 24 Nov 2026 07:00:00 GMT"}}, 0},
		{http.Header{"Retry-After": {"Tue, 24 Nov 2026 08:00:40 GMT"}, "Date": {"Tue, 24 Nov 2026 08:00:10 GMT"}}, 30 * time.Second},
		// Numbers that are not quite that.
		{http.Header{"Retry-After": {"30.0"}}, 30 * time.Second},
		{http.Header{"Retry-After": {"0.25"}}, 250 * time.Millisecond},
		{http.Header{"Retry-After": {" +30 "}}, 30 * time.Second},
		{http.Header{"Retry-After": {`"30"`}}, 30 * time.Second},
		{http.Header{"Retry-After": {"3e1"}}, 30 * time.Second},
		{http.Header{"Retry-After-Ms": {"1500"}}, 1500 * time.Millisecond},
		{http.Header{"Retry-After": {"1"}, "Retry-After-Ms": {"1500.5"}}, 1500500 * time.Microsecond},
		{http.Header{"Retry-After": {"2"}, "Retry-After-Ms": {"1500"}}, 2 * time.Second},
		// Durations.
		{http.Header{"Retry-After": {"40s"}}, 40 * time.Second},
		{http.Header{"Retry-After": {"6m0.5s"}}, 6*time.Minute + 500*time.Millisecond},
		{http.Header{"Retry-After": {"350ms"}}, 350 * time.Millisecond},
		{http.Header{"Retry-After": {"30 seconds"}}, 30 * time.Second},
		{http.Header{"Retry-After": {"1 Minute 5 sec."}}, 65 * time.Second},
		// Instants.
		{http.Header{"Retry-After": {"Tue, 24 Nov 2026 08:00:40 UTC"}}, 40 * time.Second},
		{http.Header{"Retry-After": {"Tue, 24 Nov 2026 08:00:40 +0000"}}, 40 * time.Second},
		{http.Header{"Retry-After": {"Tue, 24 Nov 2026 16:00:40 +0800"}}, 40 * time.Second},
		{http.Header{"Retry-After": {"24 Nov 2026 08:00:40 GMT"}}, 40 * time.Second},
		{http.Header{"Retry-After": {"2026-11-24T08:00:40Z"}}, 40 * time.Second},
		{http.Header{"Retry-After": {"2026-11-24T16:00:40.5+08:00"}}, 40500 * time.Millisecond},
		{http.Header{"Retry-After": {"2026-11-24 08:00:40"}}, 40 * time.Second},
		{http.Header{"Retry-After": {"1795507240"}}, 40 * time.Second},
		{http.Header{"Retry-After": {"1795507240500"}}, 40500 * time.Millisecond},
		{http.Header{"Retry-After": {"@1795507240"}}, 40 * time.Second},
		// Several: the longest counts that can be meant.
		{http.Header{"Retry-After": {"5, 10"}}, 10 * time.Second},
		{http.Header{"Retry-After": {"10", "5"}}, 10 * time.Second},
		{http.Header{"Retry-After": {"soon", "5"}}, 5 * time.Second},
		{http.Header{"Retry-After": {"5, Tue, 24 Nov 2026 08:00:40 GMT, 7"}}, 40 * time.Second},
		{http.Header{"Retry-After": {"5", "123456789012345678901234567890"}}, 5 * time.Second},
		// What is absurd alone is bounded.
		{http.Header{"Retry-After": {"2592000"}}, most},
		{http.Header{"Retry-After": {"123456789012345678901234567890"}}, most},
		{http.Header{"Retry-After": {strings.Repeat("9", 400)}}, most},
		{http.Header{"Retry-After": {"99999999999999999999 days"}}, most},
		{http.Header{"Retry-After": {"Fri, 31 Dec 9999 23:59:59 GMT"}}, most},
		{http.Header{"Retry-After-Ms": {"99999999999999"}}, most},
		// No waits.
		{http.Header{"Retry-After": {""}}, none},
		{http.Header{"Retry-After": {"-5"}}, none},
		{http.Header{"Retry-After": {"-3s"}}, none},
		{http.Header{"Retry-After": {"NaN"}}, none},
		{http.Header{"Retry-After": {"Infinity"}}, none},
		{http.Header{"Retry-After": {"1e400"}}, none},
		{http.Header{"Retry-After": {"0x10"}}, none},
		{http.Header{"Retry-After": {"soon"}}, none},
		{http.Header{"Retry-After": {"30 parsecs"}}, none},
		{http.Header{"Retry-After": {"Tue, 24 Nov 2026 08:00:40 PST"}}, none}, // which of several
		{http.Header{"Retry-After": {"2026-11-24"}}, none},
	} {
		for name, d := range map[string]Detector{"HTTPDetector": HTTPDetector(), "Signature": Signature{Status: []int{429}}} {
			v := d.Detect(&Response{Status: 429, Header: c.header, Now: now})
			require.True(t, v.Throttled, name)
			if c.wait == none {
				require.Zero(t, v.Until, "%s %v", name, c.header)
				continue
			}
			require.Equal(t, c.wait, v.Until.Sub(now), "%s %v", name, c.header)
			require.Equal(t, c.wait == most, !v.Asked.IsZero(), "%s %v", name, c.header)
		}
	}
}

// TestWaitsInBodies: where the body says how long to wait, beside the header.
func TestWaitsInBodies(t *testing.T) {
	now := time.Date(2026, 11, 24, 8, 0, 0, 0, time.UTC)
	const gemini = `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"retryDelay":"9h"}]},
		{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.074824224s"}]}}`
	for name, c := range map[string]struct {
		at     []string
		xml    map[string]string
		body   string
		header http.Header
		cut    bool
		wait   time.Duration
	}{
		"Gemini":                  {at: []string{"error.details.*.retryDelay"}, body: gemini, wait: 34074824224},
		"Gemini, by its index":    {at: []string{"error.details.1.retryDelay"}, body: gemini, wait: 34074824224},
		"Telegram":                {at: []string{"parameters.retry_after"}, body: `{"ok":false,"error_code":429,"parameters":{"retry_after":35}}`, wait: 35 * time.Second},
		"Discord":                 {at: []string{"retry_after"}, body: `{"message":"You are being rate limited.","retry_after":0.57,"global":false}`, wait: 570 * time.Millisecond},
		"Matrix":                  {at: []string{"retry_after_ms"}, body: `{"errcode":"M_LIMIT_EXCEEDED","retry_after_ms":2500}`, wait: 2500 * time.Millisecond},
		"ms, in the other style":  {at: []string{"retryAfterMs"}, body: `{"retryAfterMs":"2500"}`, wait: 2500 * time.Millisecond},
		"items are not ms":        {at: []string{"items"}, body: `{"items":2}`, wait: 2 * time.Second},
		"an instant":              {at: []string{"until"}, body: `{"until":"2026-11-24T08:00:40Z"}`, wait: 40 * time.Second},
		"XML":                     {at: []string{"Error.RetryAfterSeconds"}, xml: map[string]string{"Error.Code": "*"}, body: `<Error><Code>SlowDown</Code><RetryAfterSeconds>7</RetryAfterSeconds></Error>`, wait: 7 * time.Second},
		"the longest of several":  {at: []string{"a", "b"}, body: `{"a":3,"b":5}`, wait: 5 * time.Second},
		"the header is longer":    {at: []string{"a"}, body: `{"a":3}`, header: http.Header{"Retry-After": {"9"}}, wait: 9 * time.Second},
		"the body is longer":      {at: []string{"a"}, body: `{"a":30}`, header: http.Header{"Retry-After": {"9"}}, wait: 30 * time.Second},
		"absurd beside plausible": {at: []string{"*"}, body: `{"a":3,"b":1e30,"c":-7,"d":true,"e":"x","f":{"g":100},"h":null}`, wait: 3 * time.Second},
		"absurd alone":            {at: []string{"a"}, body: `{"a":1e30}`, wait: time.Hour},
		"none":                    {at: []string{"a"}, body: `{"b":3}`},
		"no JSON":                 {at: []string{"a"}, body: `a=3`},
		"cut":                     {at: []string{"a"}, body: `{"a":3}`, cut: true},
	} {
		s := Signature{Status: []int{429}, WaitFromBody: c.at, XML: c.xml}
		require.NoError(t, CheckRules([]Rule{{Detectors: []Detector{s}}}))
		require.True(t, s.NeedsBody(429, c.header), name)
		require.False(t, s.NeedsBody(200, c.header), name)
		v := s.Detect(&Response{Status: 429, Header: c.header, Body: []byte(c.body), Complete: !c.cut, Now: now})
		require.True(t, v.Throttled, name)
		if c.wait == 0 {
			require.Zero(t, v.Until, name)
		} else {
			require.Equal(t, c.wait, v.Until.Sub(now), name)
		}
	}
}
