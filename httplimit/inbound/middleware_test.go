// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/internal/keyname"
	"github.com/goredisson/ratelimiter/internal/http/rates"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func (w *world) middleware(r ratelimiter.Rate, opts ...Option) *Middleware {
	w.t.Helper()
	m := redistest.Must(New(w.client, w.key, r, opts...))(w.t)
	return m
}

var answers = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "served") })

// ask is one request from the address.
func ask(h http.Handler, addr, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", path, nil)
	r.RemoteAddr = addr
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// What a client sees, field by field, to the second at which it may come again.
func TestMiddlewareAnswers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.middleware(ratelimiter.Rate{Permits: 2, Interval: 10 * time.Second})
		h := m.Handler(answers)
		policy := fmt.Sprintf("%q;q=2;w=10", w.key)
		field := func(rest string) string { return fmt.Sprintf("%q;%s", w.key, rest) }

		a := ask(h, "203.0.113.9:1", "/")
		require.Equal(t, 200, a.Code)
		require.Equal(t, "served", a.Body.String())
		require.Equal(t, []string{policy}, a.Result().Header["Ratelimit-Policy"])
		require.Equal(t, []string{field("r=1")}, a.Result().Header["Ratelimit"])
		require.Empty(t, a.Header().Get("Retry-After"))
		time.Sleep(2500 * time.Millisecond)
		a = ask(h, "203.0.113.10:1", "/")
		require.Equal(t, field("r=0"), a.Header().Get("RateLimit"))

		a = ask(h, "203.0.113.9:1", "/")
		require.Equal(t, http.StatusTooManyRequests, a.Code)
		require.Equal(t, "8", a.Header().Get("Retry-After"), "7.5 s, rounded up")
		require.Equal(t, policy, a.Header().Get("RateLimit-Policy"))
		require.Equal(t, field("r=0;t=8"), a.Header().Get("RateLimit"))
		require.Equal(t, "application/problem+json", a.Header().Get("Content-Type"))
		var p map[string]any
		require.NoError(t, json.Unmarshal(a.Body.Bytes(), &p))
		require.Equal(t, map[string]any{"type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
			"title": "Too many requests", "status": 429., "violated-policies": []any{w.key}}, p)

		time.Sleep(7499 * time.Millisecond) // the wait was 7.5 s
		a = ask(h, "203.0.113.9:1", "/")
		require.Equal(t, "1", a.Header().Get("Retry-After"), "a millisecond")
		time.Sleep(time.Millisecond)
		require.Equal(t, 200, ask(h, "203.0.113.9:1", "/").Code)
	})
}

func TestMiddlewareHeadersByChoice(t *testing.T) {
	for choice, want := range map[string][2]bool{"always": {true, true}, "rejected": {false, true}, "never": {}} {
		inWorld(t, func(t *testing.T, w *world) {
			options := map[string][]Option{"rejected": {WithHeadersOnRejection()}, "never": {WithHeadersOnRejection(), WithoutHeaders()}}[choice]
			h := w.middleware(ratelimiter.Rate{Permits: 1, Interval: 1500 * time.Millisecond}, options...).Handler(answers)
			for i, there := range want {
				a := ask(h, "203.0.113.9:1", "/")
				require.Equal(t, []int{200, 429}[i], a.Code)
				require.Equal(t, there, a.Header().Get("RateLimit") != "")
				require.Equal(t, i == 1, a.Header().Get("Retry-After") != "")
				if there { // the window is in whole seconds or not said
					require.Equal(t, fmt.Sprintf("%q;q=1", w.key), a.Header().Get("RateLimit-Policy"))
				}
			}
		})
	}
}

