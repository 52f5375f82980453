// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/prometheusratelimiter"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// grace is how long requests in flight may take after the server was told to end. It is shorter than what the platform
// leaves a process before it kills it, 30 s in Kubernetes.
const grace = 10 * time.Second

// A server is one of those that share the limit. It has its own connections and Client, as each process does.
type server struct {
	handler http.Handler
	log     *slog.Logger
	close   func()
}

// newServer returns a server of the API. The caller closes it after serve has returned.
func newServer(s settings, log *slog.Logger) (*server, error) {
	rdb, err := newRedis(s.redis)
	if err != nil {
		return nil, err
	}
	metrics := prometheus.NewRegistry()
	hook, err := prometheusratelimiter.NewHook(metrics, prometheusratelimiter.WithPolicies(func(string) string { return "orders" }))
	if err != nil {
		_ = rdb.Close()
		return nil, err
	}
	client, err := ratelimiter.New(rdb, ratelimiter.WithHook(hook), ratelimiter.WithHook(ratelimiter.LogHook(log)))
	if err != nil {
		_ = rdb.Close()
		return nil, err
	}
	closeAll := func() {
		_ = client.Close() // first, because it gives back what nobody has used
		_ = rdb.Close()
	}
	handler, err := newService(client, s, log, promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	if err != nil {
		closeAll()
		return nil, err
	}
	return &server{handler, log, closeAll}, nil
}

// serve serves until ctx is done. Then it takes no more connections, lets the requests in flight finish, and returns.
func (s *server) serve(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{Handler: s.handler, ReadHeaderTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn)}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	s.log.Info("the server ends", "grace", grace)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	return srv.Shutdown(end)
}
