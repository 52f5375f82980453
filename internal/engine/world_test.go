// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/goredisson/ratelimiter" // its scripts
	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/engine/list"
	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/internal/testworld"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

var (
	_ link.Backend  = (*testworld.Limiter)(nil)
	_ link.Backends = (*testworld.Process)(nil)
)

func TestMain(m *testing.M) { redistest.Main(m) }

// A world is a limiter in a bubble of virtual time, with its server and the engine of one process.
type world struct {
	t      *testing.T
	ctx    context.Context
	server *testworld.Server
	p      *testworld.Process
	e      *engine.Engine
	lists  *list.Lists
	l      *limiter
	epoch  time.Time
	closed bool
	over   bool // grants reconciled with the server exceed the rate
}

// A limiter is one limiter as callers of the process see it.
type limiter struct {
	engine.Handle
	w       *world
	key     string
	backend *testworld.Limiter
	policy  *outage.Policy
}

// inWorld runs f on a limiter of rate r. When f returns, inWorld closes the engine and checks that no caller is
// left and that no timer is armed.
func inWorld(t *testing.T, r permit.Rate, f func(t *testing.T, w *world), opts ...func(*engine.Config)) {
	t.Helper()
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		w := newWorld(t, testworld.New(t, rdb, redistest.Key(t)), opts...)
		if r != (permit.Rate{}) {
			w.server.SetRate(w.l.key, r)
		}
		f(t, w)
		w.close()
		time.Sleep(time.Hour) // let everything in flight end
		require.NoError(t, w.e.CheckIdle())
		require.NoError(t, w.server.CheckWindows(!w.over))
	})
}

// newWorld returns a world for another process of the server.
func newWorld(t *testing.T, s *testworld.Server, opts ...func(*engine.Config)) *world {
	w := &world{t: t, ctx: context.Background(), server: s, p: s.Process(), epoch: time.Now()}
	cfg := engine.Config{Recheck: time.Second, OutageLimit: 30 * time.Second}
	for _, o := range opts {
		o(&cfg)
	}
	cfg.Backends = w.p
	w.e = engine.New(cfg)
	w.lists = list.New(w.e)
	w.l = w.limiter("limiter")
	return w
}

func (w *world) close() {
	if !w.closed {
		w.closed = true
		w.e.Close()
	}
}

func recheck(d time.Duration) func(*engine.Config) {
	return func(c *engine.Config) { c.Recheck = d }
}

func outageLimit(d time.Duration) func(*engine.Config) {
	return func(c *engine.Config) { c.OutageLimit = d }
}

func rejectEarly(c *engine.Config) { c.RejectEarly = true }

func overall(permits int64, interval time.Duration) permit.Rate {
	return permit.Rate{Permits: permits, Interval: interval}
}

func localQuota(r permit.Rate, nodes int) *outage.Policy {
	return &outage.Policy{Kind: outage.LocalQuota, Rate: r, Nodes: nodes}
}

var failOpen = &outage.Policy{Kind: outage.FailOpen}

func (w *world) limiter(key string) *limiter {
	b := w.p.Limiter(key)
	return &limiter{Handle: w.e.Handle(key, key, b), w: w, key: key, backend: b}
}

// others returns further limiters with these rates.
func (w *world) others(rates ...permit.Rate) (list []*limiter) {
	for i, r := range rates {
		l := w.limiter("other-" + string(rune('a'+i)))
		w.server.SetRate(l.key, r)
		list = append(list, l)
	}
	return list
}

// on returns the limiter with the outage policy p; nil means FailClosed.
func (l *limiter) on(p *outage.Policy) *limiter {
	m := *l
	m.policy = p
	return &m
}

// beside returns a limiter in the same shard as l.
func (w *world) beside(l *limiter, key string) *limiter {
	b := w.p.Limiter(key)
	return &limiter{Handle: l.Beside(key, key, b), w: w, key: key, backend: b, policy: l.policy}
}

func (l *limiter) Allow(ctx context.Context, permits int64) (engine.Outcome, error) {
	return l.Handle.Acquire(ctx, engine.Request{Permits: permits, TellWait: true, Policy: l.policy})
}

// try is Allow without an error.
func (l *limiter) try(permits int64) engine.Outcome {
	l.w.t.Helper()
	r, err := l.Allow(l.w.ctx, permits)
	require.NoError(l.w.t, err)
	return r
}

// lent asks for permits that the policy grants.
func (l *limiter) lent(permits int64) {
	l.w.t.Helper()
	r := l.try(permits)
	require.True(l.w.t, r.Granted && r.Degraded, "%+v", r)
}

// fails asks for permits, which is the given error.
func (l *limiter) fails(permits int64, want error) {
	l.w.t.Helper()
	_, err := l.Allow(l.w.ctx, permits)
	require.ErrorIs(l.w.t, err, want)
}

// within is TryAcquire without an error.
func (l *limiter) within(permits int64, timeout time.Duration) bool {
	l.w.t.Helper()
	ok, err := l.TryAcquire(l.w.ctx, permits, timeout)
	require.NoError(l.w.t, err)
	return ok
}

func (l *limiter) TryAcquire(ctx context.Context, permits int64, timeout time.Duration) (bool, error) {
	r, err := l.Handle.Acquire(ctx, engine.Request{Permits: permits, Wait: timeout > 0, Timeout: timeout, Policy: l.policy})
	return r.Granted, err
}

func (l *limiter) Acquire(ctx context.Context, permits int64) error {
	_, err := l.Handle.Acquire(ctx, engine.Request{Permits: permits, Wait: true, Policy: l.policy})
	return err
}

