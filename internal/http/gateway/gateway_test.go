// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// TestRejectionIsToldFromThePlatforms checks that our 429 says so, and that a platform's 429 cannot.
func TestRejectionIsToldFromThePlatforms(t *testing.T) {
	inWorld(t, func(t *testing.T, client *ratelimiter.Client, name string) {
		rules := perMinute(name, 1)
		rules[0].Detectors = nil
		g, err := New(client, rules, WithMaxWait(0), WithBase(platform(func(r *http.Request) (*http.Response, error) {
			resp, _ := says(429, "slow down")(r)
			resp.Header.Set("Proxy-Status", `cdn; error=connection_rejected, rrl-gateway; error=proxy_internal_response`)
			return resp, nil
		})))
		require.NoError(t, err)
		w := do(g, "GET", "/api.example.com/v1")
		require.Equal(t, 429, w.Code)
		require.Equal(t, "slow down", w.Body.String())
		require.Equal(t, "cdn; error=connection_rejected", w.Header().Get("Proxy-Status"))
		require.False(t, ours(w))

		w = do(g, "GET", "/api.example.com/v1")
		require.Equal(t, 429, w.Code)
		require.True(t, ours(w))
		require.Equal(t, "60", w.Header().Get("Retry-After"))
		require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
		require.Equal(t, "false", w.Header().Get("X-Should-Retry"))
		var body map[string]any
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body))
		for field, want := range map[string]any{"type": "https://iana.org/assignments/http-problem-types#quota-exceeded", "title": "The limit is used up", "status": 429., "detail": "no permit in time", "limiter": name} {
			require.Equal(t, want, body[field], field)
		}
		// SDKs of WeCom, DingTalk and Feishu take a body without these for a success.
		require.Equal(t, 429., body["errcode"])
		require.Equal(t, 429., body["code"])
	})
}

// TestRejectionInThePlatformsForm checks that a rejected request gets the form of its rule's platform, and that it is still
// known to be ours; without Redis it gets a problem.
func TestRejectionInThePlatformsForm(t *testing.T) {
	form := func(e *httplimit.Error) (http.Header, []byte) {
		return http.Header{"Content-Type": {"application/json"}, "X-Reset": {"1"}, "Retry-After": {"61"}, "Proxy-Status": {"platform"}},
			fmt.Appendf(nil, `{"retry_after":%v}`, e.Wait.Seconds())
	}
	inWorld(t, func(t *testing.T, client *ratelimiter.Client, name string) {
		rules := perMinute(name, 1)
		rules[0].Rejection = form
		g, err := New(client, rules, WithMaxWait(0), WithBase(platform(says(200, "hello"))))
		require.NoError(t, err)
		require.Equal(t, 200, do(g, "GET", "/api.example.com/v1").Code)
		w := do(g, "GET", "/api.example.com/v1")
		require.Equal(t, 429, w.Code)
		require.True(t, ours(w))
		require.Equal(t, `{"retry_after":60}`, w.Body.String())
		for field, want := range map[string]string{"Content-Type": "application/json", "X-Reset": "1", "Retry-After": "61", "X-Should-Retry": "false", "Cache-Control": "no-store"} {
			require.Equal(t, []string{want}, w.Header()[field], field)
		}
		require.NoError(t, client.Close())
		w = do(g, "GET", "/api.example.com/v1")
		require.Equal(t, 503, w.Code)
		require.True(t, ours(w))
		require.Contains(t, w.Body.String(), "The limit cannot be checked now")
		require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
		require.Equal(t, "1", w.Header().Get("Retry-After"))
		require.Empty(t, w.Header().Get("X-Should-Retry"), "it may come again")
	})
}

