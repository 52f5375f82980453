// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/goredisson/ratelimiter/httplimit/internal/keyname"
)

// A KeyFunc returns the key of a request, which becomes a part of its limiter's name: requests with the same key
// share the permits. It returns false for a request that is not limited. The Middleware escapes the key, and hashes
// it if it is longer than 128 bytes. The KeyFunc itself has to hash secrets, see [HashFor]. It is called in the
// requests' goroutines.
type KeyFunc func(r *http.Request) (key string, limited bool)

// ByClientAddress gives each client its own permits, by its address. Requests without an address, such as those by a
// Unix socket that is not trusted, share one limiter: see [ClientAddress].
func ByClientAddress(c ClientAddress) KeyFunc {
	return func(r *http.Request) (string, bool) {
		a, ok := c.Of(r)
		if !ok {
			return "unknown", true
		}
		return c.group(a), true
	}
}

// ByHeader gives each value of a header, such as an API key or a token, its own permits. The value is hashed. In
// Authorization and Proxy-Authorization the case of the scheme and the number of spaces around the credentials do not
// matter (RFC 9110 §11.4): "bearer T" has the key of "Bearer T". A value without a scheme, such as a token alone,
// counts as it is.
//
// All requests without the header, or with an empty one, share one limiter, so omitting the header does not evade the
// limit. A client can choose any value of a header that nobody has checked: limit by address too.
func ByHeader(name string) KeyFunc {
	canonical := http.CanonicalHeaderKey(name)
	credentials := canonical == "Authorization" || canonical == "Proxy-Authorization"
	return func(r *http.Request) (string, bool) {
		v := r.Header.Get(name)
		if credentials {
			v = canonicalScheme(v)
		}
		if v == "" {
			return "none", true
		}
		return HashFor(r, v), true
	}
}

// canonicalScheme returns credentials with one space after their scheme, which gets the case of Bearer. Otherwise
// each way to write it would be another user with permits of its own. Without a scheme, or without credentials after
// it, v may be a secret as a whole, whose case matters.
func canonicalScheme(v string) string {
	v = trim(v)
	scheme, rest, _ := strings.Cut(v, " ")
	if rest = trim(rest); rest == "" || !keyname.IsToken(scheme) {
		return v
	}
	return strings.ToUpper(scheme[:1]) + strings.ToLower(scheme[1:]) + " " + rest
}

type hashKey struct{}

// HashFor returns a replacement for a secret in a limiter's name, in a [KeyFunc] that gets r from a Middleware. It is
// the first 16 bytes of the secret's SHA-256 in hexadecimal, or of its HMAC-SHA256 with [WithHashKey]: httplimit.Hash and
// KeyedHash with the key of the Middleware.
func HashFor(r *http.Request, secret string) string {
	key, _ := r.Context().Value(hashKey{}).([]byte)
	return keyname.KeyedHash(key, secret)
}

// ByPattern gives each pattern of mux its own permits, whatever the paths of the requests are. Requests that match no
// pattern share one limiter.
//
// A nil mux is for a Middleware that wraps the handlers inside a mux: the key is then the pattern that the request has
// matched already. If such a Middleware wraps the mux itself, or a framework with another router, no request has a
// pattern, and all share one limiter; the function of [WithFailures] gets [ErrNoPattern] once.
func ByPattern(mux *http.ServeMux) KeyFunc {
	return func(r *http.Request) (string, bool) {
		pattern, none := r.Pattern, noPattern
		if mux != nil {
			_, pattern = mux.Handler(r)
			none = "unmatched"
		}
		return cmp.Or(pattern, none), true
	}
}

// ErrNoPattern says that [ByPattern] found no pattern in a request, which therefore shares its limiter with all
// others of that kind.
var ErrNoPattern = errors.New("inbound: the request has no pattern of http.ServeMux")

// noPattern is the key of a request that no mux has seen, or that matched none of its patterns.
const noPattern = "none"

// tellNoPattern reports the first request without a pattern.
func (m *Middleware) tellNoPattern(r *http.Request) {
	if !m.toldNoPattern.Swap(true) {
		m.fail(r, fmt.Errorf("%w: %s %s shares the limiter of all others without one; give ByPattern the mux, or put the Middleware inside of it",
			ErrNoPattern, r.Method, r.URL.Path))
	}
}

// limiters returns the limiters of the request, or none if it is not limited.
func (m *Middleware) limiters(r *http.Request) []spend {
	if len(m.cfg.hashKey) > 0 {
		r = r.WithContext(context.WithValue(r.Context(), hashKey{}, m.cfg.hashKey))
	}
	common, limited := m.key(r, "", m.cfg.keys)
	if !limited {
		return nil
	}
	spends := make([]spend, 0, len(m.rules))
	for _, rule := range m.rules {
		if key, limited := m.key(r, common, rule.Keys); limited {
			spends = append(spends, rule.spend(key))
		}
	}
	return spends
}

// key appends the keys of the functions to key, and reports whether all of them limit the request.
func (m *Middleware) key(r *http.Request, key string, funcs []KeyFunc) (string, bool) {
	for _, f := range funcs {
		k, limited := f(r)
		if !limited {
			return "", false
		}
		if k == noPattern && r.Pattern == "" {
			m.tellNoPattern(r)
		}
		key += keyPart(k)
	}
	return key, true
}

// keyPart returns a part of a key as it stands in the name of a limiter.
func keyPart(k string) string { return ":" + keyname.Part(k, true) }
