// Package fleet has the services of a company that call a platform such as DingTalk, each with a Redis
// connection, a ratelimiter.Client and an http.Client of its own: they could be processes on many machines.
// The example beside it and `rrl demo dingtalk` run it.
//
// What to take over is [NewHTTPClient].
package fleet

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
)

// NewHTTPClient returns the http.Client of one service. It keeps the limits together with all others on
// the same Redis, waits for a permit as long as a request's context allows, and stops everybody when the
// platform says that it has banned one of them.
func NewHTTPClient(limits *ratelimiter.Client, opts ...httplimit.Option) (*http.Client, error) {
	transport, err := httplimit.New(limits, opts...)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport}, nil
}

// A Service is one of the fleet.
type Service struct {
	Name string
	// Network is the way to the platform.
	Network *http.Transport
	// Through, if any, stands between the service's limits and its network.
	Through func(network http.RoundTripper) http.RoundTripper
	// Limited are the options of NewHTTPClient, without WithBase. A service that has none keeps no limit.
	Limited []httplimit.Option
	// Calls are made beside each other, each again and again until it returns false or the fleet is
	// stopped. Its context ends when the fleet has been stopped and the grace is over.
	Calls []func(ctx context.Context, client *http.Client) (more bool)
}

// A Fleet is services at work.
type Fleet struct {
	grace   time.Duration
	rest    context.CancelFunc // no further call begins
	abandon context.CancelFunc // calls under way end
	working sync.WaitGroup
	ends    []func()
	once    sync.Once
}

// Start has all services work until their calls have no more to do, ctx ends, or Stop is called. The
// caller calls Stop in any case. Calls that are under way then get the grace to end by themselves.
func Start(ctx context.Context, limits *Limits, grace time.Duration, services []Service) (*Fleet, error) {
	calls, abandon := context.WithCancel(ctx)
	loop, rest := context.WithCancel(calls)
	f := &Fleet{grace: grace, rest: rest, abandon: abandon}
	for _, s := range services {
		f.ends = append(f.ends, s.Network.CloseIdleConnections)
		var network http.RoundTripper = s.Network
		if s.Through != nil {
			network = s.Through(network)
		}
		client := &http.Client{Transport: network}
		if s.Limited != nil {
			own, end := limits.Client()
			f.ends = append(f.ends, end)
			var err error
			if client, err = NewHTTPClient(own, append([]httplimit.Option{httplimit.WithBase(network)}, s.Limited...)...); err != nil {
				f.Stop()
				return nil, err
			}
		}
		for _, call := range s.Calls {
			f.working.Go(func() {
				for loop.Err() == nil && call(calls, client) {
				}
			})
		}
	}
	return f, nil
}

// Wait returns when no service has more to do, or the context of Start has ended.
func (f *Fleet) Wait() { f.working.Wait() }

// Stop lets no further call begin, waits for those under way, and closes what the services had. It may
// be called more than once.
func (f *Fleet) Stop() {
	f.once.Do(func() {
		f.rest()
		late := time.AfterFunc(f.grace, f.abandon)
		f.working.Wait()
		late.Stop()
		f.abandon()
		for _, end := range f.ends {
			end()
		}
	})
}
