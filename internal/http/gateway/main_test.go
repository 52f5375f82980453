// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// A platform is a RoundTripper that is a function.
type platform func(*http.Request) (*http.Response, error)

func (f platform) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// says returns a platform that responds with that status and body.
func says(status int, body string) platform {
	return func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	}
}

// perMinute returns a rule for api.example.com.
func perMinute(name string, permits int64) []httplimit.Rule {
	return []httplimit.Rule{{
		Name:      "messages",
		Match:     httplimit.Match{Hosts: []string{"api.example.com"}},
		Limits:    []httplimit.Limit{{Name: name, Rate: ratelimiter.Rate{Permits: permits, Interval: time.Minute}}},
		Detectors: []httplimit.Detector{httplimit.HTTPDetector()},
	}}
}

// inWorld runs f with a Client in virtual time, and the name of a limiter.
func inWorld(t *testing.T, f func(t *testing.T, client *ratelimiter.Client, name string)) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) { f(t, clienttest.InBubble(t, rdb), redistest.Key(t)) })
}

// do sends a request whose header is the pairs.
func do(g http.Handler, method, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	return w
}

// ours reports whether a response is the gateway's own.
func ours(w *httptest.ResponseRecorder) bool {
	return strings.HasPrefix(w.Header().Get("Proxy-Status"), ProxyName+"; error=")
}
