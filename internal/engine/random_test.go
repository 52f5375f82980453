// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/engine/list"
	"github.com/goredisson/ratelimiter/internal/grantlog"
	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/proptest"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/goredisson/ratelimiter/internal/testworld"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A storm is a random crowd of callers of a few limiters of one process, whose calls fail at random.
type storm struct {
	*world
	rt       *rapid.T
	rates    []permit.Rate
	limiters []*limiter
	policies []*outage.Policy
	told     []grantlog.Ledger // of each limiter, without what policies granted
	shares   []grantlog.Ledger // grants from local quotas
	wg       sync.WaitGroup
}

// A plan is what one caller does.
type plan struct {
	at, leaves, timeout time.Duration // the context ends after leaves; 0 for never
	kind                int
	limiter             int
	permits             []int64 // for a list, the permits of each limiter
	policy              *outage.Policy
}

const (
	planTry = iota
	planTryAcquire
	planAcquire
	planTryList
	planWaitList
)

func newStorm(t *testing.T, rdb *redis.Client, rt *rapid.T, rates []permit.Rate) *storm {
	s := &storm{rt: rt, rates: rates}
	early := rapid.Bool().Draw(rt, "reject early")
	s.world = newWorld(t, testworld.New(rt, rdb, redistest.Key(t)), func(c *engine.Config) { c.RejectEarly = early },
		recheck(rapid.SampledFrom([]time.Duration{time.Second, time.Hour}).Draw(rt, "recheck")))
	if rapid.Bool().Draw(rt, "in turn") {
		s.p.InTurn()
	}
	for i, r := range rates {
		l := s.world.limiter(string(rune('a' + i)))
		if i > 0 && rapid.Bool().Draw(rt, "beside") {
			l = s.beside(s.limiters[0], l.key)
		}
		s.server.SetRate(l.key, r)
		s.limiters = append(s.limiters, l)
	}
	s.l, s.shares = s.limiters[0], make([]grantlog.Ledger, len(rates))
	s.told = make([]grantlog.Ledger, len(rates))
	return s
}

func (s *storm) draw(spread time.Duration) (p plan) {
	rt := s.rt
	within := func(what string, d time.Duration) time.Duration {
		return time.Duration(rapid.Int64Range(0, d.Milliseconds()).Draw(rt, what)) * time.Millisecond
	}
	p.at = time.Duration(rapid.IntRange(0, 9).Draw(rt, "tenths"))*spread/10 + within("at", spread/10) // small numbers are the likelier
	p.kind = rapid.SampledFrom([]int{planTry, planTry, planTryAcquire, planTryAcquire, planAcquire, planAcquire, planAcquire, planTryList, planWaitList}).Draw(rt, "kind")
	if rapid.Bool().Draw(rt, "leaves") {
		p.leaves = 1 + within("after", spread)
	}
	p.timeout = 1 + within("timeout", spread)
	p.limiter = rapid.IntRange(0, len(s.rates)-1).Draw(rt, "limiter")
	for _, r := range s.rates {
		p.permits = append(p.permits, min(r.Permits, rapid.SampledFrom([]int64{1, 1, 1, 2, 3, r.Permits}).Draw(rt, "permits")))
	}
	if len(s.policies) > 0 {
		p.policy = rapid.SampledFrom(s.policies).Draw(rt, "policy")
	}
	return p
}

