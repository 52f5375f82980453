// SPDX-License-Identifier: Apache-2.0

package httplimit_test

import (
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/internal/detecttest"
	"github.com/goredisson/ratelimiter/httplimit/internal/envelope"
)

// httpRows: RFC 9110 §10.2.3 and draft-ietf-httpapi-ratelimit-headers-11.
var httpRows = []detecttest.Row{
	{Name: "seconds", Status: 429, Until: 120 * time.Second, Want: detecttest.Throttled("", "status 429"), Header: "Retry-After: 120\n"},
	{Name: "a date", Status: 429, Until: 57 * time.Second, Want: detecttest.Throttled("", "status 429"), Header: "Retry-After: Wed, 02 Sep 2026 16:01:59 GMT\n"},
	{Name: "a date of an older form", Status: 503, Until: 57 * time.Second, Want: detecttest.Throttled("", "status 503"), Header: "Retry-After: Wednesday, 02-Sep-26 16:01:59 GMT\n"},
	{Name: "a date in the past", Status: 429, Until: 0, Want: detecttest.Throttled("", "status 429"), Header: "Retry-After: Fri, 31 Dec 1999 23:59:59 GMT\n"},
	{Name: "at once", Status: 429, Until: 0, Want: detecttest.Throttled("", "status 429"), Header: "Retry-After: 0\n"},
	{Name: "a month", Status: 429, Until: time.Hour, Asked: 30 * 24 * time.Hour, Want: detecttest.Throttled("", "status 429"), Header: "Retry-After: 2592000\n"},
	{Name: "a huge number", Status: 429, Until: time.Hour, Asked: envelope.MaxSeconds * time.Second, Want: detecttest.Throttled("", "status 429"), Header: "Retry-After: 123456789012345678901234567890\n"},
	{Name: "without any header", Status: 429, Until: -1, Want: detecttest.Throttled("", "status 429"), Body: `{"message":"slow down"}`},
	{Name: "a Retry-After that is none", Status: 429, Until: -1, Want: detecttest.Throttled("", "status 429"), Header: "Retry-After: -5\n"},
	{Name: "a fraction", Status: 429, Until: 1500 * time.Millisecond, Want: detecttest.Throttled("", "status 429"), Header: "Retry-After: 1.5\n"},
	{Name: "unavailable for a while", Status: 503, Until: 5 * time.Second, Want: detecttest.Throttled("", "status 503"), Header: "Retry-After: 5\n"},
	{Name: "RateLimit", Status: 429, Until: 30 * time.Second, Want: detecttest.Throttled("", "status 429"), Header: "RateLimit: \"default\";r=0;t=30\n"},
	{Name: "RateLimit on 503", Status: 503, Until: 30 * time.Second, Want: detecttest.Throttled("", "status 503"), Header: "RateLimit: \"default\";r=0;t=30\n"},
	{Name: "Retry-After wins", Status: 429, Until: 5 * time.Second, Want: detecttest.Throttled("", "status 429"), Header: "Retry-After: 5\nRateLimit: \"default\";r=0;t=30\n"},
	{Name: "RateLimit where Retry-After is none", Status: 429, Until: 30 * time.Second, Want: detecttest.Throttled("", "status 429"), Header: "Retry-After: soon\nRateLimit: \"default\";r=0;t=30\n"},
	{Name: "the longest of those exhausted", Status: 429, Until: 40 * time.Second, Want: detecttest.Throttled("", "status 429"),
		Header: "RateLimit: \"second\";r=0;t=1, \"minute\";r=0;t=40, \"tick\";r=0;t=2\nRateLimit: \"hour\";r=50;t=3000\n"},
	{Name: "the window for want of t", Status: 429, Until: time.Minute, Want: detecttest.Throttled("", "status 429"),
		Header: "RateLimit: \"burst\";r=0\nRateLimit-Policy: \"daily\";q=1000;w=86400,\"burst\";q=100;w=60\n"},
	{Name: "the window is not for one that has t", Status: 429, Until: 7 * time.Second, Want: detecttest.Throttled("", "status 429"),
		Header: "RateLimit: \"burst\";r=0;t=7\nRateLimit-Policy: \"burst\";q=100;w=60\n"},
	{Name: "a partition key", Status: 429, Until: 30 * time.Second, Want: detecttest.Throttled("", "status 429"), Header: "RateLimit: \"peruser\";r=0;pk=:cHsdsRa894==:;t=30\n"},
	{Name: "nothing exhausted", Status: 429, Until: -1, Want: detecttest.Throttled("", "status 429"), Header: "RateLimit: \"default\";r=5;t=30\n"},
	{Name: "a negative t", Status: 429, Until: -1, Want: detecttest.Throttled("", "status 429"), Header: "RateLimit: \"default\";r=0;t=-30\n"},
	{Name: "a decimal t", Status: 429, Until: -1, Want: detecttest.Throttled("", "status 429"), Header: "RateLimit: \"default\";r=0;t=30.5\n"},
	{Name: "a quoted r", Status: 429, Until: -1, Want: detecttest.Throttled("", "status 429"), Header: "RateLimit: \"default\";r=\"0\";t=30\n"},
	{Name: "a malformed field is ignored", Status: 429, Until: -1, Want: detecttest.Throttled("", "status 429"), Header: "RateLimit: \"default\";r=0;t=30, \"second\";;\n"},
	{Name: "draft 07", Status: 429, Until: 30 * time.Second, Want: detecttest.Throttled("", "status 429"), Header: "RateLimit: limit=100, remaining=0, reset=30\n"},
	{Name: "draft 07 on 503", Status: 503, Until: 30 * time.Second, Want: detecttest.Throttled("", "status 503"), Header: "RateLimit: limit=100, remaining=0, reset=30\n"},
	{Name: "draft 07 with something left", Status: 429, Until: -1, Want: detecttest.Throttled("", "status 429"), Header: "RateLimit: limit=100, remaining=7, reset=30\n"},
	{Name: "draft 06", Status: 429, Until: 30 * time.Second, Want: detecttest.Throttled("", "status 429"), Header: "RateLimit-Limit: 100, 100;w=60\nRateLimit-Remaining: 0\nRateLimit-Reset: 30\n"},
	{Name: "draft 06, the reset alone", Status: 429, Until: 30 * time.Second, Want: detecttest.Throttled("", "status 429"), Header: "RateLimit-Reset: 30\n"},
	{Name: "draft 06 with something left", Status: 429, Until: -1, Want: detecttest.Throttled("", "status 429"), Header: "RateLimit-Remaining: 7\nRateLimit-Reset: 30\n"},
	{Name: "draft 06 with an instant, as GitLab writes it", Status: 429, Until: 30 * time.Second, Want: detecttest.Throttled("", "status 429"), Header: "Date: Wed, 02 Sep 2026 16:01:02 GMT\nRateLimit-Remaining: 0\nRateLimit-Reset: 1788364892\n"},
	{Name: "draft 06 with a day", Status: 429, Until: time.Hour, Asked: 24 * time.Hour, Want: detecttest.Throttled("", "status 429"), Header: "RateLimit-Reset: 86400\n"},
	{Name: "the current draft wins", Status: 429, Until: 5 * time.Second, Want: detecttest.Throttled("", "status 429"), Header: "RateLimit: \"default\";r=0;t=5\nRateLimit-Remaining: 0\nRateLimit-Reset: 30\n"},
	{Name: "down, with the reset of draft 06 alone", Status: 503, Header: "RateLimit-Reset: 30\n"},
	{Name: "a reset of unknown unit is not read", Status: 429, Until: -1, Want: detecttest.Throttled("", "status 429"), Header: "X-RateLimit-Reset: 30\nX-RateLimit-Remaining: 0\n"},

	{Name: "down", Status: 503, Body: `<html>503</html>`},
	{Name: "down, with something left", Status: 503, Header: "RateLimit: \"default\";r=5;t=30\n"},
	{Name: "the last request that was served", Status: 200, Header: "RateLimit: \"default\";r=0;t=30\n"},
	{Name: "Retry-After on a redirect", Status: 301, Header: "Retry-After: 30\n"},
	{Name: "Retry-After on 202", Status: 202, Header: "Retry-After: 30\n"},
	{Name: "Retry-After on 413", Status: 413, Header: "Retry-After: 30\n"},
	{Name: "403", Status: 403, Body: "rate limit exceeded"},
}

func TestHTTPDetector(t *testing.T) { detecttest.Check(t, httplimit.HTTPDetector(), httpRows) }