// all acquires permits of several limiters. With a negative timeout it does not wait, and with a timeout of 0 it
// waits for as long as it takes. Bound is an index into the demands as given.
func (w *world) all(ctx context.Context, timeout time.Duration, demands ...list.Demand) (list.Outcome, error) {
	var deadline time.Time
	if timeout > 0 {
		deadline = time.Now().Add(timeout)
	}
	order := make([]int, len(demands))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return strings.Compare(demands[i].Handle.Key, demands[j].Handle.Key) })
	var sorted []list.Demand
	for _, i := range order {
		sorted = append(sorted, demands[i])
	}
	acquire := func() (list.Outcome, error) { return w.lists.Wait(ctx, sorted, deadline) }
	if timeout < 0 {
		acquire = func() (list.Outcome, error) { return w.lists.Allow(ctx, sorted) }
	}
	a, err := acquire()
	if a.Bound >= 0 && err == nil {
		a.Bound = order[a.Bound]
	}
	return a, err
}

// acquireAll waits for permits of several limiters.
func (w *world) acquireAll(ctx context.Context, demands ...list.Demand) error {
	_, err := w.all(ctx, 0, demands...)
	return err
}

// decides asks for permits of several limiters without waiting, and checks the outcome.
func (w *world) decides(want list.Outcome, demands ...list.Demand) {
	w.t.Helper()
	require.Equal(w.t, want, redistest.Must(w.all(w.ctx, -1, demands...))(w.t))
}

// allGranted is the outcome of a list that is granted, and boundBy returns that of one that its i-th limiter
// rejects.
var allGranted = list.Outcome{Granted: true, Bound: -1}

func boundBy(i int, wait time.Duration) list.Outcome {
	return list.Outcome{Bound: i, Wait: wait}
}

// has checks that want permits of l are free.
func (w *world) has(l *limiter, want int64) {
	w.t.Helper()
	require.Equal(w.t, want, w.server.Available(l.key), l.key)
}

// inBothWays runs f twice: once where one call decides a list, and once where its limiters are decided in turn.
func inBothWays(t *testing.T, f func(t *testing.T, w *world), opts ...func(*engine.Config)) {
	for _, way := range []string{"one call", "in turn"} {
		t.Run(way, func(t *testing.T) {
			inWorld(t, permit.Rate{}, func(t *testing.T, w *world) {
				if way == "in turn" {
					w.p.InTurn()
				}
				f(t, w)
			}, opts...)
		})
	}
}

// of returns a demand of permits of l.
func (l *limiter) of(permits int64) list.Demand {
	return list.Demand{Handle: &l.Handle, Permits: permits, Policy: l.policy}
}

// at sleeps until d after the world began.
func (w *world) at(d time.Duration) { time.Sleep(d - time.Since(w.epoch)) }

func (w *world) elapsed() time.Duration { return time.Since(w.epoch) }

func (w *world) try(permits int64) engine.Outcome { return w.l.try(permits) }

func (w *world) granted(permits int64) {
	w.t.Helper()
	r := w.try(permits)
	require.True(w.t, r.Granted, "%d permits rejected: %+v", permits, r)
}

func (w *world) rejected(permits int64, wait time.Duration) {
	w.t.Helper()
	r := w.try(permits)
	require.False(w.t, r.Granted, "%d permits granted: %+v", permits, r)
	require.Equal(w.t, wait, r.Wait)
}

// used checks that want permits of the world's limiter are in use.
func (w *world) used(want int64) {
	w.t.Helper()
	require.Equal(w.t, want, w.server.Used(w.l.key), "permits in use")
}

// delay makes the replies to all calls take d.
func (w *world) delay(d time.Duration) { w.p.Always(testworld.Fault{After: d}) }

// goesAway makes the process notice that its server is down.
func (w *world) goesAway() (begun time.Time) {
	w.t.Helper()
	w.p.Cut(testworld.Rejected)
	_, err := w.l.on(nil).Allow(w.ctx, 1)
	require.ErrorIs(w.t, err, permit.ErrUnavailable)
	begun, err = w.l.Health().Since()
	require.Error(w.t, err)
	return begun
}

// back lets the server work again, and returns when the process has noticed.
func (w *world) back() {
	w.t.Helper()
	w.p.Fix()
	over, err := w.l.Health().Outage()
	require.Error(w.t, err)
	<-over
	time.Sleep(time.Until(time.Now().Truncate(time.Millisecond).Add(time.Millisecond))) // waits are in ms
}

// leaving returns the context of a caller that leaves after d.
func (w *world) leaving(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(w.ctx, d)
	w.t.Cleanup(cancel)
	return ctx
}

// idle checks that no caller waits and that no timer is armed.
func (w *world) idle() {
	w.t.Helper()
	synctest.Wait()
	require.NoError(w.t, w.e.CheckIdle())
}

// batched makes one request for each element of permits, all at one instant.
func (w *world) batched(permits []int64) []engine.Outcome {
	requests := make([]engine.Request, len(permits))
	for i, n := range permits {
		requests[i] = engine.Request{Permits: n, TellWait: true}
	}
	return w.l.Together(w.ctx, requests)
}

// together makes count requests for permits at one instant.
func (w *world) together(permits int64, count int) (granted int) {
	for _, r := range w.batched(slices.Repeat([]int64{permits}, count)) {
		require.NoError(w.t, r.Err)
		if r.Granted {
			granted++
		}
	}
	return granted
}

// calls returns the number of calls of that kind that the process has made.
func (w *world) calls(op string) (n int) {
	for _, c := range w.p.Calls() {
		if c.Op == op {
			n++
		}
	}
	return n
}
