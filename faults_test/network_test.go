// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/grantlog"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

// flapping breaks and fixes the network again and again.
func flapping(f *fault) {
	const permits, interval, every = 20, time.Second, 300 * time.Millisecond
	s := redistest.Start(f)
	proxy := redistest.StartProxy(f, s.Addr())
	a := newFleet(f, at(proxy.Addr()))
	a.set("ample", rate(ample, time.Hour))
	a.set("window", rate(permits, interval))
	waited, tried := a.waits("ample", 4, time.Millisecond), a.tries("window", 2, 3*time.Millisecond)
	begin := time.Now()
	for time.Since(begin) < 10*time.Second {
		time.Sleep(every)
		proxy.Reject()
		proxy.Cut(true)
		time.Sleep(every)
		proxy.Admit()
	}
	back := time.Now()
	first := f.grants(waited, back)
	time.Sleep(time.Second)
	a.end()
	most := fullest(tried.Told().Grants, interval)
	f.measured("down and up every %v for 10 s: fullest window %d at rate %d; drift 0 of %d; %d outages; first grant %v after the last; errors to callers that wait: 0",
		every, most, permits, waited.Told().Permits(), a.began.Load(), round(first))
	require.LessOrEqual(f, most, int64(permits))
	requireTyped(f, tried, false)
	requireTyped(f, waited, true)
	requireNoDrift(f, admin(f, s), "ample", ample, waited.Told().Permits())
	f.within("the first grant", back, first, firstGrant)
}

// slow holds every reply for two seconds, which is below go-redis' own timeout of three.
func slow(f *fault) {
	const hold = 2 * time.Second
	s := redistest.Start(f)
	proxy := redistest.StartProxy(f, s.Addr())
	o := f.meets(proxy.Addr(), 12*time.Second, func() {
		proxy.Judge(func([]string) redistest.Fault { return redistest.Fault{Hold: hold} })
	}, func() { proxy.Judge(nil) })
	in := inRedis(f, admin(f, s), o.name)
	f.measured("12 s of replies that take %v: FailOpen engages after %v; outages that ended or began again in between: %d; first grant %v after it; %d reported, %d in Redis; %d non-blocking calls got ErrUnavailable",
		hold, round(o.engaged), o.interrupted, round(o.first), o.told(), in.used, errs(o.tried))
	o.requireToldIsThere(in)
	o.requireKept(firstGrant + hold)
}

// paused freezes a server by SIGSTOP.
func paused(f *fault) {
	s := redistest.Start(f)
	c := newCrowd(f, at(s.Addr()), "ample")
	s.Pause()
	time.Sleep(20 * time.Millisecond) // what was on its way has arrived
	frozen := time.Now()
	time.Sleep(12 * time.Second)
	meanwhile := c.since(frozen)
	s.Resume()
	back := time.Now()
	first := f.grants(c.waited, back)
	time.Sleep(time.Second)
	c.end()
	in := inRedis(f, admin(f, s), c.name)
	f.measured("%d granted in 12 s; first grant %v after SIGCONT; %d reported, %d in Redis; %d non-blocking calls got ErrUnavailable", meanwhile, round(first), c.told(), in.used, errs(c.tried))
	require.Zero(f, meanwhile)
	c.requireTyped()
	c.requireToldIsThere(in)
	f.within("the first grant", back, first, firstGrant)
}

// lostReplies executes calls and then loses their replies, each up to twice, until ten thousand are lost. A reply that
// is lost breaks the connection, so that the calls behind it in a flight get none either; they are not counted.
func lostReplies(f *fault) {
	const lose, limiters = 10_000, 40
	s := redistest.Start(f)
	proxy := redistest.StartProxy(f, s.Addr())
	a := newFleet(f, at(proxy.Addr(), func(o *redis.Options) { o.PoolSize = 200 }))
	books := a.many(limiters, func(name string) *grantlog.Ledger { return a.waits(name, 2, 0) })
	lost := map[string]int{}
	var enough atomic.Bool
	proxy.Judge(func(words []string) (v redistest.Fault) {
		if !strings.HasPrefix(strings.ToLower(words[0]), "eval") || enough.Load() {
			return
		}
		call := strings.Join(words[2:6], "\x00") // the keys
		if lost[call]++; lost[call]%3 != 0 {     // two of three of a limiter
			v.Lose = redistest.LoseReply
		}
		return
	})
	f.soon("ten thousand replies are lost", func() bool { return proxy.Counts().LostReplies >= lose })
	enough.Store(true)
	time.Sleep(500 * time.Millisecond)
	a.end()
	told := a.requireNoDrifts(admin(f, s), books)
	f.measured("%d replies lost, %d grants: drift 0; errors to callers: 0", proxy.Counts().LostReplies, told)
}

