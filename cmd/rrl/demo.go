// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/term"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/urfave/cli/v3"
)

func demoCommand() *cli.Command {
	return &cli.Command{
		Name:  "demo",
		Usage: "watch a limiter admit, delay and reject HTTP requests",
		Description: "Serves GET /require?num=N, which takes N permits of a limiter of 5 in any 10s and waits up to\n" +
			"1m for them. Clients then send requests for some 20s; the demo shows what each asked for, how\n" +
			"long it waited, the response, and the limiter's three keys in Redis. The last line is the most\n" +
			"permits granted in any window, counted from the responses. If that is more than 5, the exit code\n" +
			"is 1.\n\n" +
			"Without --redis the demo runs on a Redis inside this program. In another Redis it creates a\n" +
			"limiter rrl-demo:<random> and deletes it at the end.\n\n" +
			"With --json each line is an object with an event: begin, asked, answered, summary. The text of\n" +
			"the summary, which is the last one, is the last line of the other output.",
		OnUsageError: command.OnUsageError,
		// Without this, the argument help would be a command instead of wrong usage.
		HideHelpCommand: true,
		Commands:        []*cli.Command{dingtalkCommand()},
		// Flags that are not Local apply to the sub-commands, too.
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "redis", Usage: "the Redis to use: redis://[user:password@]host:port/db", Sources: cli.EnvVars("REDIS_URL"), DefaultText: "an embedded one"},
			&cli.StringFlag{Name: "addr", Value: "127.0.0.1:0", Usage: "where the endpoint listens; port 0 is any free one", Local: true},
			&cli.BoolFlag{Name: "serve", Usage: "send no requests; serve those of others until Ctrl-C, after which the exit code is 0", Local: true},
			&cli.BoolFlag{Name: "json", Usage: "write one JSON object a line"},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if err := command.NoArguments(c); err != nil {
				return err
			}
			if _, _, err := net.SplitHostPort(c.String("addr")); err != nil {
				return command.UsageError{Err: fmt.Errorf("--addr: %w", err)}
			}
			st, err := openStore(ctx, c.String("redis"))
			if err != nil {
				return err
			}
			defer st.close()
			out := c.Root().Writer
			d := &demo{
				store:   st,
				rate:    ratelimiter.Rate{Type: ratelimiter.Overall, Permits: 5, Interval: 10 * time.Second},
				timeout: time.Minute,
				steps:   thePlay,
				longest: 40 * time.Second,
				serve:   c.Bool("serve"),
				view:    newView(out, c.Bool("json")),
				warn:    c.Root().ErrWriter,
				listen:  func() (net.Listener, error) { return net.Listen("tcp", c.String("addr")) },
				dial:    new(net.Dialer).DialContext,
			}
			return d.run(ctx)
		},
	}
}

func newView(out io.Writer, asJSON bool) view {
	switch {
	case asJSON:
		return &jsonView{out: out}
	case term.Is(out):
		return &termView{out: out, colour: os.Getenv("NO_COLOR") == ""}
	}
	return &plainView{out: out}
}

// A demo is one run. The tests run it over virtual time and pipes.
type demo struct {
	store   *store
	options []ratelimiter.Option
	rate    ratelimiter.Rate
	timeout time.Duration
	steps   []step
	longest time.Duration // the demo fails if the play takes longer
	serve   bool
	view    view
	warn    io.Writer
	listen  func() (net.Listener, error)
	dial    func(ctx context.Context, network, addr string) (net.Conn, error)
}

// run runs the demo. It returns why the demo failed, or errInterrupted if ctx ended it.
func (d *demo) run(ctx context.Context) error {
	client, err := ratelimiter.New(d.store.rdb, d.options...)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	limiter := client.RateLimiter(d.store.name)
	ln, err := d.listen()
	if err != nil {
		return err
	}
	defer d.cleanUp(ctx, limiter)
	defer d.view.close()

	begin := time.Now()
	tally := newTally(d.rate.Interval)
	svc := &service{limiter: limiter, rate: d.rate, timeout: d.timeout}
	if d.serve {
		svc.asked = d.watch(begin, tally)
	}
	stop := start(ln, svc.handler())
	base := "http://" + ln.Addr().String()
	d.view.begin(intro{Where: d.store.where, Limiter: d.store.name, URL: base, Rate: d.rate, Timeout: d.timeout, Serve: d.serve})
	stopLive := d.live(ctx, begin, limiter)

	if d.serve {
		<-ctx.Done()
	} else {
		err = d.play(ctx, base, begin, tally)
	}
	stopLive()
	if serr := stop(); serr != nil && err == nil {
		err = serr
	}
	if err != nil {
		return err
	}
	s := tally.end(d.rate.Permits)
	if s.Err == nil && !d.serve {
		s.Err = s.Failed // with --serve the clients are not ours
	}
	d.view.end(s)
	return s.Err
}

// play plays the clients.
func (d *demo) play(ctx context.Context, base string, start time.Time, tally *tally) error {
	playCtx, cancel := context.WithTimeout(ctx, d.longest)
	defer cancel()
	// The default transport would use a proxy from the environment.
	transport := &http.Transport{DialContext: d.dial}
	defer transport.CloseIdleConnections()
	t := &troupe{
		base: base, http: &http.Client{Transport: transport}, start: start,
		asked: d.view.asked,
		answered: func(e exchange) {
			tally.add(e)
			d.view.answered(e)
		},
	}
	err := t.play(playCtx, d.steps)
	switch {
	case ctx.Err() != nil:
		return command.ErrInterrupted
	case err != nil:
		return fmt.Errorf("the demo did not end within %v", d.longest)
	}
	return nil
}

// start serves h on ln. The function that it returns stops the server: requests that wait get a 503. It
// returns the error that had ended the server before, if any.
func start(ln net.Listener, h http.Handler) (stop func() error) {
	base, cancel := context.WithCancelCause(context.Background())
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return base },
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	return func() error {
		cancel(errStopping)
		grace, done := context.WithTimeout(context.Background(), 2*time.Second)
		defer done()
		if srv.Shutdown(grace) != nil {
			_ = srv.Close()
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}
}

// watch returns a function for service.asked that reports the requests of others to the view.
func (d *demo) watch(start time.Time, tally *tally) func(*http.Request) func(int, answer) {
	return func(r *http.Request) func(int, answer) {
		e := exchange{Client: "curl", Num: fmt.Sprintf("%.12s", r.URL.Query().Get("num")), Asked: time.Since(start)}
		e.Timeout, _ = time.ParseDuration(r.URL.Query().Get("timeout"))
		d.view.asked(e)
		return func(status int, a answer) {
			e.Status, e.Answer, e.Done = status, a, time.Since(start)
			tally.add(e)
			d.view.answered(e)
		}
	}
}

// live shows the keys five times a second, if the view is a liveView, until stop is called.
func (d *demo) live(ctx context.Context, start time.Time, l *ratelimiter.RateLimiter) (stop func()) {
	v, ok := d.view.(liveView)
	if !ok {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for retry.Sleep(ctx, 200*time.Millisecond) == nil {
			s, err := l.Inspect(ctx)
			if err == nil || errors.Is(err, ratelimiter.ErrNotInitialized) {
				v.keys(time.Since(start), keysOf(s))
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// cleanUp deletes the limiter, also after Ctrl-C.
func (d *demo) cleanUp(ctx context.Context, l *ratelimiter.RateLimiter) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if _, err := l.Delete(ctx); err != nil {
		fmt.Fprintf(d.warn, "rrl: could not delete the limiter %s: %s\n", visible(l.Name()), oneLine(err))
	}
}
