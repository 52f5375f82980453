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
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/urfave/cli/v3"
)

func demoCommand() *cli.Command {
	return &cli.Command{
		Name:  "demo",
		Usage: "watch a limiter admit, delay and refuse HTTP requests",
		Description: "Serves GET /require?num=N, which takes N permits of a limiter of 5 in any 10s and waits up to\n" +
			"1m for them, and plays clients against it for some 20s: what each asked for, how long it\n" +
			"waited, what it was answered, and the three keys in Redis. The last line is the most permits\n" +
			"granted in any window, counted from the answers; more than 5 is exit code 1.\n\n" +
			"Without --redis it runs on a Redis inside this program. In a Redis of yours it uses a limiter of\n" +
			"its own, rrl-demo:<random>, and deletes it at the end.\n\n" +
			"With --json each line is an object with an event: begin, asked, answered, summary. The last is\n" +
			"the summary; its text is the line that the demo otherwise ends with.",
		OnUsageError: onUsageError,
		// It would take the word help for a command of its own, which is wrong usage.
		HideHelpCommand: true,
		Commands:        []*cli.Command{dingtalkCommand()},
		// Those that are not Local belong to the sub-commands too.
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "redis", Usage: "the Redis to use: redis://[user:password@]host:port/db", Sources: cli.EnvVars("REDIS_URL"), DefaultText: "an embedded one"},
			&cli.StringFlag{Name: "addr", Value: "127.0.0.1:0", Usage: "where the endpoint listens; port 0 is any free one", Local: true},
			&cli.BoolFlag{Name: "serve", Usage: "play no clients: serve curl until Ctrl-C, which is exit code 0 then", Local: true},
			&cli.BoolFlag{Name: "json", Usage: "one JSON object a line"},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if err := noArguments(c); err != nil {
				return err
			}
			if _, _, err := net.SplitHostPort(c.String("addr")); err != nil {
				return usageError{fmt.Errorf("--addr: %w", err)}
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
	case isTerminal(out):
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
	longest time.Duration // the play is over by then or has failed
	serve   bool
	view    view
	warn    io.Writer
	listen  func() (net.Listener, error)
	dial    func(ctx context.Context, network, addr string) (net.Conn, error)
}

// run serves and plays, and answers why the demo failed; errInterrupted when ctx ended it.
func (d *demo) run(ctx context.Context) error {
	client := ratelimiter.New(d.store.rdb, d.options...)
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
		s.Err = s.Failed // a caller of --serve knows what it was answered
	}
	d.view.end(s)
	return s.Err
}

// play plays the clients.
func (d *demo) play(ctx context.Context, base string, start time.Time, tally *tally) error {
	playCtx, cancel := context.WithTimeout(ctx, d.longest)
	defer cancel()
	// Not the default transport: a proxy from the environment has no part in this.
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
		return errInterrupted
	case err != nil:
		return fmt.Errorf("the play was not over after %v", d.longest)
	}
	return nil
}

// start serves h on ln. The function that it answers ends the server: requests that wait are answered
// with 503, and it returns the error that ended the server before, if any.
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

// watch reports what others ask of the endpoint.
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

// live keeps a view that shows the present informed, five times a second.
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

// cleanUp leaves nothing in a Redis that others use, also after Ctrl-C.
func (d *demo) cleanUp(ctx context.Context, l *ratelimiter.RateLimiter) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if _, err := l.Delete(ctx); err != nil {
		fmt.Fprintf(d.warn, "rrl: could not delete the limiter %s: %s\n", visible(l.Name()), oneLine(err))
	}
}
