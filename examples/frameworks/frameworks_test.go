// SPDX-License-Identifier: Apache-2.0

package frameworks

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/common/hlog"
	"github.com/goredisson/ratelimiter"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/zeromicro/go-zero/core/conf"
	"github.com/zeromicro/go-zero/core/logx"
	"github.com/zeromicro/go-zero/rest"
)

// serve starts a server of net/http.
func serve(h http.Handler, l net.Listener) (stop func()) {
	s := &http.Server{Handler: h}
	go func() { _ = s.Serve(l) }()
	return func() { _ = s.Close() }
}

// servers start a framework's own server on the listener.
var servers = map[string]func(t *testing.T, limits Limits, l net.Listener) (stop func()){
	"chi":    func(_ *testing.T, limits Limits, l net.Listener) func() { return serve(Chi(limits), l) },
	"echo 4": func(_ *testing.T, limits Limits, l net.Listener) func() { return serve(Echo4(limits), l) },
	"echo 5": func(_ *testing.T, limits Limits, l net.Listener) func() { return serve(Echo5(limits), l) },
	"gin":    func(_ *testing.T, limits Limits, l net.Listener) func() { return serve(Gin(limits), l) },
	"kratos": func(t *testing.T, limits Limits, l net.Listener) func() {
		s := Kratos(limits, l)
		go func() { _ = s.Start(context.Background()) }()
		return func() { _ = s.Stop(context.Background()) }
	},
	"go-zero": func(t *testing.T, limits Limits, l net.Listener) func() {
		logx.Disable()
		var c rest.RestConf
		require.NoError(t, conf.FillDefault(&c))
		c.Name, c.Host, c.Port = "test", "127.0.0.1", l.Addr().(*net.TCPAddr).Port
		c.CpuThreshold = 0            // it sheds load that the rest of the machine makes
		require.NoError(t, l.Close()) // it takes no listener
		s, err := rest.NewServer(c)
		require.NoError(t, err)
		GoZero(limits, s)
		go s.Start()
		return s.Stop
	},
	"hertz": func(t *testing.T, limits Limits, l net.Listener) func() {
		hlog.SetOutput(io.Discard)
		h := server.New(server.WithListener(l), server.WithDisablePrintRoute(true))
		Hertz(limits, h)
		go func() { _ = h.Run() }()
		return func() { _ = h.Close() }
	},
	"fiber": func(t *testing.T, limits Limits, l net.Listener) func() {
		app := Fiber(limits)
		go func() { _ = app.Listener(l) }()
		return func() { _ = app.Shutdown() }
	},
}

// TestFrameworks: in each framework a route has a limiter of its own for the client, whatever its parameter is, and what is
// rejected has the status and the fields of a rejection.
func TestFrameworks(t *testing.T) {
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			m := miniredis.RunT(t)
			client, err := ratelimiter.New(redis.NewClient(&redis.Options{Addr: m.Addr()}))
			require.NoError(t, err)
			defer client.Close()
			limits, err := NewLimits(client)
			require.NoError(t, err)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			addr := l.Addr().String()
			defer start(t, limits, l)()
			await(t, addr)
			for _, c := range []struct {
				path   string
				status int
				fields string
			}{
				{"/orders/1", 200, `"orders";r=1`},
				{"/orders/2", 200, `"orders";r=0`},
				{"/orders/3", 429, `"orders";r=0;t=`},
				{"/search/a", 200, `"search";r=2`},
				{"/search/b", 200, `"search";r=1`},
				{"/search/c", 200, `"search";r=0`},
				{"/search/d", 429, `"search";r=0;t=`},
			} {
				r, err := http.Get("http://" + addr + c.path)
				require.NoError(t, err)
				body, err := io.ReadAll(r.Body)
				require.NoError(t, err)
				require.NoError(t, r.Body.Close())
				require.Equal(t, c.status, r.StatusCode, "%s: %s", c.path, body)
				require.True(t, strings.HasPrefix(r.Header.Get("RateLimit"), c.fields), r.Header)
				require.Contains(t, r.Header.Get("RateLimit-Policy"), ";w=3600")
				require.Equal(t, c.status == 429, r.Header.Get("Retry-After") != "")
				if c.status == 200 {
					require.Contains(t, string(body), c.path[len("/orders/"):], "the parameter")
				}
			}
			var limiters []string
			for _, key := range m.Keys() {
				if m.Type(key) == "hash" && strings.Contains(key, ":") { // New sets the rate at the name alone
					limiters = append(limiters, key)
				}
			}
			require.Equal(t, []string{"orders:127.0.0.1", "search:127.0.0.1"}, limiters)
		})
	}
}

// await returns when a server listens.
func await(t *testing.T, addr string) {
	for {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
			return
		}
		time.Sleep(10 * time.Millisecond)
		require.NoError(t, t.Context().Err())
	}
}
