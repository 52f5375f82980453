// SPDX-License-Identifier: Apache-2.0

// Package fleet runs services that call a platform such as DingTalk, each with its own Redis connection,
// ratelimiter.Client and http.Client, as processes on many machines would have them. The example in the
// parent folder and `rrl demo dingtalk` use it.
//
// The part to copy into a program is [NewHTTPClient].
package fleet

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
)

// NewHTTPClient returns the http.Client of one service. It shares the limits with all other services on the
// same Redis, waits for a permit as long as the context of a request allows, and cools the limiter down for
// all of them when the platform reports a ban.
func NewHTTPClient(limits *ratelimiter.Client, opts ...httplimit.Option) (*http.Client, error) {
	transport, err := httplimit.New(limits, opts...)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport}, nil
}

// A Service is one service of a Fleet.
type Service struct {
	Name string
	// Network is the transport to the platform.
	Network *http.Transport
	// Through, if not nil, wraps Network below the limits.
	Through func(network http.RoundTripper) http.RoundTripper
	// Limited holds the options for NewHTTPClient, without WithBase. A service without options has no limit.
	Limited []httplimit.Option
	// Calls run concurrently, each again and again until it returns false or the fleet is stopped. Their
	// context ends when the grace period after Stop is over.
	Calls []func(ctx context.Context, client *http.Client) (more bool)
}

// A Fleet is a group of running services.
type Fleet struct {
	grace   time.Duration
	rest    context.CancelFunc // lets no further call begin
	abandon context.CancelFunc // cancels the calls under way
	working sync.WaitGroup
	ends    []func()
	once    sync.Once
}

// Start starts the services. They run until their calls return false, ctx ends, or Stop is called. The
// caller must call Stop in any case; calls under way then have the grace period to end by themselves.
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
			own, end, err := limits.Client()
			f.ends = append(f.ends, end)
			if err == nil {
				client, err = NewHTTPClient(own, append([]httplimit.Option{httplimit.WithBase(network)}, s.Limited...)...)
			}
			if err != nil {
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

// Wait blocks until all calls have returned false or the context of Start has ended.
func (f *Fleet) Wait() { f.working.Wait() }

// Stop lets no further call begin, waits for those under way, and closes the services' clients and
// connections. It may be called more than once.
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
