// SPDX-License-Identifier: Apache-2.0

// Command dingtalk sends messages through a custom robot of DingTalk from three services that share the robot's limit, and is
// never banned. A gateway that bans as DingTalk's does is a command beside it:
//
//	go run ./examples/dingtalk/gate                                                 in one terminal
//	go run ./examples/dingtalk -url http://127.0.0.1:8090 -minute 5s                in another: all messages are sent
//	go run ./examples/dingtalk -url http://127.0.0.1:8090 -minute 5s -limit=false   without the limit: the robot is banned, messages are lost
//
// With -ban 3s at both, somebody else behind the same address gets it banned for 3 s after a few messages. The first service that
// is told so stops all three until the ban is over, and no message is lost.
//
// The program starts an embedded Redis, or uses the one at REDIS_URL. It takes about 11 s, and the last line counts the messages.
// It compiles outside this repository. The part to copy is newHTTPClient; an SDK that accepts an http.Client, here robot.go, needs
// no change.
//
// The limit of a robot is 20 messages a minute. To keep the example short, a minute takes 5 s above, in the gateway and, by
// WithRate, in the profile. With -url https://oapi.dingtalk.com and the robot's access_token in DINGTALK_TOKEN it sends to a real
// group.
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
	"log"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/platform"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

const perMinute, services = 20, 3

// newHTTPClient returns the http.Client of one service. It shares the limits of the profile with all services on the same Redis.
// A request waits for a permit for as long as its context allows. When DingTalk reports a ban, all services pause until it is over.
func newHTTPClient(limits *ratelimiter.Client, profile httplimit.Profile, events func(httplimit.Event)) (*http.Client, error) {
	transport, err := httplimit.New(limits, httplimit.WithProfile(profile), httplimit.WithEvents(events))
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport}, nil
}

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
	d := &demo{Logger: log.New(stdout, "", log.Ltime)}
	f := flag.NewFlagSet("dingtalk", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&d.redis, "redis", "", "`URL` of a Redis, or host:port; empty for that of REDIS_URL, or else an embedded one")
	f.StringVar(&d.name, "name", "dingtalk-example:"+uuid.NewString()+":", "what the limiters' names begin with")
	f.StringVar(&d.url, "url", os.Getenv("DINGTALK_URL"), "base `URL` of DingTalk or of a gateway like it; DINGTALK_URL")
	f.DurationVar(&d.minute, "minute", time.Minute, "how long a minute is at the URL, 100ms to 1m")
	f.DurationVar(&d.ban, "ban", 5*time.Minute, "how long the URL bans an address")
	f.IntVar(&d.messages, "messages", 60, "how many messages there are to send")
	f.BoolVar(&d.limit, "limit", true, "whether the services keep the limit")
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	d.redis = cmp.Or(d.redis, os.Getenv("REDIS_URL")) // not as the default of the flag, which -help would print with its password
	wrong := d.minute < 100*time.Millisecond || d.minute > time.Minute || d.minute%time.Millisecond != 0
	if wrong || f.NArg() > 0 || d.messages < 1 || d.ban < time.Millisecond {
		fmt.Fprintf(stderr, "dingtalk: arguments %q, %d messages, a minute of %v, a ban of %v: one is out of its range\n", f.Args(), d.messages, d.minute, d.ban)
		return 2
	}
	base, err := url.Parse(d.url)
	if err != nil || base.Hostname() == "" {
		fmt.Fprintln(stderr, "dingtalk: -url is no URL of DingTalk; start a gateway by: go run ./examples/dingtalk/gate")
		return 2
	}
	d.profile = platform.DingTalkRobot( // a program that calls DingTalk itself needs none of these options
		platform.WithHosts(base.Hostname()),
		platform.WithRate(platform.ScopeRobot, 0, time.Minute),
		platform.WithRate(platform.ScopeRobot, perMinute, d.minute),
		platform.WithPenalty(platform.ScopeIP, d.ban),
	)
	if err := d.run(ctx); err != nil {
		fmt.Fprintln(stderr, "dingtalk:", err)
		return 1
	}
	return 0
}