// scriptFlush empties the script cache all the time.
func scriptFlush(f *fault) {
	s, ctx := redistest.Start(f), context.Background()
	a := newFleet(f, at(s.Addr()))
	rdb := admin(f, s)
	var flushing sync.WaitGroup
	flushes := 0
	flushing.Go(func() {
		for !a.stop.Load() {
			if err := rdb.ScriptFlush(ctx).Err(); err != nil {
				f.Error(err)
			}
			flushes++
			time.Sleep(10 * time.Millisecond)
		}
	})
	books := a.many(16, func(name string) *grantlog.Ledger { return a.tries(name, 4, 0) })
	begin := time.Now()
	f.soon("100,000 calls, or as many as there are in half a minute", func() bool {
		calls := int64(0)
		for _, b := range books {
			calls += b.Told().Permits()
		}
		return calls >= 100_000 || time.Since(begin) > 30*time.Second
	})
	a.end()
	flushing.Wait()
	told := a.requireNoDrifts(rdb, books)
	f.measured("%d flushes, %d calls: 0 errors, drift 0", flushes, told)
	require.Greater(f, told, int64(10*flushes), "calls between two flushes")
}

// policies kills a server under each policy at once.
func policies(f *fault) {
	const permits, interval, nodes = 60, time.Second, fleetSize
	s := redistest.Start(f, "--appendonly", "yes", "--appendfsync", "always")
	type side struct {
		*fleet
		*grantlog.Ledger
	}
	sides := map[string]side{}
	for name, p := range map[string]ratelimiter.OutagePolicy{
		"closed": ratelimiter.FailClosed(),
		"open":   ratelimiter.FailOpen(),
		"local":  ratelimiter.LocalQuota(rate(permits, interval), nodes),
	} {
		a := newFleet(f, at(s.Addr()), ratelimiter.WithOutagePolicy(p))
		a.set(name, rate(permits, interval))
		b := &grantlog.Ledger{}
		a.each(2, func(c *ratelimiter.Client) { // grants of the policies are grants, here
			begin := time.Now()
			r, err := c.RateLimiter(name).Allow(context.Background(), 1)
			b.Note(begin, 1, r.Granted, false, err)
			time.Sleep(4 * time.Millisecond)
		})
		sides[name] = side{a, b}
	}
	time.Sleep(1500 * time.Millisecond)
	s.Kill()
	killed := time.Now()
	f.soon("the outages are known", func() bool {
		return sides["closed"].began.Load()+sides["open"].began.Load()+sides["local"].began.Load() >= 3*fleetSize
	})
	known := time.Now()
	time.Sleep(5 * time.Second)
	restart := time.Now()
	granted := map[string]int64{}
	fullestOf := map[string]int64{}
	for name, b := range sides {
		down := b.Told().After(known)
		granted[name], fullestOf[name] = down.Permits(), fullest(down, interval)
	}
	s.Restart()
	back := time.Now()
	first := f.grants(sides["closed"].Ledger, back)
	time.Sleep(2500 * time.Millisecond)
	for _, b := range sides {
		b.end()
		requireTyped(f, b.Ledger, false)
	}
	across := fullest(sides["local"].Told().Grants, interval)
	f.measured("known after %v; granted in %v: FailClosed %d, FailOpen %d, local quotas %d (fullest window %d at rate %d; %d across the return); first grant %v after the restart",
		round(known.Sub(killed)), round(restart.Sub(known)), granted["closed"], granted["open"], granted["local"], fullestOf["local"], permits, across, round(first))
	require.Zero(f, granted["closed"])
	require.Greater(f, granted["open"], int64(2*permits))
	require.LessOrEqual(f, fullestOf["local"], int64(permits))
	require.Positive(f, granted["local"])
	require.LessOrEqual(f, across, int64(2*permits))
	f.within("the first grant", back, first, firstGrant)
}
