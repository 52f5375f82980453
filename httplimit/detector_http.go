// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/goredisson/ratelimiter/httplimit/internal/envelope"
)

// HTTPDetector returns a Detector of the rejections that HTTP itself defines, for platforms without a detector of their own.
//
//   - 429 (RFC 6585 §4) is Throttled, with whatever header or none.
//   - 503 is Throttled when Retry-After, or RateLimit with nothing remaining, says when to come back;
//     otherwise it is a server that is down.
//
// Until is Retry-After's, in seconds or as a date (RFC 9110 §10.2.3). Without that it is the longest of
// the "t" of the RateLimit items whose "r" is 0, or the window "w" of the policy of that name in
// RateLimit-Policy where the item has no "t" (draft-ietf-httpapi-ratelimit-headers-11,
// https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/). Without that it is zero.
//
// An Until is never further off than [WithMaxRetryAfter] says.
//
// "r=0" on any other status is not Throttled: the request was executed, and the draft ties no meaning
// to it, so that a hint to one client would silence a fleet. X-RateLimit-Reset and the like are
// not read: some platforms write an instant there, others a number of seconds.
func HTTPDetector() Detector {
	never := func(int, http.Header) bool { return false }
	return selective{needs: never, DetectorFunc: func(r *Response) Verdict {
		if r.Status != http.StatusTooManyRequests && r.Status != http.StatusServiceUnavailable {
			return Verdict{}
		}
		v := Verdict{Throttled: true, Reason: "status " + strconv.Itoa(r.Status)}
		wait, known := envelope.RetryAfter(r.Header, r.Now)
		if !known {
			wait, known = r.rateLimitReset()
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

// DefaultMaxRetryAfter is the bound of [WithMaxRetryAfter] unless it is set. The header is the word of
// whoever answers. An hour is the longest window of a documented limit that ends by such a header
// (GitHub's); a host that asks for more is asked again every hour, which costs it one rejection.
const DefaultMaxRetryAfter = time.Hour

func (r *Response) longestRetryAfter() time.Duration {
	return cmp.Or(r.maxRetryAfter, DefaultMaxRetryAfter)
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
