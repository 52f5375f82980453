// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// inService runs f on the demo's service, in virtual time.
func inService(t *testing.T, f func(t *testing.T, s *service), opts ...func(*redis.Options)) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		d := newDemo(t, rdb, nil)
		client := clienttest.New(t, rdb, d.options...)
		defer func() { require.NoError(t, client.Close()) }()
		f(t, &service{limiter: client.RateLimiter(d.store.name), rate: d.rate, timeout: d.timeout})
	}, opts...)
}

func get(ctx context.Context, s *service, target string) (*httptest.ResponseRecorder, answer) {
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, target, nil))
	var a answer
	_ = json.Unmarshal(w.Body.Bytes(), &a)
	return w, a
}

func TestRequireGrants(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		w, a := get(t.Context(), s, "/require?num=2")
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, "application/json", w.Header().Get("Content-Type"))
		require.Empty(t, w.Header().Get("Retry-After"))
		require.True(t, a.Granted)
		require.EqualValues(t, 2, a.Num)
		require.EqualValues(t, 3, *a.Available)
		require.Equal(t, s.limiter.Name(), a.Redis.Hash.Key)
		require.Equal(t, "5", a.Redis.Hash.Fields["rate"])
		require.Equal(t, "10000", a.Redis.Hash.Fields["interval"])
		require.Equal(t, "0", a.Redis.Hash.Fields["type"])
		require.Equal(t, "3", *a.Redis.Value.Value)
		require.EqualValues(t, 1, a.Redis.Permits.Count)
		m := a.Redis.Permits.Members[0]
		require.EqualValues(t, 2, m.Permits)
		require.Equal(t, "Bc0I", m.Format)
		require.Len(t, m.Bytes, 42)
	})
}

// TestRequire plays requests: a request for permits that are not there waits for them, and is rejected after its time-out, at
// most a minute. The rate in Redis decides.
func TestRequire(t *testing.T) {
	type ask struct {
		after       time.Duration
		query       string
		status      int
		took        time.Duration
		retry, left int
	}
	for name, c := range map[string]struct {
		interval time.Duration
		asks     []ask
	}{
		"waits": {10 * time.Second, []ask{{0, "num=5", 200, 0, 0, 0}, {0, "num=1", 200, 10 * time.Second, 0, 4}}},
		"rejects": {10 * time.Second, []ask{
			{0, "num=3", 200, 0, 0, 2},
			{1500 * time.Millisecond, "num=2", 200, 0, 0, 0},
			{0, "num=2&timeout=2s", 429, 2 * time.Second, 7, 0},                   // 6.5 s, rounded up
			{0, "num=4&timeout=0s", 429, 0, 8, 0},                                 // 4 permits take the second grant's, too
			{6500 * time.Millisecond, "num=4&timeout=1s", 429, time.Second, 1, 3}, // 0.5 s, rounded up
		}},
		"rejects after a minute": {2 * time.Minute, []ask{{0, "num=5", 200, 0, 0, 0}, {0, "num=5", 429, time.Minute, 60, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				require.NoError(t, s.limiter.SetRate(t.Context(), ratelimiter.Rate{Permits: 5, Interval: c.interval}))
				for _, k := range c.asks {
					time.Sleep(k.after)
					start := time.Now()
					w, a := get(t.Context(), s, "/require?"+k.query)
					require.Equal(t, k, ask{k.after, k.query, w.Code, time.Since(start), a.RetryAfterS, int(*a.Available)})
					require.Equal(t, k.status == 200, a.Granted)
					require.Equal(t, k.took.Milliseconds(), a.WaitedMS)
					require.Equal(t, map[bool]string{false: strconv.Itoa(k.retry)}[k.retry == 0], w.Header().Get("Retry-After"))
				}
			})
		})
	}
}

