package inbound

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit/internal/rates"
)

// Headers says on which responses a Middleware tells of its limit.
type Headers int

// The fields are RateLimit and RateLimit-Policy of
// https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/ (revision 11); Retry-After comes
// with every rejection whatever is chosen.
const (
	HeadersAlways   Headers = iota // on every limited response
	HeadersRejected                // on rejections only
	HeadersNever
)

// setHeaders adds the limit's items. They are items of lists, so that several Middlewares can each add
// theirs. "t" is there when the request was rejected: the window in which no more than "r" permits can be used is not
// known otherwise. It ends when Retry-After does, which must not be earlier (section 6).
func setHeaders(h http.Header, policy string, r ratelimiter.Rate, available int64, wait time.Duration) {
	item := policy + ";q=" + sfInteger(r.Permits)
	if r.Interval >= time.Second && r.Interval%time.Second == 0 {
		// The window is in whole seconds, "sub-second precision is not supported", and optional.
		item += ";w=" + sfInteger(int64(r.Interval/time.Second))
	}
	h.Add("RateLimit-Policy", item)
	item = policy + ";r=" + sfInteger(available)
	if wait > 0 {
		item += ";t=" + sfInteger(rates.WholeSeconds(wait))
	}
	h.Add("RateLimit", item)
}

// sfInteger returns n as an Integer of structured fields (RFC 9651 section 3.3.1), which has up to 15 digits; the draft
// has no negative ones. A Java program may have given the limiter a rate of more permits.
func sfInteger(n int64) string {
	return strconv.FormatInt(min(max(n, 0), 999_999_999_999_999), 10)
}

// policyName returns the name of a policy: that of the limiters without its braces, which are for a Redis Cluster and
// nothing that a client needs to know.
func policyName(name string) string { return strings.NewReplacer("{", "", "}", "").Replace(name) }

// sfString returns s as a String of structured fields (RFC 9651 section 3.3.3), and false where it cannot be
// one: only printable ASCII can.
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
