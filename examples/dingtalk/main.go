// SPDX-License-Identifier: Apache-2.0

// Command dingtalk sends messages through a custom robot of DingTalk from several services that share the
// limit of the robot. A gateway that bans as DingTalk's does is a command beside it:
//
//	go run ./examples/dingtalk/gate                                                   in one terminal
//	go run ./examples/dingtalk -url http://127.0.0.1:8090 -minute 5s                  in another
//	go run ./examples/dingtalk -url http://127.0.0.1:8090 -minute 5s -limit=false     without the limit: the robot is banned, messages are lost
//
// It starts an embedded Redis, or uses the one at REDIS_URL. Three services then send as fast as they may, and the last line
// counts the messages. It takes about 11 s. The program compiles outside this repository together with package fleet, and
// imports nothing else of it but the library. The part to copy is fleet.NewHTTPClient; an SDK that accepts an
// http.Client, here robot.go, needs no change. `rrl demo dingtalk` runs the same fleet with other calls and bans it.
//
// The limit of a robot is 20 messages a minute. To keep the example short, a minute takes 5 s above, in the
// gateway and, by WithRate, in the profile. With -url https://oapi.dingtalk.com and the robot's access_token in DINGTALK_TOKEN it
// sends to a real group.
//
// The exit code is 0 if all messages were sent, 1 otherwise, and 2 on wrong usage.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/goredisson/ratelimiter/examples/dingtalk/fleet"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/platform"
	"github.com/redis/go-redis/v9/logging"
)

const (
	perMinute = 20
	services  = 3
)

func main() {
	// go-redis also logs the errors that it returns.
	logging.Disable()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run runs the command and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	d := &demo{out: stdout}
	f := flag.NewFlagSet("dingtalk", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&d.redis, "redis", "", "`URL` of a Redis, or host:port; empty for that of REDIS_URL, or else an embedded one")
	f.StringVar(&d.name, "name", "dingtalk-example:"+uuid.NewString()+":", "what the limiters' names begin with")
	f.StringVar(&d.url, "url", os.Getenv("DINGTALK_URL"), "base `URL` of DingTalk or of a gateway like it; DINGTALK_URL")
	f.DurationVar(&d.minute, "minute", time.Minute, "how long a minute is at the URL, 100ms to 1m")
	f.IntVar(&d.messages, "messages", 60, "how many messages there are to send")
	f.BoolVar(&d.limit, "limit", true, "whether the services keep the limit")
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	d.redis = cmp.Or(d.redis, os.Getenv("REDIS_URL")) // not as the default of the flag, which -help would print with its password
	if f.NArg() > 0 || d.messages < 1 || d.minute < 100*time.Millisecond || d.minute > time.Minute || d.minute%time.Millisecond != 0 {
		fmt.Fprintf(stderr, "dingtalk: arguments %q, %d messages, a minute of %v: one of them is out of its range\n", f.Args(), d.messages, d.minute)
		return 2
	}
	if base, err := url.Parse(d.url); err != nil || base.Hostname() == "" {
		fmt.Fprintln(stderr, "dingtalk: -url is no URL of DingTalk; start a gateway by: go run ./examples/dingtalk/gate")
		return 2
	}
	if err := d.run(ctx); err != nil {
		fmt.Fprintln(stderr, "dingtalk:", err)
		return 1
	}
	return 0
}

// A demo is one run of the command.
type demo struct {
	redis    string
	name     string
	url      string
	minute   time.Duration
	messages int
	limit    bool
	out      io.Writer

	begin time.Time
	mu    sync.Mutex // of out
	sent  atomic.Int64
}

func (d *demo) run(ctx context.Context) error {
	// Twice as long as the limit makes it take.
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second+2*time.Duration(1+d.messages/perMinute)*d.minute)
	defer cancel()
	embeddedIn := ""
	if d.redis == "" {
		m, err := embedded()
		if err != nil {
			return err
		}
		defer m.Close()
		d.redis, embeddedIn = m.Addr(), "an embedded Redis"
	}
	rdb, err := newRedis(d.redis)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	where := cmp.Or(embeddedIn, "the Redis at "+rdb.Options().Addr)
	limits := fleet.NewLimits(rdb, d.name)
	d.begin = time.Now()
	d.say("%d messages from %d services, %d in any %v, on %s", d.messages, services, perMinute, d.minute, where)
	defer func() {
		if name, err := limits.Delete(ctx); err != nil {
			d.say("could not delete the limiter %s: %v", name, err)
		}
	}()
	if err := d.send(ctx, limits, cmp.Or(os.Getenv("DINGTALK_TOKEN"), "a-robot-of-the-demo")); err != nil {
		return err
	}
	return d.sumUp(ctx)
}

// send runs all services, each of which sends as fast as it may.
func (d *demo) send(ctx context.Context, limits *fleet.Limits, token string) error {
	base, err := url.Parse(d.url)
	if err != nil {
		return err
	}
	todo := make(chan int)
	var all []fleet.Service
	for i := range services {
		s := fleet.Service{Name: fmt.Sprintf("service-%d", i+1), Network: &http.Transport{}}
		if d.limit {
			s.Limited = []httplimit.Option{httplimit.WithProfile(platform.DingTalkRobot(
				// A program that calls DingTalk itself needs none of these.
				platform.WithHosts(base.Hostname()),
				platform.WithRate(platform.ScopeRobot, 0, time.Minute),
				platform.WithRate(platform.ScopeRobot, perMinute, d.minute),
			))}
		}
		s.Calls = append(s.Calls, func(ctx context.Context, client *http.Client) (more bool) {
			n, more := <-todo
			if more {
				d.message(ctx, s.Name, &Robot{BaseURL: d.url, Token: token, HTTP: client}, n)
			}
			return more
		})
		all = append(all, s)
	}
	working, err := fleet.Start(ctx, limits, time.Second, all)
	if err != nil {
		return err
	}
	defer working.Stop()
	for i := range d.messages {
		select {
		case todo <- i + 1:
		case <-ctx.Done():
		}
	}
	close(todo)
	working.Wait()
	return nil
}

// message reports a message that a service has sent.
func (d *demo) message(ctx context.Context, service string, robot *Robot, number int) {
	if err := robot.SendText(ctx, fmt.Sprintf("disk %d is nearly full, says %s", number, service)); err != nil {
		d.say("%s: message %d: %v", service, number, err)
	} else if n := d.sent.Add(1); n%10 == 0 {
		d.say("%s has sent the %dth message", service, n)
	}
}

// sumUp writes the last line, and returns an error if a message was not sent.
func (d *demo) sumUp(ctx context.Context) error {
	sent := d.sent.Load()
	d.say("sent %d of %d", sent, d.messages)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("not over after %v: %w", time.Since(d.begin).Round(time.Second), context.Cause(ctx))
	case sent < int64(d.messages):
		return fmt.Errorf("%d of %d messages were not sent", int64(d.messages)-sent, d.messages)
	}
	return nil
}

func (d *demo) say(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.out, "%5.1fs  %s\n", time.Since(d.begin).Seconds(), fmt.Sprintf(format, args...))
}
