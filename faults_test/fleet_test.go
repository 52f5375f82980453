// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/grantlog"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

// ample is the rate of a limiter on which nobody is rejected: with an interval of an hour its set holds every grant of
// the run, and what lies in Redis must be what the callers were told, to the permit.
const ample = 10_000_000

func rate(permits int64, interval time.Duration) ratelimiter.Rate {
	return ratelimiter.Rate{Permits: permits, Interval: interval}
}

// A fleet is several Clients, each with a redis client of its own, as processes have.
type fleet struct {
	f            *fault
	clients      []*ratelimiter.Client
	began, ended atomic.Int64 // outages
	stop         atomic.Bool
	running      sync.WaitGroup
	cancels      []context.CancelFunc
}

const fleetSize = 3

// newFleet makes a Client of each redis client that dial returns.
func newFleet(f *fault, dial func() redis.UniversalClient, opts ...ratelimiter.Option) *fleet {
	a := &fleet{f: f}
	opts = append(opts, ratelimiter.WithHook(ratelimiter.Hook{Event: func(e ratelimiter.Event) {
		switch e.Kind {
		case ratelimiter.OutageBegan:
			a.began.Add(1)
		case ratelimiter.OutageEnded:
			a.ended.Add(1)
		}
	}}))
	for range fleetSize {
		rdb := dial()
		c := clienttest.New(f, rdb, opts...)
		f.Cleanup(func() { _ = c.Close(); _ = rdb.Close() })
		a.clients = append(a.clients, c)
	}
	f.Cleanup(a.end)
	return a
}

// at returns a dial for a server, or for a proxy before it.
func at(addr string, opts ...func(*redis.Options)) func() redis.UniversalClient {
	return func() redis.UniversalClient {
		o := &redis.Options{Addr: addr}
		for _, opt := range opts {
			opt(o)
		}
		return redis.NewClient(o)
	}
}

func (a *fleet) set(name string, r ratelimiter.Rate) {
	a.f.Helper()
	require.NoError(a.f, a.clients[0].RateLimiter(name).SetRate(context.Background(), r))
}

// tries starts n callers of each Client that ask once and do not wait, with a pause between.
func (a *fleet) tries(name string, n int, pause time.Duration) *grantlog.Ledger {
	b := &grantlog.Ledger{}
	a.each(n, func(c *ratelimiter.Client) {
		l, begin := c.RateLimiter(name), time.Now()
		r, err := l.Allow(context.Background(), 1)
		b.Note(begin, 1, r.Granted, r.Degraded, err)
		time.Sleep(pause)
	})
	return b
}

// waits starts n callers of each Client that wait as long as it takes.
func (a *fleet) waits(name string, n int, pause time.Duration) *grantlog.Ledger {
	b := &grantlog.Ledger{}
	ctx, cancel := context.WithCancel(context.Background())
	a.cancels = append(a.cancels, cancel)
	a.each(n, func(c *ratelimiter.Client) {
		begin := time.Now()
		err := c.RateLimiter(name).Acquire(ctx, 1)
		if errors.Is(err, context.Canceled) {
			return // the end of the row
		}
		b.Note(begin, 1, err == nil, false, err)
		time.Sleep(pause)
	})
	return b
}

// each runs call in a loop in n goroutines for each Client until the fleet ends.
func (a *fleet) each(n int, call func(c *ratelimiter.Client)) {
	for _, c := range a.clients {
		for range n {
			a.running.Go(func() {
				for !a.stop.Load() {
					call(c)
				}
			})
		}
	}
}

// end ends the callers after the call that each is in. Whoever still waits a second later is cancelled.
func (a *fleet) end() {
	a.stop.Store(true)
	ended := make(chan struct{})
	go func() { a.running.Wait(); close(ended) }()
	for {
		select {
		case <-ended:
			return
		case <-time.After(time.Second):
			for _, cancel := range a.cancels {
				cancel()
			}
		}
	}
}

