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
	// dingAddress is the company's public one, of the block that RFC 5737 keeps for examples.
	dingAddress = "203.0.113.7"
	// dingAddressLimiter is the limiter that a ban of the address cools down, as the profile names it.
	dingAddressLimiter = "{dingtalk}:ip:" + dingAddress + ":20s"
	// A call takes that long to the gateway, and its answer the same. Delays that differ by less than the
	// profile's margin do no harm; what is left of it is for the machine, which may be busy.
	dingLeastDelay, dingMostDelay = 5 * time.Millisecond, 15 * time.Millisecond
	// dingMargin is the profile's for limits per second.
	dingMargin = 50 * time.Millisecond
	// dingLeft is a header of a call's copy: when it left, in ns after the start.
	dingLeft = "X-Rrl-Left"
	// dingPatience is how long a call waits for its permit, more than a ban lasts.
	dingPatience = time.Minute
	// dingGrace is how long calls that are under way may take when a part ends.
	dingGrace = 2 * time.Second
)

var (
	dingServices = []string{"orders", "payroll", "alerts", "crm"}
	// One of the old API and one of the new: they say differently that a call is throttled.
	dingAPIs = []string{"/topapi/message/corpconversation/asyncsend_v2", "/v1.0/robot/oToMessages/batchSend"}
)

// A dingFleet is the company's services, and what is seen of them.
type dingFleet struct {
	begin  time.Time
	base   string // http://host:port of the gateway
	dial   func(ctx context.Context, network, addr string) (net.Conn, error)
	limits *fleet.Limits
	fail   context.CancelCauseFunc
	ban    dingBan

	sent            [4]atomic.Int64 // calls that left, by service
	inside, outside atomic.Int64    // calls that were begun and not answered, and those of them that left
	slowest         atomic.Int64    // ns, of all calls to the gateway since start
}

// start has every service call every API, one call after another, without a limiter when profile is
// nil. The function that it answers lets the calls under way end, and may be called twice.
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

// call is one call of an API; what it is answered is the gateway's to count.
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

// heard is told what a Transport does.
func (f *dingFleet) heard(service string, e httplimit.Event) {
	if !e.Banned {
		return
	}
	switch {
	case e.Kind == httplimit.EventThrottled:
		f.ban.met(service, e.Reason, time.Now())
	case e.Kind == httplimit.EventCoolDown && e.Err == nil:
		f.ban.known(e.Limiter, time.Now())
	}
}

// A dingNetwork is the way from a service to the gateway and back, through the address that all services
// share.
type dingNetwork struct {
	base    http.RoundTripper
	service string
	begin   time.Time
	left    func() (back func()) // is told of every call
}

// RoundTrip sends a copy of the request: where it comes from is for the gateway alone.
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

// arrived is told of every call that comes to the gateway.
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
