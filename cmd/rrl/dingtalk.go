// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/examples/dingtalk/fleet"
	"github.com/goredisson/ratelimiter/httplimit/platform"
	"github.com/goredisson/ratelimiter/internal/dinggate"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/urfave/cli/v3"
)

func dingtalkCommand() *cli.Command {
	return &cli.Command{
		Name:  "dingtalk",
		Usage: "watch services call a DingTalk-like gateway: without a limiter, with one, and through a ban",
		Description: "Four services call two APIs as fast as they can for some 40s, in four parts: without a limiter;\n" +
			"with the profile platform.DingTalk; while the address that they share is banned because of\n" +
			"others; and after the ban. Next to them is the gateway's own count. The services are in this\n" +
			"process, each with its own Redis connection, ratelimiter.Client and httplimit.Transport; they\n" +
			"are the fleet of examples/dingtalk.\n" +
			"The gateway is a model of DingTalk's on loopback. It bans for 10s instead of 5m.\n\n" +
			"The last line is the verdict. The exit code is 1 if there was a penalty with the profile, or if a\n" +
			"call was sent during the ban after the fleet had learned of it. On a busy machine the delays of\n" +
			"calls may differ by more than the profile's margin; a larger --margin helps then. --margin 0s\n" +
			"shows what happens without one.\n\n" +
			"Without --redis the demo runs on a Redis inside this program. In another Redis it creates\n" +
			"limiters rrl-demo:<random>:… and deletes them at the end.\n\n" +
			"With --json each line is an object with an event: begin, act, second, ban, met, known, over,\n" +
			"resumed, summary. The text of the summary, which is the last one, is the last line of the other\n" +
			"output.",
		OnUsageError: command.OnUsageError,
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "margin", Value: dingMargin, Usage: "by how much delays may differ: 0s to 1s"},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if err := command.NoArguments(c); err != nil {
				return err
			}
			for _, name := range []string{"addr", "serve"} {
				if c.IsSet(name) {
					return command.UsageError{Err: fmt.Errorf("demo dingtalk has no --%s", name)}
				}
			}
			margin := c.Duration("margin")
			if margin < 0 || margin > time.Second || margin%time.Millisecond != 0 {
				return command.UsageError{Err: fmt.Errorf("--margin: %v is not in 0s to 1s, in whole milliseconds", margin)}
			}
			st, err := openStore(ctx, c.String("redis"))
			if err != nil {
				return err
			}
			defer st.close()
			out := c.Root().Writer
			d := &dingDemo{
				store:  st,
				parts:  theDingParts,
				margin: margin,
				view:   newDingView(out, c.Bool("json")),
				warn:   c.Root().ErrWriter,
				listen: func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") },
				dial:   new(net.Dialer).DialContext,
			}
			return d.run(ctx)
		},
	}
}

// dingParts holds the lengths of the parts of the demo.
type dingParts struct {
	Without, With, Ban, After time.Duration
}

var theDingParts = dingParts{Without: 5 * time.Second, With: 12 * time.Second, Ban: 10 * time.Second, After: 10 * time.Second}

// A dingDemo is one run. The tests run it over virtual time and pipes.
type dingDemo struct {
	store   *store
	options []ratelimiter.Option
	adjust  []platform.Option // with which tests weaken the profile, so that the demo fails
	parts   dingParts
	margin  time.Duration
	view    dingView
	warn    io.Writer
	listen  func() (net.Listener, error)
	dial    func(ctx context.Context, network, addr string) (net.Conn, error)

	begin time.Time
	fleet *dingFleet
	gate  atomic.Pointer[dinggate.Gate] // a new one with the profile, so that its counts start at 0
	look  *dingLook
}

// run runs the demo. It returns why the demo failed, or errInterrupted if ctx ended it.
func (d *dingDemo) run(outer context.Context) error {
	ctx, fail := context.WithCancelCause(outer)
	defer fail(nil)
	ln, err := d.listen()
	if err != nil {
		return err
	}
	limits := fleet.NewLimits(d.store.rdb, d.store.name+":", d.options...)
	own, err := limits.On(d.store.rdb)
	if err != nil {
		_ = ln.Close()
		return err
	}
	defer func() {
		if name, err := limits.Delete(outer); err != nil {
			fmt.Fprintf(d.warn, "rrl: could not delete the limiter %s: %s\n", visible(name), oneLine(err))
		}
		_ = own.Close()
	}()
	defer d.view.close()

	d.begin = time.Now()
	d.gate.Store(dinggate.New(dinggate.WithIPHeader()))
	d.fleet = &dingFleet{begin: d.begin, base: "http://" + ln.Addr().String(), dial: d.dial, limits: limits, fail: fail}
	stopServer := start(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.fleet.arrived(r)
		d.gate.Load().ServeHTTP(w, r)
	}))
	d.look = &dingLook{begin: d.begin, gate: d.gate.Load, fleet: d.fleet, own: own}
	d.view.begin(dingIntro{Where: d.store.where, URL: d.fleet.base, Ban: d.parts.Ban})

	s, ok := d.play(ctx)
	if serr := stopServer(); serr != nil && outer.Err() == nil && ok {
		return serr
	}
	switch {
	case outer.Err() != nil:
		return command.ErrInterrupted
	case !ok:
		return context.Cause(ctx)
	}
	d.view.end(s)
	return s.Err
}