// run carries out the plan and checks its outcome.
func (s *storm) run(p plan) {
	time.Sleep(p.at)
	ctx := s.ctx
	if p.leaves > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.leaves)
		defer cancel()
	}
	var (
		begin   = time.Now()
		l       = s.limiters[p.limiter].on(p.policy)
		got     engine.Outcome
		all     list.Outcome
		err     error
		demands []list.Demand
	)
	for i, l := range s.limiters {
		demands = append(demands, l.on(p.policy).of(p.permits[i]))
	}
	switch p.kind {
	case planTry:
		got, err = l.Allow(ctx, p.permits[p.limiter])
	case planTryAcquire:
		got, err = l.Handle.Acquire(ctx, engine.Request{Permits: p.permits[p.limiter], Wait: true, Timeout: p.timeout, Policy: p.policy})
	case planAcquire:
		got, err = l.Handle.Acquire(ctx, engine.Request{Permits: p.permits[p.limiter], Wait: true, Policy: p.policy})
	case planTryList:
		all, err = s.all(ctx, -1, demands...)
	case planWaitList:
		all, err = s.all(ctx, p.timeout, demands...)
	}
	took := time.Since(begin)
	who := fmt.Sprintf("%+v", p)
	switch {
	case err == context.DeadlineExceeded && p.leaves > 0:
		if took != p.leaves {
			s.rt.Errorf("%s left after %v", who, took)
		}
	case err != nil && !permit.WasNotServed(err):
		s.rt.Errorf("%s: %v", who, err)
	}
	if p.leaves > 0 && took > p.leaves {
		s.rt.Errorf("%s stayed for %v", who, took)
	}
	if (p.kind == planTryAcquire || p.kind == planWaitList) && took > p.timeout+engine.Grace {
		s.rt.Errorf("%s waited for %v", who, took)
	}
	if p.kind == planAcquire && err == nil && !got.Granted {
		s.rt.Errorf("%s was rejected", who)
	}
	if err != nil && (got.Granted || all.Granted) {
		s.rt.Errorf("%s was granted and got %v", who, err)
	}
	note := func(i int, degraded bool) {
		switch {
		case !degraded:
			s.told[i].Note(begin, p.permits[i], true, false, nil)
		case p.policy.Kind == outage.LocalQuota:
			s.shares[i].Add(grantlog.At(time.Now(), p.permits[i]))
		}
	}
	if got.Granted {
		note(p.limiter, got.Degraded)
	}
	for i := range s.limiters {
		if all.Granted {
			note(i, all.Degraded)
		}
	}
}

// play runs the given number of random plans, and returns when all of their callers have an outcome.
func (s *storm) play(callers int, spread time.Duration) {
	for range callers {
		p := s.draw(spread)
		s.wg.Go(func() { s.run(p) })
	}
	s.wg.Wait()
}

// end checks that no caller is left and that nothing is armed.
func (s *storm) end() {
	s.p.Hook(nil)
	s.p.Fix()
	time.Sleep(10 * time.Second) // let everything in flight end
	synctest.Wait()
	require.NoError(s.rt, s.e.CheckIdle())
	s.close()
	require.NoError(s.rt, s.e.CheckIdle())
}

func drawRates(rt *rapid.T, intervals ...time.Duration) (rates []permit.Rate) {
	for range rapid.IntRange(1, 3).Draw(rt, "limiters") {
		rates = append(rates, permit.Rate{
			Type:     permit.Type(rapid.IntRange(0, 1).Draw(rt, "type")),
			Permits:  rapid.SampledFrom([]int64{1, 3, 10, 40}).Draw(rt, "rate"),
			Interval: rapid.SampledFrom(intervals).Draw(rt, "interval"),
		})
	}
	return rates
}

// TestNothingIsLostAndNothingGrantedTwice lets callers come, wait and leave at random, with replies that are late
// or lost. It checks that the callers have exactly what was granted, that no window holds more than the rate, that
// every caller has an outcome in time, that every limiter is in one of its states whenever a call is made, and that
// nothing is left over.
func TestNothingIsLostAndNothingGrantedTwice(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		var granted, replays, refunds int64
		proptest.Check(t, func(rt *rapid.T) {
			s := newStorm(t, rdb, rt, drawRates(rt, 5*time.Second, 10*time.Second, 20*time.Second)) // so long that refunds precede expiry
			random := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "faults"), 0))
			faulty := rapid.IntRange(0, 60).Draw(rt, "percent that fail")
			slow := rapid.Int64Range(0, 300).Draw(rt, "ms")
			var mu sync.Mutex
			failed := map[string]int{}
			s.p.Hook(func(c testworld.Call) (f testworld.Fault) {
				mu.Lock()
				defer mu.Unlock()
				if err := s.e.CheckStates(); err != nil {
					rt.Error(err)
				}
				f.Before = time.Duration(random.Int64N(slow+1)) * time.Millisecond / 2
				f.After = time.Duration(random.Int64N(slow+1)) * time.Millisecond / 2
				id := fmt.Sprint(c.Op, c.ID)
				if c.Op == "heal" || c.Op == "probe" || failed[id] == retry.MaxAttempts-1 || random.IntN(100) >= faulty {
					return f
				}
				failed[id]++
				f.Err = []*retry.Error{testworld.Rejected, testworld.Lost, testworld.Lost, testworld.Exhausted, testworld.Loading}[random.IntN(5)]
				f.Runs = f.Err == testworld.Lost && random.IntN(3) > 0
				return f
			})
			s.play(rapid.IntRange(1, 40).Draw(rt, "callers"), rapid.SampledFrom([]time.Duration{0, 100 * time.Millisecond, 3 * time.Second,
				30 * time.Second}).Draw(rt, "spread"))
			s.end()
			require.NoError(rt, s.server.CheckWindows(true))
			for i, l := range s.limiters {
				require.Equal(rt, s.told[i].Told().Permits(), s.server.Granted(l.key, time.Time{}, time.Time{}), "what the callers of %s have, and what is granted", l.key)
				require.NoError(rt, s.told[i].Told().Check(func(from, until time.Time) int64 { return s.server.Granted(l.key, from, until) }), l.key)
				granted += s.told[i].Told().Permits()
			}
			for _, c := range s.p.Calls() {
				if c.Replay {
					replays++
				}
				if c.Op == "refund" {
					refunds++
				}
			}
		})
		t.Logf("%d permits granted, %d replays, %d refunds", granted, replays, refunds)
		require.True(t, replays > 0 && refunds > 0)
	})
}