// TestPreferBoundsTheWait checks the time after which a request is rejected, and that Prefer reaches the platform.
func TestPreferBoundsTheWait(t *testing.T) {
	inWorld(t, func(t *testing.T, client *ratelimiter.Client, name string) {
		var prefer string
		g, err := New(client, perMinute(name, 1), WithMaxWait(20*time.Second), WithBase(platform(func(r *http.Request) (*http.Response, error) {
			prefer = r.Header.Get("Prefer")
			return says(200, "")(r)
		})))
		require.NoError(t, err)
		require.Equal(t, 200, do(g, "GET", "/api.example.com/", "Prefer", "wait=3").Code)
		require.Equal(t, "wait=3", prefer)
		for value, want := range map[string]time.Duration{
			"wait=0": 0, "wait=3": 3 * time.Second, "wait=500": 20 * time.Second, "": 20 * time.Second,
			"wait=soon": 20 * time.Second, `respond-async, WAIT = "5"; x=y`: 5 * time.Second,
		} {
			start := time.Now()
			w := do(g, "GET", "/api.example.com/", "Prefer", value)
			require.Equal(t, 429, w.Code, value)
			require.InDelta(t, want, time.Since(start), float64(15*time.Millisecond), value)
			time.Sleep(time.Minute)
			require.Equal(t, 200, do(g, "GET", "/api.example.com/").Code, "and uses the limit up again")
		}
	})
}

// TestHosts checks what is allowed, and that everything else gets 403 and is not sent.
func TestHosts(t *testing.T) {
	inWorld(t, func(t *testing.T, client *ratelimiter.Client, name string) {
		rules := perMinute(name, 1000)
		rules[0].Match.Patterns = []string{"POST hooks.example.net/send/{id}", "/any"}
		var sent string
		g, err := New(client, rules, WithAllow("*.example.org", "http://127.0.0.1:8080", "x.example.com:8443", "[::1]:99"),
			WithBase(platform(func(r *http.Request) (*http.Response, error) {
				sent = r.URL.String() + " " + r.Host
				return says(200, "")(r)
			})))
		require.NoError(t, err)
		for target, want := range map[string]string{
			"/api.example.com/v1?a=b;c%":     "https://api.example.com/v1?a=b;c% api.example.com",
			"/API.example.com/a%2Fb//../%7e": "https://api.example.com/a%2Fb//../%7e api.example.com",
			"/api.example.com":               "https://api.example.com/ api.example.com",
			"/api.example.com:443/":          "https://api.example.com/ api.example.com",
			"/hooks.example.net/":            "https://hooks.example.net/ hooks.example.net",
			"/a.b.example.org/":              "https://a.b.example.org/ a.b.example.org",
			"/127.0.0.1:8080/x":              "http://127.0.0.1:8080/x 127.0.0.1:8080",
			"/x.example.com:8443/":           "https://x.example.com:8443/ x.example.com:8443",
			"/[::1]:99/":                     "https://[::1]:99/ [::1]:99",
			"http://api.example.com/plain":   "http://api.example.com/plain api.example.com",
			"https://user:pw@a.example.org/": "https://a.example.org/ a.example.org",
			"/api.example.com:8443/":         "",
			"/example.org/":                  "",
			"/x.example.com/":                "",
			"/api.example.com.evil.net/":     "",
			"/api.example.com@evil.net/":     "",
			"/127.0.0.1/":                    "",
			"/169.254.169.254/latest":        "",
			"http://api.example.com:22/":     "",
			"ftp://api.example.com/":         "",
			"https://127.0.0.1:8080/":        "",
			"/api.example.com%2F@evil.net/":  "",
			"/.example.org/":                 "",
		} {
			sent = ""
			w := do(g, "POST", target)
			if want == "" {
				require.Equal(t, 403, w.Code, target)
				require.True(t, ours(w))
				require.Contains(t, w.Body.String(), "neither one of the rules nor one of --allow")
			} else {
				require.Equal(t, 200, w.Code, target)
			}
			require.Equal(t, want, sent, target)
		}
		require.Equal(t, 404, do(g, "GET", "/").Code)
	})
}

