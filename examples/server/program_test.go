// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestOneCommand runs the program as `go run ./examples/server` does.
func TestOneCommand(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	var out, errs strings.Builder
	require.Zero(t, run(t.Context(), nil, &out, &errs), "%s%s", &out, &errs)
	require.Empty(t, errs.String())
	text := out.String()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	require.Equal(t, "13 requests: 9 answered, 3 rejected with 429, 1 with 503; 0 of them not as expected", lines[len(lines)-1])
	require.Regexp(t, `server 1  GET /orders/1  200  RateLimit: "server-example-\w+";r=4  RateLimit-Policy: "server-example-\w+";q=5;w=2\n`, text)
	require.Regexp(t, `server 2  GET /orders/1  429  RateLimit: "server-example-\w+";r=0;t=2 .* Retry-After: 2\n`, text)
	require.Regexp(t, `server 1  GET /health    200\n`, text)
	require.Regexp(t, `503  Retry-After: 1\n`, text)
}

// TestAnotherRedis runs the program on the lane's server, which stays up.
func TestAnotherRedis(t *testing.T) {
	rdb := redistest.Client(t)
	var out, errs strings.Builder
	require.Zero(t, run(t.Context(), []string{"-redis", rdb.Options().Addr}, &out, &errs), "%s%s", &out, &errs)
	require.Contains(t, out.String(), "11 requests: 8 answered, 3 rejected with 429, 0 with 503; 0 of them not as expected")
}

// TestItCanFail checks that the program notices a wrong result: an interval so short that no request is rejected.
func TestItCanFail(t *testing.T) {
	var out, errs strings.Builder
	p := &play{ctx: t.Context(), out: &out, urls: []string{"http://127.0.0.1:1"}}
	p.get(0, "/", "", 200)
	require.Equal(t, 1, p.wrong)
	require.Equal(t, 1, run(t.Context(), []string{"-redis", "127.0.0.1:1"}, &out, &errs))
	require.Contains(t, out.String(), "503  Retry-After: 1  (expected 200)")
	require.Equal(t, "server: something was not as it should be\n", errs.String())
}

func TestServe(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	ctx, cancel := context.WithCancel(t.Context())
	var out redistest.Log
	code := make(chan int)
	go func() { code <- run(ctx, []string{"-serve"}, &out, &out) }()
	at := out.Await(t, `curl -i (\S+)`)[1]
	for i := range 6 {
		resp := redistest.Must(http.Get(at))(t)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, i == 5, resp.StatusCode == 429)
	}
	resp := redistest.Must(http.Get(strings.TrimSuffix(at, "/orders/1") + "/metrics"))(t)
	body := redistest.Must(io.ReadAll(resp.Body))(t)
	require.NoError(t, resp.Body.Close())
	require.Contains(t, string(body), `ratelimiter_requests_total{degraded="false",operation="allow",outcome="granted",policy="orders"} 5`)
	require.Contains(t, string(body), `ratelimiter_requests_total{degraded="false",operation="allow",outcome="rejected",policy="orders"} 1`)
	cancel()
	require.Zero(t, <-code)
}

func TestInterrupted(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs strings.Builder
	require.Equal(t, 1, run(ctx, nil, &out, &errs))
	require.NotContains(t, out.String(), "not as expected", "a verdict on half a run")
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"-interval=x"}, {"-interval=1us"}, {"x"}, {"-nonsense"}} {
		var out, errs strings.Builder
		require.Equal(t, 2, run(t.Context(), args, &out, &errs))
		require.NotEmpty(t, errs.String())
	}
}
