// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/test/grantlog"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/test/redistest/worker"
)

// compete starts a process for each number of permits, with eight callers that wait for so many at a time, or one caller
// that waits for half of the rate. It returns what the callers of each were told, and what is to be measured of the parts.
func compete(f *fault, permits int64, during time.Duration, asks ...int64) (told []grantlog.Told, share, used float64, parts []int64) {
	s := redistest.Start(f)
	newFleet(f, at(s.Addr())).set("shared", rate(permits, time.Second))
	var plans []worker.Plan
	for _, n := range asks {
		load := &worker.Load{Addr: s.Addr(), Limiters: []string{"shared"}, Mix: []int64{n}, Modes: []string{"block"}, Callers: 8, During: during}
		if n > 1 {
			load.Callers = 1
		}
		plans = append(plans, load)
	}
	var all grantlog.Ledger
	for i, p := range worker.Start(f, plans...) {
		var of map[string]grantlog.Told
		require.NoError(f, p.Result(&of))
		all.Merge(fmt.Sprint("process ", i), of["shared"])
		told, parts = append(told, of["shared"]), append(parts, of["shared"].Permits())
	}
	requireTyped(f, &all, true)
	granted := all.Told().Permits()
	require.LessOrEqual(f, granted, permits*int64(during.Seconds()+1))
	share, used = float64(slices.Min(parts))/(float64(granted)/float64(len(asks))), float64(granted)/(float64(permits)*during.Seconds())
	return told, share, used, parts
}

// fourProcesses lets four processes with equal demand compete for one limiter.
func fourProcesses(f *fault) {
	const permits, during = 100, 12 * time.Second
	_, share, used, parts := compete(f, permits, during, 1, 1, 1, 1)
	slices.Sort(parts)
	f.measured("%d in 1s for %v: the shares are %d; the smallest is %.0f %% of an equal one; %.0f %% of the rate used", permits, during, parts, 100*share, 100*used)
	require.GreaterOrEqual(f, share, .5)
	require.GreaterOrEqual(f, used, .8)
}

// largeRequests lets one of four processes ask for half of the rate at a time.
func largeRequests(f *fault) {
	const permits = 100
	begin := time.Now()
	told, share, _, parts := compete(f, permits, 15*time.Second, permits/2, 1, 1, 1)
	f.measured("the shares are %d, that of the large requests first; the smallest is %.0f %% of an equal one; the longest wait for %d permits was %v",
		parts, 100*share, permits/2, round(told[0].Longest))
	require.GreaterOrEqual(f, share, .5)
	f.within("the longest wait of a large request", begin, told[0].Longest, 3*time.Second)
}

// processKilled ends one of four processes by SIGKILL while its callers wait and hold permits.
func processKilled(f *fault) {
	const permits, interval = 50, time.Second
	s := redistest.Start(f)
	a := newFleet(f, at(s.Addr()))
	a.set("killed", rate(permits, interval))
	p := &worker.Load{Addr: s.Addr(), Limiters: []string{"killed"}, Mix: []int64{1}, Modes: []string{"block"}, Callers: 8, During: time.Minute}
	workers := worker.Start(f, p, p, p)
	b := a.waits("killed", 4, 0)
	time.Sleep(3 * time.Second)
	for _, w := range workers {
		w.Kill()
	}
	killed := time.Now()
	time.Sleep(6 * time.Second)
	until := time.Now()
	list := b.Told().After(killed.Add(3 * interval))
	a.end()
	gap := b.Told().Gap(killed, until)
	lasts := until.Sub(killed.Add(3 * interval)).Seconds()
	got := float64(list.Permits()) / (permits * lasts)
	f.measured("three of four processes killed: three intervals later the one that is left uses %.0f %% of the rate; longest time without a grant %v; fullest window %d at rate %d",
		100*got, round(gap), fullest(list, interval), permits)
	requireTyped(f, b, true)
	require.LessOrEqual(f, fullest(list, interval), int64(permits))
	require.GreaterOrEqual(f, got, .7)
	f.within("the time without a grant", killed, gap, 2*interval)
}

// cancelled cancels callers that wait, or whose call is on its way.
func cancelled(f *fault) {
	const callers, rounds = 500, 40
	s := redistest.Start(f)
	before := runtime.NumGoroutine()
	a := newFleet(f, at(s.Addr()))
	a.set("cancelled", rate(ample, time.Hour))
	a.set("full", rate(1, time.Hour))
	require.NoError(f, a.clients[0].RateLimiter("full").Acquire(f.Context(), 1))
	var told atomic.Int64
	for r := range rounds {
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(context.Background())
		for i := range callers {
			name := "cancelled"
			if i%5 == 0 {
				name = "full"
			}
			wg.Go(func() {
				if a.clients[i%fleetSize].RateLimiter(name).Acquire(ctx, 1) == nil {
					told.Add(1)
				}
			})
		}
		time.Sleep(time.Duration(r%8) * 300 * time.Microsecond)
		cancel()
		wg.Wait()
	}
	rdb := admin(f, s)
	var in stored
	f.soon("what nobody claimed is back", func() bool {
		in = inRedis(f, rdb, "cancelled")
		return in.used == told.Load()
	})
	for _, c := range a.clients {
		require.NoError(f, c.Close())
	}
	f.soon("no goroutine is left", func() bool { return runtime.NumGoroutine() <= before+3*fleetSize+10 })
	cancels := callers*rounds - told.Load()
	f.measured("%d calls cancelled of %d: %d reported, %d in Redis; goroutines %d before, %d after", cancels, callers*rounds, told.Load(), in.used, before, runtime.NumGoroutine())
	require.Greater(f, cancels, int64(callers))
	require.EqualValues(f, ample, in.sum())
}

// futureMembers dates the grants of a limiter ahead, as a peer does whose clock is fast.
func futureMembers(f *fault) {
	const permits, interval = 10, time.Second
	s, ctx := redistest.Start(f), context.Background()
	a := newFleet(f, at(s.Addr()))
	rdb := admin(f, s)
	worst := time.Duration(0)
	for i, ahead := range []time.Duration{time.Second, time.Minute, time.Hour, 292 * 365 * 24 * time.Hour} {
		name := fmt.Sprintf("future%d", i)
		a.set(name, rate(permits, interval))
		l := a.clients[0].RateLimiter(name)
		for range permits {
			require.NoError(f, l.Acquire(ctx, 1))
		}
		_, _, set := keysOf(name)
		for _, m := range rdb.ZRange(ctx, set, 0, -1).Val() {
			do(f, rdb, "ZINCRBY", set, ahead.Milliseconds(), m)
		}
		begin := time.Now()
		require.NoError(f, l.Acquire(ctx, permits))
		took := time.Since(begin)
		worst = max(worst, took)
		f.within("the wait behind a grant from the future", begin, took, interval)
	}
	f.measured("grants dated 1 s, 1 min, 1 h and 292 years ahead: the longest wait for the whole rate %v, at an interval of %v", round(worst), interval)
}