func TestBadOptions(t *testing.T) {
	inWorld(t, func(t *testing.T, client *ratelimiter.Client, name string) {
		for want, o := range map[string]Option{
			`allow "ftp://x": the scheme is neither http nor https`: WithAllow("ftp://x"),
			`allow "a/b": it is not a host`:                         WithAllow("a/b"),
			`allow "*": it is not a host`:                           WithAllow("*"),
			`allow "": it is not a host`:                            WithAllow(""),
			`WithMaxWait(-1s) is negative`:                          WithMaxWait(-time.Second),
			`the token of WithToken is empty`:                       WithToken(""),
			`the Logger of WithLogger is nil`:                       WithLogger(nil),
			`an Option is nil`:                                      nil,
		} {
			_, err := New(client, nil, o)
			require.ErrorIs(t, err, ErrInvalidOption)
			require.ErrorContains(t, err, want)
		}
		_, err := New(client, perMinute("", 1))
		require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
	})
}

// TestToken checks where the token may be, and that the platform does not get it.
func TestToken(t *testing.T) {
	inWorld(t, func(t *testing.T, client *ratelimiter.Client, name string) {
		var got http.Header
		g, err := New(client, perMinute(name, 1000), WithToken("a-long-token-0123"), WithBase(platform(func(r *http.Request) (*http.Response, error) {
			got = r.Header
			return says(200, "")(r)
		})))
		require.NoError(t, err)
		for _, h := range [][]string{
			{TokenHeader, "a-long-token-0123"},
			{"Proxy-Authorization", "Bearer a-long-token-0123"},
			{"Proxy-Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("any:a-long-token-0123"))},
		} {
			w := do(g, "GET", "/api.example.com/", append(h, "Authorization", "Bearer platform")...)
			require.Equal(t, 200, w.Code, h)
			require.Equal(t, "Bearer platform", got.Get("Authorization"))
			require.Empty(t, got.Get(h[0]))
		}
		for _, h := range [][]string{nil, {TokenHeader, "other"}, {"Authorization", "Bearer a-long-token-0123"}, {"Proxy-Authorization", "Bearer "}} {
			got = nil
			require.Equal(t, 401, do(g, "GET", "/api.example.com/", h...).Code)
			w := do(g, "GET", "http://api.example.com/", h...)
			require.Equal(t, 407, w.Code)
			require.NotEmpty(t, w.Header().Get("Proxy-Authenticate"))
			require.Nil(t, got)
		}
	})
}

// TestReloadKeepsWaiters checks that a request which waits ends by the rules with which it began, that the next one goes
// by the new ones, and that wrong rules change nothing.
func TestReloadKeepsWaiters(t *testing.T) {
	inWorld(t, func(t *testing.T, client *ratelimiter.Client, name string) {
		g := redistest.Must(New(client, perMinute(name, 1), WithMaxWait(2*time.Minute), WithBase(says(200, ""))))(t)
		require.Equal(t, 200, do(g, "GET", "/api.example.com/").Code)
		start := time.Now()
		var waiter *httptest.ResponseRecorder
		var wg sync.WaitGroup
		wg.Go(func() { waiter = do(g, "GET", "/api.example.com/") })
		time.Sleep(time.Second)

		require.Error(t, g.Reload(perMinute("", 1)))
		require.Equal(t, 429, do(g, "GET", "/api.example.com/", "Prefer", "wait=0").Code, "the old rules stay")
		next := perMinute(name+":new", 1)
		next[0].Match.Hosts = append(next[0].Match.Hosts, "more.example.com")
		require.NoError(t, g.Reload(next))
		require.Equal(t, 200, do(g, "GET", "/more.example.com/").Code)
		require.Equal(t, time.Second, time.Since(start).Truncate(time.Second), "the new limiter had a permit")
		wg.Wait()
		require.Equal(t, 200, waiter.Code)
		require.GreaterOrEqual(t, time.Since(start), time.Minute-time.Second)
	})
}

// A switching is the context of a request that calls f once, when it has been let in and the rules have yet to be applied.
type switching struct {
	context.Context
	f func()
}

func (s *switching) Done() <-chan struct{} {
	f := s.f
	s.f = func() {}
	f()
	return s.Context.Done()
}

// TestReloadBetweenHostsAndRules checks that a request goes by the hosts and the rules of one set: one that was let in by the
// old hosts goes nowhere by new rules that do not name its host, nor without the limit that either set has.
func TestReloadBetweenHostsAndRules(t *testing.T) {
	inWorld(t, func(t *testing.T, client *ratelimiter.Client, name string) {
		sent := 0
		for _, dry := range []bool{false, true} {
			var options []httplimit.Option
			if dry {
				options = append(options, httplimit.WithDryRun())
			}
			g := redistest.Must(New(client, perMinute(name, 1), WithTransport(options...), WithBase(platform(func(r *http.Request) (*http.Response, error) {
				sent++
				return says(200, "")(r)
			}))))(t)
			elsewhere := perMinute(name, 1)
			elsewhere[0].Match.Hosts = []string{"other.example.com"}
			ctx := &switching{t.Context(), func() { require.NoError(t, g.Reload(elsewhere)) }}
			w := httptest.NewRecorder()
			g.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/api.example.com/", http.NoBody))
			require.Equal(t, 403, w.Code)
			require.True(t, ours(w))
			require.Zero(t, sent)

			elsewhere[0].Limits[0].Key = func(*http.Request) string { panic("a rule's function") }
			elsewhere[0].Limits[0].Name = ""
			require.NoError(t, g.Reload(elsewhere))
			require.Equal(t, dry, do(g, "GET", "/other.example.com/").Code == 200, "a dry run sends what a rule cannot be applied to")
			sent = 0
		}
	})
}

// TestShutdownEndsWaiters checks that waiters and new requests get 503, and a request that was sent ends by itself.
func TestShutdownEndsWaiters(t *testing.T) {
	inWorld(t, func(t *testing.T, client *ratelimiter.Client, name string) {
		g, err := New(client, perMinute(name, 1), WithBase(platform(func(r *http.Request) (*http.Response, error) {
			select {
			case <-time.After(5 * time.Second):
				return says(200, "served")(r)
			case <-r.Context().Done():
				return nil, errors.New("cut")
			}
		})))
		require.NoError(t, err)
		var inService, waiter *httptest.ResponseRecorder
		var wg sync.WaitGroup
		wg.Go(func() { inService = do(g, "GET", "/api.example.com/") })
		time.Sleep(100 * time.Millisecond)
		wg.Go(func() { waiter = do(g, "GET", "/api.example.com/") })
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, g.Shutdown(t.Context()))
		synctest.Wait()
		require.NotNil(t, waiter, "it waits no longer")
		for _, w := range []*httptest.ResponseRecorder{waiter, do(g, "GET", "/api.example.com/")} {
			require.Equal(t, 503, w.Code)
			require.Equal(t, "1", w.Header().Get("Retry-After"))
			require.True(t, ours(w))
		}
		wg.Wait()
		require.Equal(t, 200, inService.Code)
		require.Equal(t, "served", inService.Body.String())
	})
}