// many sets the rates of n limiters on which nobody is rejected, and starts the callers of each.
func (a *fleet) many(n int, start func(name string) *grantlog.Ledger) map[string]*grantlog.Ledger {
	a.f.Helper()
	books := map[string]*grantlog.Ledger{}
	for i := range n {
		name := fmt.Sprint("many", i)
		a.set(name, rate(ample, time.Hour))
		books[name] = start(name)
	}
	return books
}

// requireNoDrifts fails unless no caller got an error and what lies in Redis is exactly what the callers were told, of
// which it returns the sum.
func (a *fleet) requireNoDrifts(rdb redis.UniversalClient, books map[string]*grantlog.Ledger) (told int64) {
	a.f.Helper()
	for name, b := range books {
		requireTyped(a.f, b, true)
		requireNoDrift(a.f, rdb, name, ample, b.Told().Permits())
		told += b.Told().Permits()
	}
	return told
}

// A crowd is a fleet that asks for permits of a limiter on which nobody is rejected.
type crowd struct {
	*fleet
	name          string
	tried, waited *grantlog.Ledger
}

// newCrowd starts a crowd: two callers of each Client that try and four that wait. Half a second later they are busy.
func newCrowd(f *fault, dial func() redis.UniversalClient, name string, opts ...ratelimiter.Option) *crowd {
	c := &crowd{fleet: newFleet(f, dial, opts...), name: name}
	c.set(name, rate(ample, time.Hour))
	c.start()
	time.Sleep(500 * time.Millisecond)
	return c
}

func (c *crowd) start() {
	c.tried, c.waited = c.tries(c.name, 2, time.Millisecond), c.waits(c.name, 4, time.Millisecond)
}

func (c *crowd) told() int64 { return c.tried.Told().Permits() + c.waited.Told().Permits() }

// since returns the permits of the grants that were asked for after t.
func (c *crowd) since(t time.Time) int64 {
	return c.tried.Told().After(t).Permits() + c.waited.Told().After(t).Permits()
}

// requireTyped fails f if a caller got an error other than ErrUnavailable, or one that waits got any.
func (c *crowd) requireTyped() {
	c.f.Helper()
	requireTyped(c.f, c.tried, false)
	requireTyped(c.f, c.waited, true)
}

// requireNoDrift fails f unless what lies in Redis is exactly what the callers were told.
func (c *crowd) requireNoDrift(rdb redis.UniversalClient) {
	c.f.Helper()
	requireNoDrift(c.f, rdb, c.name, ample, c.told())
}

// requireToldIsThere fails f unless what the callers were told is there. A call that gave up may have been executed, too.
func (c *crowd) requireToldIsThere(in stored) {
	c.f.Helper()
	require.EqualValues(c.f, ample, in.sum(), "value and the set")
	require.LessOrEqual(c.f, c.told(), in.used, "told, but not in Redis")
	require.LessOrEqual(c.f, in.used, c.told()+int64(errs(c.tried)), "in Redis, but not told")
}

// grants waits until the ledger has a grant that reached its caller after t, and returns how long that took.
func (f *fault) grants(b *grantlog.Ledger, t time.Time) time.Duration {
	f.Helper()
	var took time.Duration
	f.soon("a grant", func() (ok bool) { took, ok = b.Told().Next(t); return ok })
	return took
}

// soon polls until ok returns true, for three minutes, which only a hang takes.
func (f *fault) soon(what string, ok func() bool) {
	f.Helper()
	for end := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			f.Fatal("not within three minutes: " + what)
		}
	}
}

// admin returns a client of a server that does not send again.
func admin(f *fault, s *redistest.Server) *redis.Client {
	return s.Client(f, func(o *redis.Options) { o.MaxRetries = -1 })
}

func do(f *fault, rdb redis.UniversalClient, args ...any) {
	f.Helper()
	require.NoError(f, rdb.(interface {
		Do(context.Context, ...any) *redis.Cmd
	}).Do(context.Background(), args...).Err(), "%v", args)
}