// Around each other: both tell of their limits, and both count.
func TestMiddlewaresAroundEachOther(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		second := w.middleware(ratelimiter.Rate{Permits: 1, Interval: time.Second})
		hour := redistest.Must(New(w.client, w.key+"-hour", ratelimiter.Rate{Permits: 2, Interval: time.Hour}))(t)
		h := second.Handler(hour.Handler(answers))
		a := ask(h, "203.0.113.9:1", "/")
		require.Equal(t, []string{fmt.Sprintf("%q;r=0", w.key), fmt.Sprintf("%q;r=1", w.key+"-hour")}, a.Header()["Ratelimit"])
		require.Len(t, a.Header()["Ratelimit-Policy"], 2)
		require.Equal(t, "1", ask(h, "203.0.113.9:1", "/").Header().Get("Retry-After"))
		time.Sleep(time.Second)
		require.Equal(t, 200, ask(h, "203.0.113.9:1", "/").Code)
		time.Sleep(time.Second)
		a = ask(h, "203.0.113.9:1", "/")
		require.Equal(t, 429, a.Code)
		require.Equal(t, "3598", a.Header().Get("Retry-After"))
	})
}

// Who shares a limit with whom.
func TestMiddlewareKeys(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("GET /orders/{id}", answers)
	mux.Handle("/", answers)
	behind := ClientAddress{Trusted: prefixes("10.0.0.0/8")}
	type req []string // address, path, header...
	for name, c := range map[string]struct {
		keys      []KeyFunc
		same, not []req // as the first of same
	}{
		"none": {nil, []req{{"1.1.1.1:1", "/a"}, {"[2001:db8::1]:1", "/b"}}, nil},
		"address": {[]KeyFunc{ByClientAddress(behind)},
			[]req{{"1.1.1.1:1", "/"}, {"1.1.1.1:2", "/x"}, {"1.1.1.1:1", "/", "X-Forwarded-For", "9.9.9.9"},
				{"10.0.0.1:1", "/", "X-Forwarded-For", "9.9.9.9, 1.1.1.1"}, {"10.0.0.1:1", "/", "X-Forwarded-For", "1.1.1.1:77"}},
			[]req{{"1.1.1.2:1", "/"}, {"10.0.0.1:1", "/"}, {"@", "/"}}},
		"IPv6": {[]KeyFunc{ByClientAddress(behind)},
			[]req{{"[2001:db8:1:2::1]:1", "/"}, {"[2001:db8:1:2:ffff::9]:1", "/"}},
			[]req{{"[2001:db8:1:3::1]:1", "/"}}},
		"no address": {[]KeyFunc{ByClientAddress(behind)}, []req{{"@", "/"}, {"", "/", "X-Forwarded-For", "1.1.1.1"}}, nil},
		"header": {[]KeyFunc{ByHeader("X-Api-Key")},
			[]req{{"1.1.1.1:1", "/", "X-Api-Key", "s3cret"}, {"1.1.1.2:1", "/", "x-api-key", "s3cret"}},
			[]req{{"1.1.1.1:1", "/", "X-Api-Key", "other"}, {"1.1.1.1:1", "/"}}},
		"no header": {[]KeyFunc{ByHeader("X-Api-Key")}, []req{{"1.1.1.1:1", "/"}, {"1.1.1.2:1", "/", "X-Api-Key", ""}}, nil},
		"pattern": {[]KeyFunc{ByPattern(mux)}, []req{{"1.1.1.1:1", "/orders/1"}, {"1.1.1.1:1", "/orders/2?x"}},
			[]req{{"1.1.1.1:1", "/orders"}}},
		"both": {[]KeyFunc{ByPattern(mux), ByClientAddress(behind)},
			[]req{{"1.1.1.1:1", "/orders/1"}, {"1.1.1.1:1", "/orders/2"}},
			[]req{{"1.1.1.2:1", "/orders/1"}, {"1.1.1.1:1", "/other"}}},
		"a function": {[]KeyFunc{func(r *http.Request) (string, bool) { return r.URL.Query().Get("tenant"), true }},
			[]req{{"1.1.1.1:1", "/?tenant=a:b"}, {"1.1.1.1:1", "/?tenant=a%3Ab"}},
			[]req{{"1.1.1.1:1", "/?tenant=a%253Ab"}, {"1.1.1.1:1", "/?tenant={a:b}"}, {"1.1.1.1:1", "/?tenant=" + strings.Repeat("x", 4000)}}},
	} {
		inWorldOf(t, name, func(t *testing.T, w *world) {
			h := w.middleware(ratelimiter.Rate{Permits: 1, Interval: time.Minute}, WithKeys(c.keys...)).Handler(mux)
			for i, r := range c.same {
				require.Equal(t, i > 0, ask(h, r[0], r[1], r[2:]...).Code == 429, "%v", r)
			}
			for _, r := range c.not {
				require.Equal(t, 200, ask(h, r[0], r[1], r[2:]...).Code, "%v", r)
			}
			keys := redistest.Must(w.rdb.Keys(context.Background(), "*"+w.key+"*").Result())(t)
			for _, k := range keys {
				require.NotContains(t, k, "s3cret")
				require.LessOrEqual(t, len(k), len(w.key)+2*keyname.MaxPart+20)
				require.Positive(t, redistest.Must(w.rdb.PTTL(context.Background(), k).Result())(t), "%s stays forever", k)
			}
		})
	}
}

