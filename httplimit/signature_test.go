// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/stretchr/testify/require"
)

// TestSignature checks which responses have a signature, and the waits that they name.
func TestSignature(t *testing.T) {
	now := time.Date(2026, 11, 24, 8, 0, 0, 0, time.UTC)
	code := func(pattern string) Signature {
		return Signature{Status: []int{200, 429}, JSON: map[string]string{"error.code": pattern}}
	}
	at := func(path, pattern string) Signature {
		return Signature{Status: []int{429}, JSON: map[string]string{path: pattern}}
	}
	from := func(fields ...string) Signature {
		return Signature{Status: []int{429}, WaitFrom: fields, MaxWait: time.Hour}
	}
	for name, c := range map[string]struct {
		s      Signature
		status int
		header http.Header
		body   string
		cut    bool

		reason       string // "" for no match
		wait, longer time.Duration
	}{
		"status":                    {s: Signature{Status: []int{429}}, reason: "status 429"},
		"another status":            {s: Signature{Status: []int{503}}},
		"default wait":              {s: Signature{Status: []int{429}, Wait: time.Minute}, reason: "status 429", wait: time.Minute},
		"reason":                    {s: Signature{Status: []int{429}, Reason: "busy"}, reason: "busy"},
		"code":                      {s: code("Limit*"), body: `{"error":{"code":"LimitExceeded"}}`, reason: "LimitExceeded"},
		"number":                    {s: code("42"), body: `{"error":{"code":42}}`, reason: "42"},
		"large number as it stands": {s: code("12345678901234567890"), body: `{"error":{"code":12345678901234567890}}`, reason: "12345678901234567890"},
		"boolean":                   {s: code("true"), body: `{"error":{"code":true}}`, reason: "true"},
		"an object is no text":      {s: code("*"), body: `{"error":{"code":{}}}`},
		"null is no text":           {s: code("*"), body: `{"error":{"code":null}}`},
		"alternatives":              {s: code("a|b*d|c"), body: `{"error":{"code":"bcd"}}`, reason: "bcd"},
		"none of them":              {s: code("a|b"), body: `{"error":{"code":"c"}}`},
		"the whole text":            {s: code("a"), body: `{"error":{"code":"ab"}}`},
		"stars do not overlap":      {s: code("ab*ba"), body: `{"error":{"code":"aba"}}`},
		"several stars":             {s: code("*quota*day*"), body: `{"error":{"code":"the quota of the day"}}`, reason: "the quota of the day"},
		"in this order":             {s: code("*quota*day*"), body: `{"error":{"code":"day's quota"}}`},
		"not this":                  {s: code("!spent"), body: `{"error":{"code":"busy"}}`, reason: "busy"},
		"but this":                  {s: code("!spent|gone"), body: `{"error":{"code":"gone"}}`},
		"absent is not this":        {s: code("!spent"), body: `{}`, reason: "status 429"},
		"absent is nothing":         {s: code("*"), body: `{}`},
		"list":                      {s: Signature{Status: []int{429}, JSON: map[string]string{"errors.1.code": "b"}}, body: `{"errors":[{"code":"a"},{"code":"b"}]}`, reason: "b"},
		"past the list":             {s: Signature{Status: []int{429}, JSON: map[string]string{"errors.2": "*"}}, body: `{"errors":[1,2]}`},
		"any of a list":             {s: at("errors.*.type", "RATE_LIMITED"), body: `{"data":null,"errors":[{"type":"OTHER"},{"type":"RATE_LIMITED"}]}`, reason: "RATE_LIMITED"},
		"none of a list":            {s: at("errors.*.type", "RATE_LIMITED"), body: `{"errors":[{"type":"OTHER"},{"kind":"RATE_LIMITED"}]}`},
		"the first of a list":       {s: at("errors.*.type", "R*"), body: `{"errors":[{"type":"A"},{"type":"R2"},{"type":"R1"}]}`, reason: "R2"},
		"any of an object":          {s: at("limits.*", "full"), body: `{"limits":{"b":"full","a":"free","c":{"d":"full"}}}`, reason: "full"},
		"objects have an order":     {s: at("limits.*", "*"), body: `{"limits":{"b":"1","a":"2","c":"3"}}`, reason: "2"},
		"lists of lists":            {s: at("*.*.0.code", "x"), body: `[[[{"code":"y"}],[{"code":"x"}]],3,{"a":4}]`, reason: "x"},
		"not so deep":               {s: at("errors.*.type", "x"), body: `{"errors":[[{"type":"x"}]]}`},
		"not in user content":       {s: at("errors.*.type", "x"), body: `{"data":{"errors":[{"type":"x"}]},"errors":"x","list":[{"type":"x"}]}`},
		"a member named *":          {s: at("a.*", "x"), body: `{"a":{"*":"x"}}`, reason: "x"},
		"none of a list is this":    {s: at("errors.*.type", "!x"), body: `{"errors":[{"type":"y"},{"type":"z"}]}`, reason: "y"},
		"one of a list is this":     {s: at("errors.*.type", "!x"), body: `{"errors":[{"type":"y"},{"type":"x"}]}`},
		"an empty list":             {s: at("errors.*.type", "!*"), body: `{"errors":[]}`, reason: "status 429"},
		"two paths, two elements":   {s: Signature{Status: []int{429}, JSON: map[string]string{"errors.*.type": "a", "errors.*.code": "2"}}, body: `{"errors":[{"type":"a","code":1},{"type":"b","code":2}]}`, reason: "2"},
		"too deep":                  {s: at("*.*", "x"), body: strings.Repeat("[", 1<<15) + strings.Repeat("]", 1<<15)},
		"deep, and no text":         {s: at("*.*", "x"), body: strings.Repeat("[", 9000) + strings.Repeat("]", 9000)},
		"wait of a list":            {s: Signature{Status: []int{429}, WaitFromBody: []string{"errors.*.retry_after"}}, body: `{"errors":[{"retry_after":3},{"retry_after":"7s"},{}]}`, reason: "status 429", wait: 7 * time.Second},
		"wait beside it":            {s: Signature{Status: []int{429}, JSON: map[string]string{"errors.*.type": "x"}, WaitFromBody: []string{"errors.*.wait"}}, body: `{"errors":[{"type":"x","wait":3}]}`, reason: "x", wait: 3 * time.Second},
		"cut":                       {s: code("*"), body: `{"error":{"code":"a"}}`, cut: true},
		"more than one value":       {s: code("*"), body: `{"error":{"code":"a"}}{}`},
		"file":                      {s: code("*"), body: `{"error":{"code":"a"}}`, header: http.Header{"Content-Disposition": {"inline"}}},
		"header":                    {s: Signature{Status: []int{429}, Header: map[string]string{"x-state": "*full*"}}, header: http.Header{"X-State": {"is full"}}, reason: "status 429"},
		"header absent":             {s: Signature{Status: []int{429}, Header: map[string]string{"x-state": "*"}}},
		"header is to be absent":    {s: Signature{Status: []int{429}, Header: map[string]string{"x-state": "!*"}}, reason: "status 429"},
		"path":                      {s: Signature{Status: []int{429}, Paths: []string{"/v2/*", "/v1/*/send"}}, reason: "status 429"},
		"another path":              {s: Signature{Status: []int{429}, Paths: []string{"/v1"}}},
		"XML":                       {s: Signature{Status: []int{429}, XML: map[string]string{"Error.Code": "SlowDown"}}, body: `<?xml version="1.0"?><Error xmlns="a"><Code> SlowDown </Code><Code>x</Code></Error>`, reason: "SlowDown"},
		"XML, the second":           {s: Signature{Status: []int{429}, XML: map[string]string{"Errors.E.Code": "SlowDown"}}, body: `<Errors><E><Code>A</Code></E><E><Code>SlowDown</Code></E></Errors>`, reason: "SlowDown"},
		"XML, none of them":         {s: Signature{Status: []int{429}, XML: map[string]string{"Errors.E.Code": "!SlowDown"}}, body: `<Errors><E><Code>A</Code></E><E><Code>SlowDown</Code></E></Errors>`},
		"XML elsewhere":             {s: Signature{Status: []int{429}, XML: map[string]string{"Error.Code": "*"}}, body: `<Error><A><Code>SlowDown</Code></A></Error>`},
		"XML broken":                {s: Signature{Status: []int{429}, XML: map[string]string{"Error.Code": "*"}}, body: `<Error><Code>SlowDown</Code></Oops>`},
		"XML cut":                   {s: Signature{Status: []int{429}, XML: map[string]string{"Error.Code": "*"}}, body: `<Error><Code>SlowDown</Code>`, cut: true},

		"Retry-After":        {s: Signature{Status: []int{429}}, header: http.Header{"Retry-After": {"7"}}, reason: "status 429", wait: 7 * time.Second},
		"bounded":            {s: Signature{Status: []int{429}, MaxWait: time.Minute}, header: http.Header{"Retry-After": {"90"}}, reason: "status 429", wait: time.Minute, longer: 90 * time.Second},
		"duration":           {s: from("X-Reset"), header: http.Header{"X-Reset": {"6m0.5s"}}, reason: "status 429", wait: 6*time.Minute + 500*time.Millisecond},
		"decimals":           {s: from("X-Reset"), header: http.Header{"X-Reset": {"0.25"}}, reason: "status 429", wait: 250 * time.Millisecond},
		"epoch":              {s: from("X-Reset"), header: http.Header{"X-Reset": {"1795507230"}}, reason: "status 429", wait: 30 * time.Second},
		"epoch, ms":          {s: from("X-Reset"), header: http.Header{"X-Reset": {"1795507230500"}}, reason: "status 429", wait: 30500 * time.Millisecond},
		"RFC 3339":           {s: from("X-Reset"), header: http.Header{"X-Reset": {"2026-11-24T08:00:20Z"}}, reason: "status 429", wait: 20 * time.Second},
		"HTTP date":          {s: from("X-Reset"), header: http.Header{"X-Reset": {"Tue, 24 Nov 2026 08:00:10 GMT"}}, reason: "status 429", wait: 10 * time.Second},
		"the platform's now": {s: from("X-Reset"), header: http.Header{"X-Reset": {"1795507230"}, "Date": {"Tue, 24 Nov 2026 08:00:10 GMT"}}, reason: "status 429", wait: 20 * time.Second},
		"the longest":        {s: from("X-A", "X-B"), header: http.Header{"X-A": {"3"}, "X-B": {"2s"}}, reason: "status 429", wait: 3 * time.Second},
		"in the past":        {s: from("X-Reset"), header: http.Header{"X-Reset": {"1000000000"}}, reason: "status 429", wait: -1},
		"no wait":            {s: from("X-Reset"), header: http.Header{"X-Reset": {"soon"}}, reason: "status 429"},
		"not a number":       {s: from("X-Reset"), header: http.Header{"X-Reset": {"NaN"}}, reason: "status 429"},
		"negative":           {s: from("X-Reset"), header: http.Header{"X-Reset": {"-3s"}}, reason: "status 429"},
		"infinite":           {s: from("X-Reset"), header: http.Header{"X-Reset": {"1e400"}}, reason: "status 429"},
		"very long":          {s: from("X-Reset"), header: http.Header{"X-Reset": {"1e300"}}, reason: "status 429", wait: time.Hour, longer: 1},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, CheckRules([]Rule{{Detectors: []Detector{c.s}}}))
			r := &Response{Request: httptest.NewRequest("POST", "http://x/v1/messages//send", nil), Status: 429, Header: c.header, Body: []byte(c.body), Complete: !c.cut, Now: now}
			if c.header == nil {
				r.Header = http.Header{}
			}
			v := c.s.Detect(r)
			require.Equal(t, c.reason != "", v.Throttled)
			require.Equal(t, c.reason, v.Reason)
			switch {
			case c.wait == 0:
				require.Zero(t, v.Until)
			case c.wait < 0:
				require.Equal(t, now, v.Until)
			default:
				require.Equal(t, c.wait, v.Until.Sub(now))
			}
			switch {
			case c.longer == 0:
				require.Zero(t, v.Asked)
			case c.longer > 1:
				require.Equal(t, c.longer, v.Asked.Sub(now))
			default:
				require.True(t, v.Asked.After(v.Until))
			}
			if len(c.s.JSON)+len(c.s.XML)+len(c.s.WaitFromBody) == 0 {
				require.False(t, c.s.NeedsBody(429, r.Header))
			}
			require.False(t, c.s.NeedsBody(404, r.Header))
		})
	}
}

