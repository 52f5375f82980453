// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/platform"
	"github.com/goredisson/ratelimiter/internal/test/dinggate"
)

// headerSent holds the time, in nanoseconds, at which a request left its process, after it was granted.
const headerSent = "X-Sent"

// An outboundPlan is the load of one Go process: goroutines that call one API, each as fast as its client allows.
type outboundPlan struct {
	Addr    string // of Redis
	URL     string // of the gateway
	Name    string // of the process, for the gateway
	App     string
	Plain   bool  // without a Transport of this library
	Permits int64 // of the API, per second
}

// An outboundTally counts the results of the calls.
type outboundTally struct {
	Errors map[string]int64 // what callers got instead, by text
	Events []outboundEvent  // the notable events, by time
}

type outboundEvent struct {
	At      time.Time
	Kind    httplimit.EventKind
	Limiter string
	Until   time.Time
	Err     string
}

// Run returns an outboundTally.
func (p *outboundPlan) Run() any {
	redis.SetLogger(silent{}) // one of the phases is about a Redis that is down
	tally := &outboundTally{Errors: map[string]int64{}}
	var mu sync.Mutex
	base := stamped{&http.Transport{MaxIdleConnsPerHost: goGoroutines}}
	client := &http.Client{Transport: base}
	if !p.Plain {
		limits, err := ratelimiter.New(redis.NewClient(&redis.Options{Addr: p.Addr}))
		if err != nil {
			panic(err)
		}
		transport, err := httplimit.New(limits,
			httplimit.WithProfile(p.profile()), httplimit.WithBase(base), httplimit.WithEvents(func(e httplimit.Event) {
				mu.Lock()
				defer mu.Unlock()
				if e.Kind != httplimit.EventGranted && e.Kind != httplimit.EventRejected {
					event := outboundEvent{At: time.Now(), Kind: e.Kind, Limiter: e.Limiter, Until: e.Until}
					if e.Err != nil {
						event.Err = e.Err.Error()
					}
					tally.Events = append(tally.Events, event)
				}
			}))
		if err != nil {
			tally.Errors[err.Error()]++
			return tally
		}
		client.Transport = transport
	}
	ctx, cancel := context.WithTimeout(context.Background(), phaseLimit)
	defer cancel()
	var running sync.WaitGroup
	push := func(name string) {
		for ctx.Err() == nil {
			err := post(ctx, client, p.URL+apiPath+"?access_token="+dinggate.AppToken(p.App), name)
			if err != nil && ctx.Err() == nil {
				mu.Lock()
				tally.Errors[err.Error()]++
				mu.Unlock()
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
	for i := range goGoroutines {
		running.Go(func() { push(fmt.Sprint(p.Name, ".", i)) })
	}
	if resp, err := http.Get(p.URL + endPath); err == nil {
		_ = resp.Body.Close()
	}
	cancel()
	running.Wait()
	return tally
}

// profile returns DingTalk's profile with its defaults, except for the gateway's address, the scaled ban and the rate.
func (p *outboundPlan) profile() httplimit.Profile {
	return platform.DingTalk(p.App, platform.WithHosts("127.0.0.1"),
		platform.WithPenalty(platform.ScopeIP, banLength),
		platform.WithRate(platform.ScopeAppAPI, p.Permits, time.Second))
}

func post(ctx context.Context, client *http.Client, url, caller string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(dinggate.HeaderCaller, caller)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// A stamped adds headerSent. It is below the Transport, so that a request already has its permits.
type stamped struct{ base http.RoundTripper }

func (s stamped) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set(headerSent, strconv.FormatInt(time.Now().UnixNano(), 10))
	return s.base.RoundTrip(req)
}
