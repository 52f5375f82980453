// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/http/gateway"
	"github.com/goredisson/ratelimiter/prometheusratelimiter"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/urfave/cli/v3"
)

// serve runs the gateway until ctx ends, and then for as long as --drain.
func serve(ctx context.Context, c *cli.Command, stderr io.Writer) error {
	files := c.StringSlice("rules")
	if len(files) == 0 && len(c.StringSlice("allow")) == 0 {
		return usage("no rules: give --rules FILE")
	}
	rules, err := readRules(files)
	if err != nil {
		return err
	}
	if err := checkListen(c); err != nil {
		return err
	}
	conf, err := tlsConfig(c)
	if err != nil {
		return err
	}
	most, err := maxConns(c)
	if err != nil {
		return err
	}
	opts, err := gatewayOptions(c)
	if err != nil {
		return err
	}
	rdb, err := connect(c)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()

	logger := slog.New(slog.NewJSONHandler(stderr, nil))
	log.SetFlags(0)
	log.SetOutput(gateway.ErrorLog(logger).Writer()) // net/http tells it of what it finds on idle connections
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	hook, err := prometheusratelimiter.NewHook(reg, prometheusratelimiter.WithPolicies(policyOf))
	if err != nil {
		return err
	}
	events, err := newEvents(reg, logger)
	if err != nil {
		return err
	}
	client, err := ratelimiter.New(rdb, ratelimiter.WithHook(hook))
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	g, err := gateway.New(client, rules, append(opts, gateway.WithLogger(logger), gateway.WithTransport(httplimit.WithEvents(events)))...)
	if err != nil {
		return usageError{err}
	}
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	ln, err := net.Listen("tcp", c.String("listen"))
	if err != nil {
		return usage("--listen: %w", err)
	}
	s := &server{g: g, client: client, log: logger, files: files, drain: c.Duration("drain"), reg: reg, mtls: conf != nil && conf.ClientCAs != nil}
	s.http = gateway.NewServer(s.handler())
	s.http.TLSConfig, s.http.Protocols = conf, protocols(conf != nil)
	return s.run(ctx, gateway.NewListener(ln, most, s.crowded), hup)
}

// protocols are HTTP/1.1 and HTTP/2, without TLS by prior knowledge.
func protocols(tls bool) *http.Protocols {
	p := &http.Protocols{}
	p.SetHTTP1(true)
	p.SetHTTP2(tls)
	p.SetUnencryptedHTTP2(!tls)
	return p
}

// A server is a running gateway.
type server struct {
	g      *gateway.Gateway
	client *ratelimiter.Client
	log    *slog.Logger
	files  []string
	drain  time.Duration
	reg    *prometheus.Registry
	http   *http.Server
	mtls   bool // clients need a certificate
}

func (s *server) run(ctx context.Context, ln net.Listener, hup <-chan os.Signal) error {
	ended, tls := make(chan error, 1), s.http.TLSConfig != nil
	go func() {
		if tls {
			ended <- s.http.ServeTLS(ln, "", "")
		} else {
			ended <- s.http.Serve(ln)
		}
	}()
	s.log.Info("listening", "addr", ln.Addr().String(), "tls", tls)
	if host, _, _ := net.SplitHostPort(ln.Addr().String()); !tls && !net.ParseIP(host).IsLoopback() {
		s.log.Warn("requests and the token reach the gateway unencrypted: give --tls-cert and --tls-key")
	}
	for {
		select {
		case err := <-ended:
			return err
		case <-hup:
			s.reload()
		case <-ctx.Done():
			return s.stop()
		}
	}
}

// crowded logs that a source was not let in.
func (s *server) crowded(source string, rejected int) {
	s.log.Warn("connections beyond --max-conns of one address were closed", "address", source, "closed", rejected)
}

// reload reads the files again. After an error the old rules stay.
func (s *server) reload() {
	rules, err := readRules(s.files)
	if err == nil {
		err = s.g.Reload(rules)
	}
	if err != nil {
		s.log.Error("the rules were not read again; the old ones stay", "err", oneLine(err))
		return
	}
	s.log.Info("the rules were read again", "rules", len(rules))
}

// stop ends waiters at once, and what is being served within the bound.
func (s *server) stop() error {
	s.log.Info("stopping", "drain", s.drain.String())
	ctx, cancel := context.WithTimeout(context.Background(), s.drain)
	defer cancel()
	tunnels := make(chan error, 1)
	go func() { tunnels <- s.g.Shutdown(ctx) }()
	err := s.http.Shutdown(ctx)
	if err != nil {
		_ = s.http.Close() // what is left is cut
	}
	if err := errors.Join(err, <-tunnels); err != nil {
		s.log.Warn("requests were cut, because they took longer than --drain")
	}
	s.log.Info("stopped")
	return nil
}

// policyOf returns what stands before the first colon of a limiter's name, for the label of its metrics.
func policyOf(limiter string) string {
	name, _, _ := strings.Cut(limiter, ":")
	return name
}