// Inside of a mux the pattern is that which the request was matched to.
func TestMiddlewareInsideAMux(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.middleware(ratelimiter.Rate{Permits: 1, Interval: time.Minute}, WithKeys(ByPattern(nil)))
		mux := http.NewServeMux()
		for _, p := range []string{"GET /a/{x}", "GET /b/{x}"} {
			mux.Handle(p, m.Handler(answers))
		}
		require.Equal(t, 200, ask(mux, "1.1.1.1:1", "/a/1").Code)
		require.Equal(t, 429, ask(mux, "1.1.1.1:1", "/a/2").Code)
		require.Equal(t, 200, ask(mux, "1.1.1.1:1", "/b/1").Code)
		require.EqualValues(t, 1, redistest.Must(w.rdb.Exists(context.Background(), w.key+":GET%20/a/%7Bx%7D").Result())(t))
	})
}

func TestMiddlewareWeights(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		weights := map[string]int64{"/free": 0, "/cheap": 1, "/dear": 4}
		var why Decision
		h := w.middleware(ratelimiter.Rate{Permits: 10, Interval: time.Minute},
			WithWeight(func(r *http.Request) int64 { return weights[r.URL.Path] }),
			WithKeys(func(r *http.Request) (string, bool) { return "", r.Header.Get("X-Staff") == "" }),
			WithRejection(func(w http.ResponseWriter, _ *http.Request, d Decision) {
				why = d
				w.WriteHeader(d.Status())
				_, _ = io.WriteString(w, "later")
			})).Handler(answers)
		left := func(path string) string {
			return strings.TrimPrefix(ask(h, "1.1.1.1:1", path).Header().Get("RateLimit"), fmt.Sprintf("%q;", w.key))
		}
		require.Equal(t, "r=6", left("/dear"))
		require.Equal(t, "r=5", left("/cheap"))
		require.Equal(t, "r=1", left("/dear"))
		require.Empty(t, left("/free"))
		a := ask(h, "1.1.1.1:1", "/dear")
		require.Equal(t, 429, a.Code)
		require.Equal(t, "later", a.Body.String())
		require.Equal(t, 429, why.Status())
		require.Equal(t, []any{w.key + ":", w.key, time.Minute, int64(1)}, []any{why.Limiter, why.Policy, why.RetryAfter, why.Result.Available})
		require.Equal(t, 200, ask(h, "1.1.1.1:1", "/dear", "X-Staff", "yes").Code)
		require.Equal(t, "r=0", left("/cheap"))
	})
}

// A flood of requests that are rejected costs a call a second, unless the middleware is to ask for each.
func TestMiddlewareCachedRejections(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		calls := 0
		client := clienttest.New(t, w.rdb, ratelimiter.WithClientClock(), ratelimiter.WithHook(ratelimiter.Hook{
			Call: func(c ratelimiter.CallInfo) {
				if c.Script != "rate" { // of a look every ten seconds
					calls++
				}
			},
		}))
		defer client.Close()
		rate := ratelimiter.Rate{Permits: 1, Interval: time.Minute}
		for _, c := range []struct {
			options []Option
			calls   int
		}{{nil, 10}, {[]Option{WithCachedRejections(100 * time.Millisecond)}, 100}, {[]Option{WithCachedRejections(0)}, 1000}} {
			m := redistest.Must(New(client, w.key, rate, c.options...))(t)
			h := m.Handler(answers)
			for len(ask(h, "1.1.1.1:1", "/").Header().Get("Retry-After")) == 0 { // until it is rejected, and that was looked into
			}
			time.Sleep(time.Second)
			calls = 0
			for i := range 1000 {
				a := ask(h, "1.1.1.1:1", "/")
				require.Equal(t, 429, a.Code, i)
				require.NotEmpty(t, a.Header().Get("Retry-After"))
				time.Sleep(10 * time.Millisecond)
			}
			require.Equal(t, c.calls, calls)
		}
		_, err := New(client, w.key, rate, WithCachedRejections(-1))
		require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
	})
}

