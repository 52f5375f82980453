// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/test/testworld"
	"github.com/stretchr/testify/require"
)

// crowd returns a limiter for which many callers wait, each for an hour, behind a first one.
func crowd(tb testing.TB, callers int, policy *outage.Policy, opts ...func(*engine.Config)) (*engine.Engine, *testworld.Process, *engine.Handle, func()) {
	s := testworld.New(tb, redistest.Client(tb), redistest.Key(tb))
	s.SetRate("crowded", overall(1, 24*time.Hour))
	p := s.Process()
	cfg := engine.Config{Backends: p, Recheck: time.Hour, OutageLimit: time.Hour}
	for _, o := range opts {
		o(&cfg)
	}
	e := engine.New(cfg)
	h := e.Handle("crowded", "crowded", p.Limiter("crowded"))
	ctx, cancel := context.WithCancel(context.Background())
	redistest.Must(h.Acquire(ctx, engine.Request{Permits: 1}))(tb)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			_, _ = h.Acquire(ctx, engine.Request{Permits: 1, Wait: true, Timeout: 25*time.Hour + time.Duration(i)*time.Second, Policy: policy})
		})
	}
	for h.Snapshot().Waiting < callers {
		time.Sleep(time.Millisecond)
	}
	return e, p, &h, func() { cancel(); wg.Wait(); e.Close() }
}

// arrives fails t if what does not return, because it walks along a list that leads into a ring.
func arrives(t *testing.T, what func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		what()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("somebody walks along the whole list")
	}
}

// TestManyLimitersInAShard lets a caller wait for each of many limiters of one shard, and checks that a request for
// another one looks at none of them, that each serves its own callers, and that one of them is left in the end.
func TestManyLimitersInAShard(t *testing.T) {
	s := testworld.New(t, redistest.Client(t), redistest.Key(t))
	p := s.Process()
	e := engine.New(engine.Config{Backends: p, Recheck: time.Hour, OutageLimit: time.Hour})
	first := e.Handle("0", "0", p.Limiter("0"))
	var list []*engine.Handle
	for i := range 100 {
		key := strconv.Itoa(i)
		h := first.Beside(key, key, p.Limiter(key))
		list = append(list, &h)
		s.SetRate(key, overall(1, 24*time.Hour))
	}
	try := func(h *engine.Handle) bool {
		r := redistest.Must(h.Acquire(context.Background(), engine.Request{Permits: 1}))(t)
		return r.Granted
	}
	var wg sync.WaitGroup
	for _, h := range list[:50] {
		require.True(t, try(h))
		wg.Go(func() {
			redistest.Must(h.Acquire(context.Background(), engine.Request{Permits: 1, Wait: true}))(t)
		})
		for h.Snapshot().Asleep == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	straighten := first.BendShard()
	arrives(t, func() {
		for _, h := range list[50:] {
			require.True(t, try(h))
			require.False(t, try(h))
		}
	})
	straighten()
	for i, h := range list[:50] {
		require.Equal(t, 1, h.Snapshot().Waiting)
		s.Release(strconv.Itoa(i), 1)
		h.Changed()
	}
	wg.Wait()
	for !e.Idle() {
		time.Sleep(time.Millisecond)
	}
	require.NoError(t, e.CheckIdle())
	require.True(t, list[0].Same() == nil || list[49].Same() == nil)
	e.Close()
}

// TestNobodyWalksTheQueue checks that what is done under the lock does not take the longer the more callers wait:
// a rejection of the queue looks at those that asked and at those that are rejected early, and a try during an outage at
// none but itself.
func TestNobodyWalksTheQueue(t *testing.T) {
	for name, opt := range map[string]func(*engine.Config){"early": rejectEarly, "late": func(*engine.Config) {}} {
		t.Run("rejected "+name, func(t *testing.T) {
			_, p, h, end := crowd(t, permit.MaxRequests+100, nil, opt)
			straighten := h.Bend(permit.MaxRequests)
			arrives(t, func() {
				n := p.Sent()
				h.Changed()
				for p.Sent() == n || h.Snapshot().Asleep == 0 {
					time.Sleep(time.Millisecond)
				}
			})
			straighten()
			end()
		})
	}
	for name, policy := range map[string]*outage.Policy{
		"FailClosed": nil,
		"LocalQuota": localQuota(overall(1, 24*time.Hour), 1),
	} {
		t.Run("a try beside "+name, func(t *testing.T) {
			_, p, h, end := crowd(t, permit.MaxRequests+100, policy)
			p.Cut(testworld.Rejected)
			try := func() {
				_, err := h.Acquire(context.Background(), engine.Request{Permits: 1})
				require.ErrorIs(t, err, permit.ErrUnavailable)
			}
			try() // the outage becomes known
			straighten := h.Bend(permit.MaxRequests)
			arrives(t, try)
			straighten()
			end()
		})
	}
}
