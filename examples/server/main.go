// Command server runs two servers of an HTTP API that share a limit: each client may send 5 requests in any
// 2 s, whichever server they go to.
//
//	go run ./examples/server
//
// It starts an embedded Redis (or uses the one at REDIS_ADDR), sends the requests of three clients and shows
// the responses: the RateLimit fields, 429 with Retry-After, and the effect of a forged X-Forwarded-For. With
// the embedded Redis it then stops that for a moment. The last line says whether all responses were as
// expected. With -serve it serves until Ctrl-C:
//
//	curl -i localhost:8080/orders/1
//	curl localhost:8080/metrics
//
// The part to copy into a server is service.go.
//
// The exit code is 0 if all responses were as expected, 1 otherwise, and 2 on wrong usage.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/embedredis"
	"github.com/goredisson/ratelimiter/prometheusratelimiter"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

func main() {
	// go-redis also logs the errors that it returns.
	logging.Disable()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

type settings struct {
	redis    string
	addr     string
	serve    bool
	interval time.Duration
}

func run(ctx context.Context, args []string, out, errs io.Writer) int {
	var s settings
	f := flag.NewFlagSet("server", flag.ContinueOnError)
	f.SetOutput(errs)
	f.StringVar(&s.redis, "redis", os.Getenv("REDIS_ADDR"), "`host:port` of a Redis; empty for an embedded one")
	f.StringVar(&s.addr, "addr", "127.0.0.1:0", "where the first server listens; port 0 is any free one")
	f.BoolVar(&s.serve, "serve", false, "play no clients: serve until Ctrl-C")
	f.DurationVar(&s.interval, "interval", 2*time.Second, "of the limit of 5 requests")
	if err := f.Parse(args); err != nil {
		return 2
	}
	if f.NArg() > 0 || s.interval < 100*time.Millisecond || s.interval%time.Millisecond != 0 {
		fmt.Fprintln(errs, "server: no arguments, and an interval of 100ms or more in whole milliseconds")
		return 2
	}
	if err := start(ctx, s, out); err != nil {
		fmt.Fprintln(errs, "server:", err)
		return 1
	}
	return 0
}

// start starts the servers and what they need, and sends the requests.
func start(ctx context.Context, s settings, out io.Writer) error {
	where, embedded := s.redis, (*embedredis.Server)(nil)
	if where == "" {
		var err error
		if embedded, err = embedredis.Start(); err != nil {
			return err
		}
		defer embedded.Close()
		where = embedded.Addr()
	}
	name := "server-example-" + uuid.NewString()[:8]
	rate := ratelimiter.Rate{Permits: 5, Interval: s.interval}
	var urls []string
	for i := range 2 {
		// Each server has its own connections and Client, as a process would.
		rdb := redis.NewClient(&redis.Options{Addr: where, DisableIdentity: true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
		defer func() { _ = rdb.Close() }()
		metrics := prometheus.NewRegistry()
		hook, err := prometheusratelimiter.NewHook(metrics, func(string) string { return "orders" })
		if err != nil {
			return err
		}
		client := ratelimiter.New(rdb, ratelimiter.WithHook(hook))
		defer func() { _ = client.Close() }()
		handler, err := newService(client, name, rate, promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
		if err != nil {
			return err
		}
		addr := s.addr
		if i > 0 {
			addr = "127.0.0.1:0"
		}
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		srv := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
		defer func() { _ = srv.Close() }()
		go func() { _ = srv.Serve(ln) }() // until Close
		urls = append(urls, "http://"+ln.Addr().String())
	}
	fmt.Fprintf(out, "two servers, %s and %s: %d requests in any %v for each client, all servers together\n",
		urls[0], urls[1], rate.Permits, rate.Interval)
	if s.serve {
		fmt.Fprintf(out, "curl -i %s/orders/1\ncurl %s/metrics\n", urls[0], urls[0])
		<-ctx.Done()
		return nil
	}
	p := &play{ctx: ctx, out: out, urls: urls, rate: rate}
	p.scenes(embedded)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	fmt.Fprintf(out, "%d requests: %d answered, %d refused with 429, %d with 503; %d of them not as expected\n",
		p.requests, p.answered, p.refused, p.undecided, p.wrong)
	if p.wrong > 0 {
		return errors.New("something was not as it should be")
	}
	return nil
}
