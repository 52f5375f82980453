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
	"sync"
	"sync/atomic"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/dinggate"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
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

// A dingFleet is the company's services.
type dingFleet struct {
	begin  time.Time
	base   string // http://host:port of the gateway
	dial   func(ctx context.Context, network, addr string) (net.Conn, error)
	limits *dingLimits
	fail   context.CancelCauseFunc
	ban    dingBan

	sent            [4]atomic.Int64 // calls that left, by service
	inside, outside atomic.Int64    // calls that were begun and not answered, and those of them that left
	slowest         atomic.Int64    // ns, of all calls to the gateway since start
}

// start has every service call every API, one call after another, without a limiter when profile is
// nil. The function that it answers lets the calls under way end, and may be called twice.
func (f *dingFleet) start(ctx context.Context, profile []httplimit.ProfileOption) (stop func(), err error) {
	calls, cancelCalls := context.WithCancel(ctx)
	loop, cancelLoop := context.WithCancel(calls)
	f.slowest.Store(0)
	var wg sync.WaitGroup
	var ends []func()
	stop = func() {
		cancelLoop()
		late := time.AfterFunc(dingGrace, cancelCalls)
		wg.Wait()
		late.Stop()
		cancelCalls()
		for _, end := range ends {
			end()
		}
		ends = nil
	}
	for i, name := range dingServices {
		network := &http.Transport{DialContext: f.dial, MaxIdleConnsPerHost: len(dingAPIs)}
		ends = append(ends, network.CloseIdleConnections)
		var transport http.RoundTripper = &dingNetwork{base: network, service: name, begin: f.begin, left: func() (back func()) {
			f.outside.Add(1)
			f.sent[i].Add(1)
			f.ban.left(time.Now())
			return func() { f.outside.Add(-1) }
		}}
		if profile != nil {
			client, end := f.limits.client()
			ends = append(ends, end)
			transport, err = httplimit.New(client, httplimit.WithBase(transport),
				httplimit.WithProfile(httplimit.DingTalk(dingApp, profile...)),
				httplimit.WithEvents(func(e httplimit.Event) { f.heard(name, e) }))
			if err != nil {
				stop()
				return nil, err
			}
		}
		for _, api := range dingAPIs {
			wg.Go(func() {
				for loop.Err() == nil {
					if err := f.call(calls, &http.Client{Transport: transport}, api); err != nil {
						if calls.Err() == nil {
							f.fail(fmt.Errorf("the service %s: %w", name, err))
						}
						return
					}
				}
			})
		}
	}
	return stop, nil
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

// dingLimits gives the services their limiters in the demo's Redis, all under the demo's own name: the
// profile's names are those of the company's real limiters.
type dingLimits struct {
	store   *store
	options []ratelimiter.Option
	names   sync.Map // of the limiters that were used
	own     *ratelimiter.Client
}

func newDingLimits(st *store, options []ratelimiter.Option) *dingLimits {
	l := &dingLimits{store: st, options: options}
	l.own = l.on(st.rdb)
	return l
}

func (l *dingLimits) on(rdb *redis.Client) *ratelimiter.Client {
	return ratelimiter.New(rdb, append([]ratelimiter.Option{ratelimiter.WithNameMapper(func(name string) string {
		l.names.Store(name, true)
		return l.store.name + ":" + name
	})}, l.options...)...)
}

// client is that of one service, on connections of its own.
func (l *dingLimits) client() (c *ratelimiter.Client, end func()) {
	rdb := redis.NewClient(l.store.rdb.Options())
	c = l.on(rdb)
	return c, func() {
		_ = c.Close()
		_ = rdb.Close()
	}
}

// close leaves nothing in a Redis that others use, also after Ctrl-C.
func (l *dingLimits) close(ctx context.Context, warn io.Writer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dingGrace)
	defer cancel()
	l.names.Range(func(name, _ any) bool {
		_, err := l.own.RateLimiter(name.(string)).Delete(ctx)
		if err != nil {
			fmt.Fprintf(warn, "rrl: could not delete the limiter %s:%s: %s\n", l.store.name, name, oneLine(err))
		}
		return err == nil // one line for one fault
	})
	_ = l.own.Close()
}
