// SPDX-License-Identifier: Apache-2.0

// Command server serves an HTTP API whose limit all of its processes share: each client may send 5 requests in any
// 2 s, whichever server they go to.
//
//	go run ./examples/server
//
// It starts an embedded Redis (or uses the one at REDIS_URL) and two servers, sends the requests of three clients and shows
// the responses: the RateLimit fields, 429 with Retry-After, and the effect of a forged X-Forwarded-For. With
// the embedded Redis it then stops that for a moment. The last line says whether all responses were as
// expected.
//
// With -serve it is one server, which serves until Ctrl-C or SIGTERM and then lets the requests in flight finish. Processes with the
// same Redis and the same -name share the limit:
//
//	export REDIS_URL=redis://localhost:6379/0    # rediss:// for TLS; REDIS_PASSWORD for the password
//	go run ./examples/server -serve -name orders -addr 127.0.0.1:8080
//	go run ./examples/server -serve -name orders -addr 127.0.0.1:8081
//	curl -i localhost:8080/orders/1
//	curl localhost:8081/metrics
//
// The parts to copy into a server are service.go and serve.go, and redis.go without the embedded Redis. They compile outside this
// repository.
//
// The exit code is 0 if all responses were as expected, or after -serve has ended in order, 1 otherwise, and 2 on wrong usage.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/goredisson/ratelimiter"
	"github.com/redis/go-redis/v9/logging"
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
	name     string
	addr     string
	serve    bool
	interval time.Duration
	busy     time.Duration
}

// rate is what all servers of that name set.
func (s settings) rate() ratelimiter.Rate { return ratelimiter.Rate{Permits: 5, Interval: s.interval} }

func run(ctx context.Context, args []string, out, errs io.Writer) int {
	var s settings
	f := flag.NewFlagSet("server", flag.ContinueOnError)
	f.SetOutput(errs)
	f.StringVar(&s.redis, "redis", "", "`URL` of a Redis, or host:port; empty for that of REDIS_URL, or else an embedded one")
	f.StringVar(&s.name, "name", "", "of the limit; servers of the same name share it (default \"server-example\" with -serve, else one of this run)")
	f.StringVar(&s.addr, "addr", "127.0.0.1:0", "where the first server listens; port 0 is any free one")
	f.BoolVar(&s.serve, "serve", false, "play no clients: serve until Ctrl-C")
	f.DurationVar(&s.interval, "interval", 2*time.Second, "of the limit of 5 requests")
	f.DurationVar(&s.busy, "busy", 0, "how long a request for an order takes")
	if err := f.Parse(args); err != nil {
		return 2
	}
	s.redis = cmp.Or(s.redis, os.Getenv("REDIS_URL")) // not as the default of the flag, which -help would print with its password
	if f.NArg() > 0 || s.interval < 100*time.Millisecond || s.interval%time.Millisecond != 0 || s.busy < 0 {
		fmt.Fprintln(errs, "server: no arguments, and an interval of 100ms or more in whole milliseconds")
		return 2
	}
	if err := start(ctx, s, out, errs); err != nil {
		fmt.Fprintln(errs, "server:", err)
		return 1
	}
	return 0
}

// start starts what the servers need, and serves or plays.
func start(ctx context.Context, s settings, out, errs io.Writer) error {
	var stopRedis func()
	if s.redis == "" {
		m, err := embedded()
		if err != nil {
			return err
		}
		defer m.Close()
		s.redis, stopRedis = m.Addr(), m.Close
	}
	if s.serve {
		if s.name == "" {
			s.name = "server-example"
		}
		return serveOne(ctx, s, out, slog.New(slog.NewTextHandler(errs, nil)))
	}
	if s.name == "" {
		s.name = "server-example-" + uuid.NewString()[:8]
	}
	return playWithTwo(ctx, s, out, stopRedis)
}

// serveOne serves until ctx is done.
func serveOne(ctx context.Context, s settings, out io.Writer, log *slog.Logger) error {
	srv, err := newServer(s, log)
	if err != nil {
		return err
	}
	defer srv.close()
	ln, err := net.Listen("tcp", s.addr)
	if err != nil {
		return err
	}
	url := "http://" + ln.Addr().String()
	fmt.Fprintf(out, "%s: %d requests in any %v for each client, all servers of the name %q together\n", url, s.rate().Permits, s.interval, s.name)
	fmt.Fprintf(out, "curl -i %s/orders/1\ncurl %s/metrics\n", url, url)
	return srv.serve(ctx, ln)
}

// playWithTwo starts two servers and sends the requests of the clients.
func playWithTwo(ctx context.Context, s settings, out io.Writer, stopRedis func()) error {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	var ended sync.WaitGroup
	defer ended.Wait()
	defer stop()
	var urls []string
	for range 2 {
		srv, err := newServer(s, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		ln, err := net.Listen("tcp", s.addr)
		if err != nil {
			srv.close()
			return err
		}
		s.addr = "127.0.0.1:0"
		ended.Go(func() {
			_ = srv.serve(serving, ln)
			srv.close()
		})
		urls = append(urls, "http://"+ln.Addr().String())
	}
	fmt.Fprintf(out, "two servers, %s and %s: %d requests in any %v for each client, all servers together\n",
		urls[0], urls[1], s.rate().Permits, s.interval)
	p := &play{ctx: ctx, out: out, urls: urls, rate: s.rate()}
	p.scenes(stopRedis)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	fmt.Fprintf(out, "%d requests: %d answered, %d rejected with 429, %d with 503; %d of them not as expected\n",
		p.requests, p.answered, p.rejected, p.undecided, p.wrong)
	if p.wrong > 0 {
		return errors.New("something was not as it should be")
	}
	return nil
}