func TestRequireBadNum(t *testing.T) {
	for _, c := range []struct{ query, want string }{
		{"", `num="" is no number; ask for 1 to 5 permits`},
		{"?num=", `num="" is no number`},
		{"?num=two", `num="two" is no number`},
		{"?num=0", `num="0" is no number`},
		{"?num=-1", `num="-1" is no number`},
		{"?num=1.5", `num="1.5" is no number`},
		{"?num=4294967296", `is no number`},
		{"?num=99999999999999999999999999", `is no number`},
		{"?num=6", "num=6 is more than the limiter's rate"},
		{"?num=1&timeout=soon", `timeout="soon" is invalid; ask for 0s to 1m0s`},
		{"?num=1&timeout=-1s", "is invalid"},
		{"?num=1&timeout=61s", "is invalid"},
		{"?num=%1b%5b2J%c2%9b", `num="\x1b[2J\u009b" is no number`},
		{"?num=1&timeout=%1b%5b2J%c2%9b", `timeout="\x1b[2J\u009b" is invalid`},
	} {
		inService(t, func(t *testing.T, s *service) {
			w, a := get(t.Context(), s, "/require"+c.query)
			require.Equal(t, http.StatusBadRequest, w.Code)
			require.Contains(t, a.Error, c.want)
			require.False(t, a.Granted)
			require.Zero(t, a.RetryAfterS)
			requireVisible(t, w.Body.String())
		})
	}
}

func TestOtherMethodsAndPaths(t *testing.T) {
	s := &service{}
	for target, want := range map[string]int{"POST /require?num=1": http.StatusMethodNotAllowed, "GET /": http.StatusNotFound} {
		method, path, _ := strings.Cut(target, " ")
		w := httptest.NewRecorder()
		s.handler().ServeHTTP(w, httptest.NewRequest(method, path, nil))
		require.Equal(t, want, w.Code, target)
	}
}

// away makes Redis unreachable while down is set.
func away(down *atomic.Bool) func(*redis.Options) {
	return func(o *redis.Options) {
		dial := o.Dialer
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if down.Load() {
				return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("connection refused")}
			}
			return dial(ctx, network, addr)
		}
	}
}

func TestRequireWithoutRedis(t *testing.T) {
	var down atomic.Bool
	down.Store(true)
	inService(t, func(t *testing.T, s *service) {
		for _, path := range []string{"/require?num=1", "/state"} {
			start := time.Now()
			w, a := get(t.Context(), s, path)
			require.Equal(t, http.StatusServiceUnavailable, w.Code)
			require.Equal(t, "1", w.Header().Get("Retry-After"))
			require.Contains(t, a.Error, "connection refused")
			require.NotContains(t, a.Error, "\n")
			require.Less(t, time.Since(start), 10*time.Second)
		}
		w, _ := get(t.Context(), s, "/require?num=none")
		require.Equal(t, http.StatusBadRequest, w.Code, "a bad num is bad without Redis, too")
		down.Store(false)
		time.Sleep(1250 * time.Millisecond) // until the next probe
		w, _ = get(t.Context(), s, "/require?num=1")
		require.Equal(t, http.StatusOK, w.Code)
	}, away(&down))
}

func TestState(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		keys := func() (k redisKeys) {
			w, _ := get(t.Context(), s, "/state")
			require.Equal(t, http.StatusOK, w.Code)
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &k))
			return k
		}
		k := keys()
		require.Empty(t, k.Hash.Fields)
		require.Nil(t, k.Value.Value)
		require.Empty(t, k.Permits.Members)
		get(t.Context(), s, "/require?num=2")
		k = keys()
		require.Equal(t, "3", *k.Value.Value)
		require.Len(t, k.Permits.Members, 1)
	})
}

func TestAskedHearsOfGoneClients(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		var statuses []int
		s.asked = func(*http.Request) func(int, answer) {
			return func(status int, _ answer) { statuses = append(statuses, status) }
		}
		get(t.Context(), s, "/require?num=5")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		get(ctx, s, "/require?num=1")
		stopping, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { stop(errStopping) })
		_, a := get(stopping, s, "/require?num=1")
		require.Equal(t, []int{200, 0, 503}, statuses)
		require.Equal(t, errStopping.Error(), a.Error)
	})
}