// A limiter that is gone gets its rate again; one that has another keeps it, and clients are told of it.
func TestMiddlewareRates(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		h := w.middleware(ratelimiter.Rate{Permits: 2, Interval: time.Second}).Handler(answers)
		require.Equal(t, 200, ask(h, "1.1.1.1:1", "/").Code)
		synctest.Wait() // the middleware has seen to its rate after that request
		l := w.client.RateLimiter(w.key)
		r := redistest.Must(l.Rate(ctx))(t)
		require.Equal(t, ratelimiter.Rate{Permits: 2, Interval: time.Second, KeepAlive: 10 * time.Minute}, r)
		if redistest.TTLsAreVirtual() {
			time.Sleep(10*time.Minute + time.Second)
		} else {
			redistest.Must(l.Admin().Delete(ctx))(t)
		}
		require.False(t, redistest.Must(l.Admin().Exists(ctx))(t), "nobody came for ten minutes")
		require.Equal(t, 200, ask(h, "1.1.1.1:1", "/").Code)
		require.NoError(t, l.SetRate(ctx, ratelimiter.Rate{Permits: 7, Interval: 3 * time.Second}))
		a := ask(h, "1.1.1.1:1", "/")
		require.Equal(t, fmt.Sprintf("%q;q=7;w=3", w.key), a.Header().Get("RateLimit-Policy"))
		require.Equal(t, fmt.Sprintf("%q;r=6", w.key), a.Header().Get("RateLimit"))
	})
}

func TestNewMiddlewareErrors(t *testing.T) {
	client := clienttest.New(t, redis.NewClient(&redis.Options{}))
	rate := ratelimiter.Rate{Permits: 1, Interval: time.Second}
	_, err := New(client, "x", rate, nil)
	require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
	for _, c := range []struct {
		client *ratelimiter.Client
		name   string
		rate   ratelimiter.Rate
		opt    Option
	}{
		{nil, "x", rate, nil},
		{client, "", rate, nil},
		{client, "näme", rate, nil},
		{client, "a\nb", rate, nil},
		{client, "x", ratelimiter.Rate{}, nil},
		{client, "x", ratelimiter.Rate{Permits: 1, Interval: time.Microsecond}, nil},
		{client, "x", ratelimiter.Rate{Permits: 1 << 32, Interval: time.Second}, nil},
		{client, "x", ratelimiter.Rate{Permits: 1, Interval: time.Second, KeepAlive: time.Millisecond}, nil},
		{client, "x", rate, WithDecisionTime(0)},
		{client, "x", rate, WithDecisionTime(200 * time.Millisecond)},
		{client, "x", rate, WithKeys(nil)},
		{client, "x", rate, WithOutagePolicy(ratelimiter.LocalQuota(rate, 0))},
	} {
		opts := []Option{}
		if c.opt != nil {
			opts = append(opts, c.opt)
		}
		_, err := New(c.client, c.name, c.rate, opts...)
		require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument, "%+v", c)
		require.False(t, errors.Is(err, httplimit.ErrRejected))
	}
}

func TestStructuredFieldStrings(t *testing.T) {
	for in, want := range map[string]string{"a": `"a"`, ``: `""`, `a"b`: `"a\"b"`, `a\b`: `"a\\b"`, "~ ": `"~ "`, `\"`: `"\\\""`} {
		got, ok := sfString(in)
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	for _, bad := range []string{"\x00", "\x1f", "\x7f", "é", "\r\n"} {
		_, ok := sfString(bad)
		require.False(t, ok)
	}
	for d, want := range map[time.Duration]int64{0: 1, 1: 1, time.Second: 1, time.Second + 1: 2, time.Hour: 3600} {
		require.Equal(t, want, rates.WholeSeconds(d))
	}
}