// A demo is one run of the command.
type demo struct {
	*log.Logger
	redis, name, url string
	minute, ban      time.Duration
	messages         int
	limit            bool
	profile          httplimit.Profile

	rdb   *redis.Client
	sent  atomic.Int64
	names sync.Map // of the limiters
}

func (d *demo) run(ctx context.Context) error {
	// Twice as long as the limit makes it take.
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second+2*time.Duration(1+d.messages/perMinute)*d.minute+d.ban)
	defer cancel()
	where := ""
	if d.redis == "" {
		m, err := embedded()
		if err != nil {
			return err
		}
		defer m.Close()
		d.redis, where = m.Addr(), "an embedded Redis"
	}
	var err error
	if d.rdb, err = newRedis(d.redis); err != nil {
		return err
	}
	defer func() { _ = d.rdb.Close() }()
	d.Printf("%d messages from %d services, %d in any %v, on %s", d.messages, services, perMinute, d.minute, cmp.Or(where, "the Redis at "+d.rdb.Options().Addr))
	if err := d.send(ctx); err != nil {
		return err
	}
	sent := int(d.sent.Load())
	d.Printf("sent %d of %d", sent, d.messages)
	if sent < d.messages {
		return cmp.Or(context.Cause(ctx), fmt.Errorf("%d of %d messages were not sent", d.messages-sent, d.messages))
	}
	return nil
}

// send runs the services, each of which sends one message after another as fast as it may.
func (d *demo) send(ctx context.Context) error {
	todo := make(chan int, d.messages)
	for i := range d.messages {
		todo <- i + 1
	}
	close(todo)
	defer d.deleteLimiters(ctx)
	var working sync.WaitGroup
	defer working.Wait()
	for i := range services {
		name := fmt.Sprintf("service-%d", i+1)
		client, end, err := d.client(name)
		if err != nil {
			return err
		}
		working.Go(func() {
			defer end()
			robot := &Robot{BaseURL: d.url, Token: cmp.Or(os.Getenv("DINGTALK_TOKEN"), "a-robot-of-the-demo"), HTTP: client}
			for n := range todo {
				d.message(ctx, name, robot, n)
			}
		})
	}
	return nil
}

// client returns the http.Client of a service, which has a connection to Redis of its own as if it were another process.
func (d *demo) client(service string) (client *http.Client, end func(), err error) {
	if !d.limit {
		return &http.Client{}, func() {}, nil
	}
	rdb := redis.NewClient(d.rdb.Options())
	// Another program shares limiters by the names of the profile. A demo must not touch those.
	limits, err := ratelimiter.New(rdb, ratelimiter.WithNameMapper(func(name string) string {
		d.names.Store(d.name+name, true)
		return d.name + name
	}))
	if err != nil {
		return nil, nil, err
	}
	client, err = newHTTPClient(limits, d.profile, func(e httplimit.Event) {
		if e.Kind == httplimit.EventCoolDown && e.Err == nil {
			d.Printf("%s is told of a ban: nobody sends for %v", service, time.Until(e.Until).Round(time.Millisecond))
		}
	})
	return client, func() { _, _ = limits.Close(), rdb.Close() }, err
}

// deleteLimiters deletes the limiters of the demo. A program keeps its own.
func (d *demo) deleteLimiters(ctx context.Context) {
	limits, err := ratelimiter.New(d.rdb)
	if err != nil {
		return
	}
	defer func() { _ = limits.Close() }()
	d.names.Range(func(name, _ any) bool {
		if _, err := limits.RateLimiter(name.(string)).Admin().Delete(context.WithoutCancel(ctx)); err != nil {
			d.Printf("could not delete the limiter %s: %v", name, err)
		}
		return true
	})
}

// message sends a message, once more if that fails: a message that met a ban waits in the limiter until the ban is over.
func (d *demo) message(ctx context.Context, service string, robot *Robot, number int) {
	text := fmt.Sprintf("disk %d is nearly full, says %s", number, service)
	err := robot.SendText(ctx, text)
	if err != nil && ctx.Err() == nil {
		err = robot.SendText(ctx, text)
	}
	if err != nil {
		d.Printf("%s: message %d is lost: %v", service, number, err)
	} else if n := d.sent.Add(1); n%10 == 0 {
		d.Printf("%s has sent the %dth message", service, n)
	}
}