// TestSignatureChecked checks that a signature which cannot be meant is told with its field.
func TestSignatureChecked(t *testing.T) {
	one := map[string]string{"a": "b"}
	for name, s := range map[string]Signature{
		"a status":               {Status: []int{429}},
		"json and header":        {Status: []int{429}, JSON: one, Header: one},
		"xml and header":         {Status: []int{429}, XML: one, Header: one},
		"200 and json":           {Status: []int{200}, JSON: one},
		"200 and xml":            {Status: []int{200}, XML: one},
		"200 and header":         {Status: []int{200}, Header: one},
		"200, json and header":   {Status: []int{200}, JSON: one, Header: one},
		"several json":           {Status: []int{429, 503}, JSON: map[string]string{"a": "b", "c.0.d": "!*"}},
		"stars":                  {Status: []int{429}, JSON: map[string]string{"a.*.b": "c", "*": "d", "*.*": "!e"}, WaitFromBody: []string{"*"}},
		"waits in XML":           {Status: []int{429}, XML: one, WaitFromBody: []string{"Error.Wait"}},
		"paths":                  {Status: []int{429}, Paths: []string{"/v1/*", "*", "!/v2"}},
		"waits":                  {Status: []int{429}, WaitFrom: []string{"X-Wait"}, Wait: time.Second, MaxWait: maxPenalty},
		"the first and the last": {Status: []int{100, 599}},
	} {
		require.NoError(t, CheckRules([]Rule{{Detectors: []Detector{s}}}), name)
	}
	for field, s := range map[string]Signature{
		"status":       {},
		"status ":      {Status: []int{42}},
		"status  ":     {Status: []int{200}},
		"xml":          {Status: []int{429}, JSON: map[string]string{"a": "b"}, XML: map[string]string{"a": "b"}},
		"json":         {Status: []int{429}, JSON: map[string]string{"a..b": "c"}},
		"json.a":       {Status: []int{429}, JSON: map[string]string{"a": "!"}},
		"header":       {Status: []int{429}, Header: map[string]string{"": "b"}},
		"header ":      {Status: []int{429}, Header: map[string]string{"Retry-After:": "*"}},
		"header  ":     {Status: []int{429}, Header: map[string]string{"X Reason": "quota"}},
		"wait_from[1]": {Status: []int{429}, WaitFrom: []string{"Retry-After", "X-Wait "}},
		"header.A":     {Status: []int{429}, Header: map[string]string{"A": ""}},
		"paths[0]":     {Status: []int{429}, Paths: []string{"v1"}},
		"wait_from[0]": {Status: []int{429}, WaitFrom: []string{""}},

		"json ":              {Status: []int{429}, JSON: map[string]string{"errors[].type": "c"}},
		"json  ":             {Status: []int{429}, JSON: map[string]string{"errors[0].type": "c"}},
		"json   ":            {Status: []int{429}, JSON: map[string]string{"err*.type": "c"}},
		"json    ":           {Status: []int{429}, JSON: map[string]string{"$.error": "c"}},
		"json     ":          {Status: []int{429}, JSON: map[string]string{"/error/code": "c"}},
		"json      ":         {Status: []int{429}, JSON: map[string]string{"errors.*.type ": "c"}},
		"xml ":               {Status: []int{429}, XML: map[string]string{"Error.*": "c"}},
		"wait_from_body[0]":  {Status: []int{429}, WaitFromBody: []string{"errors[].wait"}},
		"wait_from_body[0] ": {Status: []int{429}, XML: map[string]string{"Error.Code": "c"}, WaitFromBody: []string{"Error.*"}},
		"wait_from_body[1]":  {Status: []int{429}, WaitFromBody: []string{"a.*.b", "a..b"}},
		"wait":               {Status: []int{429}, Wait: -1},
		"max_wait":           {Status: []int{429}, MaxWait: 48 * time.Hour},
	} {
		err := CheckRules([]Rule{{Detectors: []Detector{s}}})
		var f *FieldError
		require.True(t, errors.As(err, &f), "%s: %v", field, err)
		require.Equal(t, "rules[0].detectors[0]."+strings.TrimSpace(field), f.Field)
		inWorld(t, func(t *testing.T, w *world) {
			_, err := New(w.client, WithDetectors(s))
			require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
		})
	}
}
