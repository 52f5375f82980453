// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/http/rates"
)

// headers says on which responses a Middleware reports its limit.
type headers int

const (
	headersAlways headers = iota // on every limited response
	headersRejected
	headersNever
)

// WithHeadersOnRejection sets the fields RateLimit and RateLimit-Policy of
// https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/ (revision 11), and those of [WithXRateLimit], on
// rejections only. The default is every limited response.
func WithHeadersOnRejection() Option { return func(c *config) { c.headers = headersRejected } }

// WithoutHeaders leaves out those of [WithHeadersOnRejection] on all responses. Every rejection has Retry-After nevertheless.
func WithoutHeaders() Option { return func(c *config) { c.headers = headersNever } }

// WithXRateLimit adds three fields that many clients know to the same responses: X-RateLimit-Limit,
// X-RateLimit-Remaining and X-RateLimit-Reset. With several rules they are those of the rule that rejects, or else of
// the one with the fewest permits left. No standard defines them. Here X-RateLimit-Reset is in whole seconds from
// now. On a rejection it is that of Retry-After; otherwise it is an upper bound of when all permits are back if no
// more requests come. The default is not to add them.
func WithXRateLimit() Option { return func(c *config) { c.xRateLimit = true } }

// WithLimiterHeader adds the field X-RateLimit-Limiter to the responses of requests that do not pass. It has the name in
// Redis of the limiter that rejected the request, as in [Decision].Limiter, for those who look into a rejection. The name may
// contain the client's address or what a KeyFunc returned, and it shows clients how limits are named. The default is not
// to add it.
func WithLimiterHeader() Option { return func(c *config) { c.named = true } }

// Header returns the header fields for the response to the request, as [Middleware.Handler] sets them. They are
// RateLimit and RateLimit-Policy, see [WithHeadersOnRejection], those of [WithXRateLimit] and [WithLimiterHeader], and
// Retry-After if the request does not pass.
func (d Decision) Header() http.Header {
	h := http.Header{}
	d.setHeader(h)
	return h
}

// setHeader sets the fields of [Decision.Header] in h; other Middlewares may have set theirs there.
func (d *Decision) setHeader(h http.Header) {
	if d.fields != nil && (d.fields.headers == headersAlways || d.fields.headers == headersRejected && d.Outcome == OutcomeRejected) {
		for i := range d.parts {
			if p := &d.parts[i]; p.tells() {
				setHeaders(h, p.rule.policy, p.result.Rate, p.result.Available, p.result.Wait)
			}
		}
		if d.fields.xRateLimit && len(d.parts) > 0 {
			setXRateLimit(h, tightest(d.parts))
		}
	}
	if d.fields != nil && d.fields.named && !d.Passes() && d.Limiter != "" {
		h.Set("X-RateLimit-Limiter", d.Limiter) // printable ASCII: keys are escaped
	}
	if !d.Passes() && d.RetryAfter > 0 {
		h.Set("Retry-After", sfInteger(int64(d.RetryAfter/time.Second)))
	}
}

// tells reports whether the numbers of p are known.
func (p *part) tells() bool {
	return p.err == nil && !p.unknown && (p.rule.LimiterFor != nil || p.result.Rate.Permits > 0 && p.result.Rate.Interval > 0)
}

// setXRateLimit sets the fields of WithXRateLimit, and overwrites those of a Middleware around this one.
func setXRateLimit(h http.Header, p part) {
	if !p.tells() {
		return
	}
	if p.result.Rate.Permits > 0 {
		h.Set("X-RateLimit-Limit", sfInteger(p.result.Rate.Permits))
	}
	h.Set("X-RateLimit-Remaining", sfInteger(p.result.Available))
	reset := p.result.Reset
	if p.rejected() {
		reset = p.result.Wait
	}
	seconds := int64(0)
	if reset > 0 {
		seconds = rates.WholeSeconds(reset)
	}
	h.Set("X-RateLimit-Reset", sfInteger(seconds))
}

// setHeaders adds the limit's items. The fields are lists, so several rules and Middlewares can each add their items.
// "t" is there only when the request was rejected: otherwise the window in which no more than "r" permits can be used
// is not known. It ends when Retry-After does, which must not be earlier (section 6). Without a rate there is no
// policy, because "q" is required.
func setHeaders(h http.Header, policy string, r ratelimiter.Rate, available int64, wait time.Duration) {
	if r.Permits > 0 {
		item := policy + ";q=" + sfInteger(r.Permits)
		if r.Interval >= time.Second && r.Interval%time.Second == 0 {
			// The window is in whole seconds, "sub-second precision is not supported", and optional.
			item += ";w=" + sfInteger(int64(r.Interval/time.Second))
		}
		h.Add("RateLimit-Policy", item)
	}
	item := policy + ";r=" + sfInteger(available)
	if wait > 0 {
		item += ";t=" + sfInteger(rates.WholeSeconds(wait))
	}
	h.Add("RateLimit", item)
}

// sfInteger returns n as an Integer of structured fields (RFC 9651 section 3.3.1), which has up to 15 digits; the
// draft has no negative ones. The rate may have more permits, if a Java program has set it.
func sfInteger(n int64) string {
	return strconv.FormatInt(min(max(n, 0), 999_999_999_999_999), 10)
}

// policyName returns the name of a policy: the name of the limiters without its braces, which are for a Redis Cluster
// and of no use to a client.
func policyName(name string) string { return strings.NewReplacer("{", "", "}", "").Replace(name) }

// sfString returns s as a String of structured fields (RFC 9651 section 3.3.3). It reports false if s has other
// characters than printable ASCII.
func sfString(s string) (string, bool) {
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(s); i++ {
		if s[i] < 0x20 || s[i] > 0x7e {
			return "", false
		}
		if s[i] == '"' || s[i] == '\\' {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	b.WriteByte('"')
	return b.String(), true
}