// play plays the four parts. It reports false if ctx ended them.
func (d *dingDemo) play(ctx context.Context) (s dingSummary, ok bool) {
	d.act("without", "Without a limiter, as it is today.")
	stop, err := d.fleet.start(ctx, nil)
	if err != nil {
		d.fleet.fail(err)
		return s, false
	}
	ok = d.watch(ctx, d.parts.Without)
	stop()
	if !ok || ctx.Err() != nil {
		return s, false
	}
	s.Parts, s.Without = d.parts, d.gate.Load().Ledger()

	gate := dinggate.New(dinggate.WithIPHeader())
	d.gate.Store(gate)
	d.act("profile", "With the profile platform.DingTalk.")
	profile := append([]platform.Option{
		// A program that calls DingTalk itself needs only WithEgress, and only if it has several addresses.
		platform.WithEgress(dingAddress),
		platform.WithHosts("127.0.0.1"),
		platform.WithPenalty(platform.ScopeIP, d.parts.Ban),
	}, d.adjust...)
	if d.margin != dingMargin {
		profile = append(profile, platform.WithMargin(d.margin))
	}
	stop, err = d.fleet.start(ctx, profile)
	if err != nil {
		d.fleet.fail(err)
		return s, false
	}
	defer stop()
	if !d.watch(ctx, d.parts.With) {
		return s, false
	}
	s.With = gate.Ledger()

	d.act("ban", fmt.Sprintf("Somebody else behind %s has called too often: the gateway bans the address for %v (DingTalk: %v).",
		dingAddress, d.parts.Ban, dinggate.Standard().IP.Penalty))
	if err := d.fleet.ban.begin(gate, d.parts.Ban); err != nil {
		d.fleet.fail(err)
		return s, false
	}
	d.tell("ban", time.Now(), "the gateway bans the address")
	if !d.watch(ctx, d.parts.Ban) {
		return s, false
	}
	d.tell("over", time.Now(), "the ban is over")
	d.act("after", "After the ban. The address opens little by little in Redis, over 20s.")
	if !d.watch(ctx, d.parts.After) {
		return s, false
	}
	stop() // so that the ledger holds the last response
	if ctx.Err() != nil {
		return s, false
	}
	s.End, s.Ban = gate.Ledger(), d.fleet.ban.record()
	s.Margin, s.Slowest, s.At = d.margin, time.Duration(d.fleet.slowest.Load()), time.Since(d.begin)
	return s.judged(), true
}

func (d *dingDemo) act(name, text string) {
	d.look.reset()
	d.view.act(dingEvent{Kind: name, At: time.Since(d.begin), Text: text})
}

func (d *dingDemo) tell(kind string, at time.Time, format string, args ...any) {
	d.view.tell(dingEvent{Kind: kind, At: at.Sub(d.begin), Text: fmt.Sprintf(format, args...)})
}

// dingTick is how often a dingLiveView is drawn.
const dingTick = 200 * time.Millisecond

// watch shows what happens for length. It reports false if ctx ended it. Only its goroutine writes to the
// view, so that the lines are in the order of their times.
func (d *dingDemo) watch(ctx context.Context, length time.Duration) bool {
	from := time.Now()
	for at := min(dingTick, length); ; at = min(at+dingTick, length) {
		if retry.Sleep(ctx, time.Until(from.Add(at))) != nil {
			return false
		}
		for _, e := range d.fleet.ban.news() {
			d.tell(e.kind, e.at, "%s", e.text)
		}
		live, isLive := d.view.(dingLiveView)
		second := at%time.Second == 0 || at == length
		if isLive || second {
			row := d.look.now(ctx)
			if isLive {
				live.now(row)
			}
			if second {
				d.view.second(d.look.since(row))
			}
		}
		if at == length {
			return ctx.Err() == nil
		}
	}
}
