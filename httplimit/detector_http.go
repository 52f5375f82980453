// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/httplimit/internal/envelope"
)

// HTTPDetector returns a Detector for the rejections that HTTP itself defines. Use it for platforms without a
// detector of their own.
//
//   - 429 (RFC 6585 §4) is Throttled, whatever its header is.
//   - 503 is Throttled if Retry-After, or RateLimit with nothing remaining, says when to come back; otherwise the
//     server is down.
//
// Until comes from Retry-After, in seconds or as a date (RFC 9110 §10.2.3), or from Retry-After-Ms, whichever is
// longer. Some platforms and proxies do not keep to the RFC. So the detector also reads fractions, durations such as
// 40s, dates in UTC, with an offset or of RFC 3339, and instants in seconds or milliseconds since 1970. Of several
// values the longest plausible one counts, at most 366 days. A text in none of these forms is ignored.
//
// Without such a wait, Until comes from the RateLimit items whose "r" is 0 (draft-ietf-httpapi-ratelimit-headers-11,
// https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/). It is the longest of their "t"; an item
// without "t" counts with the window "w" of the policy of that name in RateLimit-Policy. Without such an item it comes
// from the earlier drafts: the field RateLimit-Reset (up to draft 06), or "reset" in RateLimit (draft 07), if
// RateLimit-Remaining, or "remaining", is 0. With 429 it may be absent. GitLab writes an instant there, in seconds since
// 1970, which is read, too. Without these Until is zero. It is never further off than [WithMaxRetryAfter] says.
//
// "r=0" with any other status is not Throttled: the request was executed, and the draft gives it no further meaning,
// so a hint to one client would silence a fleet. X-RateLimit-Reset and similar fields are not read, because some
// platforms write an instant there and others a number of seconds.
func HTTPDetector() Detector {
	return headerDetector{func(r *Response) Verdict {
		if r.Status != http.StatusTooManyRequests && r.Status != http.StatusServiceUnavailable {
			return Verdict{}
		}
		v := Verdict{Throttled: true, Reason: "status " + strconv.Itoa(r.Status)}
		wait, known := envelope.RetryAfter(r.Header, r.Now)
		if !known {
			wait, known = r.rateLimitReset()
		}
		if !known {
			wait, known = r.earlierReset()
		}
		if known {
			return v.bounded(r, wait, r.longestRetryAfter())
		}
		if r.Status == http.StatusServiceUnavailable {
			return Verdict{}
		}
		return v
	}}
}

// defaultMaxRetryAfter is the bound of Retry-After unless [WithMaxRetryAfter] sets another. An hour is the longest window of
// a documented limit whose end such a header names (GitHub's). If a host asks for more, a request is sent to it once an hour.
const defaultMaxRetryAfter = time.Hour

func (r *Response) longestRetryAfter() time.Duration {
	return cmp.Or(r.maxRetryAfter, defaultMaxRetryAfter)
}

// rateLimitReset returns how long it takes until the exhausted quotas of RateLimit are open again.
func (r *Response) rateLimitReset() (longest time.Duration, known bool) {
	items, _ := parseItems(r.Header.Values("Ratelimit"))
	policies, _ := parseItems(r.Header.Values("Ratelimit-Policy"))
	for _, item := range items {
		if left, ok := item.integers["r"]; !ok || left != 0 {
			continue
		}
		wait, ok := item.integers["t"]
		for _, p := range policies {
			if !ok && p.name == item.name {
				wait, ok = p.integers["w"]
			}
		}
		if !ok || wait < 0 {
			continue
		}
		longest, known = max(longest, envelope.Seconds(wait)), true
	}
	return longest, known
}

// earlierReset returns the wait of the drafts before 08, in which one quota has a field each for what remains and for its
// reset, or members of one field: "limit=100, remaining=0, reset=30".
func (r *Response) earlierReset() (time.Duration, bool) {
	remaining, field := strings.TrimSpace(r.Header.Get("Ratelimit-Remaining")), "Ratelimit-Reset"
	waits := envelope.Waits{Header: r.Header, Now: r.Now}
	waits.AddField(field)
	if !waits.Known {
		for member := range strings.SplitSeq(strings.Join(r.Header.Values("Ratelimit"), ","), ",") {
			switch name, value, _ := strings.Cut(strings.TrimSpace(member), "="); name {
			case "remaining":
				remaining = value
			case "reset":
				waits.Add(field, value)
			}
		}
	}
	exhausted := remaining == "0" || remaining == "" && r.Status == http.StatusTooManyRequests
	return waits.Longest, waits.Known && exhausted
}
