// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/goredisson/ratelimiter/examples/dingtalk/fleet"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/platform"
	"github.com/goredisson/ratelimiter/internal/dinggate"
	"github.com/goredisson/ratelimiter/internal/retry"
)

const (
	dingApp = "rrl-demo"
	// dingAddress is the public address of the fleet, of a block that RFC 5737 reserves for examples.
	dingAddress = "203.0.113.7"
	// dingAddressLimiter is the limiter that a ban of the address cools down, as the profile names it.
	dingAddressLimiter = "{dingtalk}:ip:" + dingAddress + ":20s"
	// The delay of a call on its way to the gateway, and of the response on its way back, lies between
	// these. Delays that differ by less than the profile's margin do no harm; the rest of the margin is for
	// a busy machine.
	dingLeastDelay, dingMostDelay = 5 * time.Millisecond, 15 * time.Millisecond
	// dingMargin is the margin of the profile for limits per second.
	dingMargin = 50 * time.Millisecond
	// dingLeft is the name of a header field with the time at which a call left, in ns after the start.
	dingLeft = "X-Rrl-Left"
	// dingPatience bounds the wait of a call for its permit. It is longer than a ban.
	dingPatience = time.Minute
	// dingGrace bounds the time of the calls that are under way when a part ends.
	dingGrace = 2 * time.Second
)

var (
	dingServices = []string{"orders", "payroll", "alerts", "crm"}
	// One API of the old kind and one of the new: they report a throttled call in different ways.
	dingAPIs = []string{"/topapi/message/corpconversation/asyncsend_v2", "/v1.0/robot/oToMessages/batchSend"}
)

// A dingFleet is the services of the demo, with the counts of their calls.
type dingFleet struct {
	begin  time.Time
	base   string // http://host:port of the gateway
	dial   func(ctx context.Context, network, addr string) (net.Conn, error)
	limits *fleet.Limits
	fail   context.CancelCauseFunc
	ban    dingBan

	sent            [4]atomic.Int64 // calls that left, by service
	inside, outside atomic.Int64    // calls that have begun and not ended, and those of them that have left
	slowest         atomic.Int64    // ns, of all calls to the gateway since start
}

// start makes every service call every API, one call after another, without a limiter if profile is nil.
// The function that it returns waits for the calls that are under way. It may be called twice.
func (f *dingFleet) start(ctx context.Context, profile []platform.Option) (stop func(), err error) {
	f.slowest.Store(0)
	var services []fleet.Service
	for i, name := range dingServices {
		s := fleet.Service{
			Name:    name,
			Network: &http.Transport{DialContext: f.dial, MaxIdleConnsPerHost: len(dingAPIs)},
			Through: func(network http.RoundTripper) http.RoundTripper {
				return &dingNetwork{base: network, service: name, begin: f.begin, left: func() (back func()) {
					f.outside.Add(1)
					f.sent[i].Add(1)
					f.ban.left(time.Now())
					return func() { f.outside.Add(-1) }
				}}
			},
		}
		if profile != nil {
			s.Limited = []httplimit.Option{
				httplimit.WithProfile(platform.DingTalk(dingApp, profile...)),
				httplimit.WithEvents(func(e httplimit.Event) { f.heard(name, e) }),
			}
		}
		for _, api := range dingAPIs {
			s.Calls = append(s.Calls, func(ctx context.Context, client *http.Client) (more bool) {
				err := f.call(ctx, client, api)
				if err != nil && ctx.Err() == nil {
					f.fail(fmt.Errorf("the service %s: %w", name, err))
				}
				return err == nil
			})
		}
		services = append(services, s)
	}
	started, err := fleet.Start(ctx, f.limits, dingGrace, services)
	if err != nil {
		return nil, err
	}
	return started.Stop, nil
}

// call calls an API once. It ignores the response, which the gateway counts.
func (f *dingFleet) call(ctx context.Context, client *http.Client, api string) error {
	ctx, cancel := context.WithTimeout(ctx, dingPatience)
	defer cancel()
	target := f.base + api
	token := dinggate.AppToken(dingApp)
	if strings.HasPrefix(api, "/topapi/") {
		target += "?access_token=" + url.QueryEscape(token)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader(`{"msg":"hello"}`))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Acs-Dingtalk-Access-Token", token)
	f.inside.Add(1)
	resp, err := client.Do(req)
	f.inside.Add(-1)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	return err
}

// heard handles an event of a service's Transport.
func (f *dingFleet) heard(service string, e httplimit.Event) {
	if !e.Banned {
		return
	}
	switch {
	case e.Kind == httplimit.EventThrottled:
		f.ban.met(service, string(e.Reason), time.Now())
	case e.Kind == httplimit.EventCoolDown && e.Err == nil:
		f.ban.known(e.Limiter, time.Now())
	}
}

// A dingNetwork is the network between a service and the gateway, with its delays and with the address that
// all services share.
type dingNetwork struct {
	base    http.RoundTripper
	service string
	begin   time.Time
	left    func() (back func()) // is called when a call leaves, and back when it is back
}

// RoundTrip sends a copy of the request, with header fields that tell the gateway who sent it.
func (n *dingNetwork) RoundTrip(req *http.Request) (*http.Response, error) {
	left := time.Since(n.begin)
	defer n.left()()
	ctx := req.Context()
	if retry.Sleep(ctx, dingDelay()) != nil {
		_ = req.Body.Close()
		return nil, ctx.Err()
	}
	r := req.Clone(ctx)
	r.Header.Set(dinggate.HeaderIP, dingAddress)
	r.Header.Set(dinggate.HeaderCaller, n.service)
	r.Header.Set(dingLeft, strconv.FormatInt(int64(left), 10))
	resp, err := n.base.RoundTrip(r)
	if err == nil && retry.Sleep(ctx, dingDelay()) != nil {
		_ = resp.Body.Close()
		return nil, ctx.Err()
	}
	return resp, err
}

// arrived records a call that reached the gateway.
func (f *dingFleet) arrived(r *http.Request) {
	left, err := strconv.ParseInt(r.Header.Get(dingLeft), 10, 64)
	if err != nil {
		return
	}
	took := int64(time.Since(f.begin)) - left
	for old := f.slowest.Load(); took > old && !f.slowest.CompareAndSwap(old, took); {
		old = f.slowest.Load()
	}
}

func dingDelay() time.Duration {
	return dingLeastDelay + rand.N(dingMostDelay-dingLeastDelay)
}