// TestOutagesAtRandom lets the server fail and come back at random, in every way, under callers with random
// policies. It checks that no caller waits beyond its limits, that no local quota grants more than it may, that
// callers have only what was granted, and that one interval after the last call all permits are free.
func TestOutagesAtRandom(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		var outages, local int64
		proptest.Check(t, func(rt *rapid.T) {
			rates := drawRates(rt, time.Second, 3*time.Second, 10*time.Second)
			s := newStorm(t, rdb, rt, rates)
			nodes := rapid.IntRange(1, 3).Draw(rt, "nodes")
			s.policies = []*outage.Policy{nil, nil, localQuota(rates[0], nodes), localQuota(rates[0], nodes), failOpen}
			cuts := rapid.IntRange(1, 4).Draw(rt, "outages")
			var lasts []time.Duration
			for range 2 * cuts {
				unit := rapid.SampledFrom([]time.Duration{100 * time.Millisecond, time.Second, time.Second}).Draw(rt, "unit")
				lasts = append(lasts, time.Duration(rapid.IntRange(1, 30).Draw(rt, "lasts"))*unit)
			}
			faults := []testworld.Fault{{Err: testworld.Rejected}, {Err: testworld.Lost}, testworld.LostReply, {Err: testworld.Exhausted},
				{Err: testworld.Loading}, {Err: testworld.Rejected, After: 2 * time.Second}, {Before: 2 * time.Second}, {After: 3 * time.Second},
				{After: 3 * time.Second, Err: testworld.Lost, Runs: true}, {Err: testworld.OutOfMemory, Reads: true}}
			var how []testworld.Fault
			for range cuts {
				how = append(how, rapid.SampledFrom(faults).Draw(rt, "how"))
			}
			go func() {
				for i, d := range lasts {
					time.Sleep(d)
					if i%2 == 0 {
						s.p.Always(how[i/2])
					} else {
						if s.l.Health().Down() {
							outages++
						}
						s.p.Fix()
					}
				}
			}()
			s.play(rapid.SampledFrom([]int{4, 40, 40}).Draw(rt, "callers"), 40*time.Second)
			time.Sleep(4 * time.Minute) // by then the outages are over
			s.end()
			require.NoError(rt, s.server.CheckWindows(false))
			for i, l := range s.limiters {
				require.LessOrEqual(rt, s.told[i].Told().Permits(), s.server.Granted(l.key, time.Time{}, time.Time{}), "what the callers of %s have, and what is granted", l.key)
				r := rates[i]
				// The rate of the policy applies until the server has reported its own.
				most := max(r.Permits, rates[0].Permits) / int64(nodes)
				require.LessOrEqual(rt, s.shares[i].Told().Most(min(r.Interval, rates[0].Interval)), most, "the local quota of %s", l.key)
				local += s.shares[i].Told().Permits()
			}
			time.Sleep(10 * time.Second)
			for _, l := range s.limiters {
				require.Zero(rt, s.server.Used(l.key))
			}
		})
		t.Logf("%d outages, %d permits of local quotas", outages, local)
		require.True(t, outages > 0 && local > 0)
	})
}
