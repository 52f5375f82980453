package inbound

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter"
)

// Headers says on which responses a Middleware tells of its limit.
type Headers int

// The fields are RateLimit and RateLimit-Policy of
// https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/ (revision 10); Retry-After comes
// with every refusal whatever is chosen.
const (
	HeadersAlways  Headers = iota // on every limited response
	HeadersRefused                // on refusals only
	HeadersNever
)

// setHeaders adds the limit's items. They are items of lists, so that several Middlewares can each add
// theirs. "t" is there when the request was refused: how long it takes until there are more permits is
// not known otherwise.
func setHeaders(h http.Header, policy string, r ratelimiter.Rate, available int64, wait time.Duration) {
	item := policy + ";q=" + strconv.FormatInt(r.Permits, 10)
	if r.Interval%time.Second == 0 {
		// The window is in whole seconds, "sub-second precision is not supported", and optional.
		item += ";w=" + strconv.FormatInt(int64(r.Interval/time.Second), 10)
	}
	h.Add("RateLimit-Policy", item)
	item = policy + ";r=" + strconv.FormatInt(available, 10)
	if wait > 0 {
		item += ";t=" + strconv.FormatInt(wholeSeconds(wait), 10)
	}
	h.Add("RateLimit", item)
}

// wholeSeconds returns d as delay-seconds (RFC 9110 section 10.2.3): rounded up, since who comes back a moment too
// early is refused again, and at least one.
func wholeSeconds(d time.Duration) int64 {
	return max(1, int64((d+time.Second-1)/time.Second))
}

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