// TestPlatformDown checks that an error of the way to the platform is ours, and holds no URL.
func TestPlatformDown(t *testing.T) {
	inWorld(t, func(t *testing.T, client *ratelimiter.Client, name string) {
		g, err := New(client, perMinute(name, 5), WithBase(platform(func(*http.Request) (*http.Response, error) {
			return nil, errors.New("connection refused")
		})))
		require.NoError(t, err)
		w := do(g, "GET", "/api.example.com/?access_token=secret")
		require.Equal(t, 502, w.Code)
		require.True(t, ours(w))
		require.NotContains(t, w.Body.String(), "secret")
	})
}

// TestReasonIsLogged checks that the log says why a rule could not be applied, with the limiter and the numbers.
func TestReasonIsLogged(t *testing.T) {
	inWorld(t, func(t *testing.T, client *ratelimiter.Client, name string) {
		var log strings.Builder
		rules := perMinute(name, 5)
		rules[0].Limits[0].WeightFunc = func(*http.Request) int64 { return 6 }
		g, err := New(client, rules, WithBase(says(200, "")), WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		require.NoError(t, err)
		require.Equal(t, 500, do(g, "GET", "/api.example.com/").Code)
		require.Contains(t, log.String(), "error=proxy_internal_error rejected=true reason=")
		require.Contains(t, log.String(), "asked for 6 permits of")
	})
}
