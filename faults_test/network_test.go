// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/redistest"
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
	most := fullest(tried.all(), interval)
	f.measured("down and up every %v for 10 s: fullest window %d at rate %d; drift 0 of %d; %d outages; first grant %v after the last; errors to callers that wait: 0",
		every, most, permits, waited.total(), a.began.Load(), round(first))
	require.LessOrEqual(f, most, int64(permits))
	tried.requireTyped(f, false)
	waited.requireTyped(f, true)
	requireNoDrift(f, admin(f, s), "ample", ample, waited.total())
	f.within("the first grant", back, first, firstGrant)
}

// slow holds every reply for two seconds, which is below go-redis' own timeout of three.
func slow(f *fault) {
	const hold = 2 * time.Second
	s := redistest.Start(f)
	proxy := redistest.StartProxy(f, s.Addr())
	closed, open := newFleet(f, at(proxy.Addr())), newFleet(f, at(proxy.Addr()), ratelimiter.WithOutagePolicy(ratelimiter.FailOpen()))
	closed.set("closed", rate(ample, time.Hour))
	open.set("open", rate(ample, time.Hour))
	waited, tried, opened := closed.waits("closed", 4, time.Millisecond), closed.tries("closed", 2, time.Millisecond), open.tries("open", 2, time.Millisecond)
	time.Sleep(time.Second)
	proxy.Judge(func([]string) redistest.Fault { return redistest.Fault{Hold: hold} })
	begin := time.Now()
	var engaged time.Duration
	for engaged == 0 && time.Since(begin) < 20*time.Second {
		time.Sleep(5 * time.Millisecond)
		opened.mu.Lock()
		if opened.degraded > 0 {
			engaged = time.Since(begin)
		}
		opened.mu.Unlock()
	}
	time.Sleep(max(0, 12*time.Second-time.Since(begin)))
	flaps := max(closed.began.Load()-fleetSize, 0) + max(open.began.Load()-fleetSize, 0) + closed.ended.Load() + open.ended.Load()
	proxy.Judge(nil)
	back := time.Now()
	first := f.grants(waited, back)
	time.Sleep(2500 * time.Millisecond)
	closed.end()
	open.end()
	told := waited.total() + tried.total()
	in := inRedis(f, admin(f, s), "closed")
	when := "never"
	if engaged > 0 {
		when = fmt.Sprint("after ", round(engaged))
	}
	f.measured("12 s of replies that take %v: FailOpen engages %s; outages that ended or began again in between: %d; first grant %v after it; %d reported, %d in Redis; %d non-blocking calls got ErrUnavailable",
		hold, when, flaps, round(first), told, in.used, tried.errs())
	waited.requireTyped(f, true)
	tried.requireTyped(f, false)
	opened.requireTyped(f, false)
	require.EqualValues(f, ample, in.sum())
	require.LessOrEqual(f, told, in.used, "told, but not in Redis")
	require.LessOrEqual(f, in.used, told+int64(tried.errs()), "in Redis, but not told")
	require.NotZero(f, engaged, "FailOpen never granted")
	f.within("until FailOpen grants", begin, engaged, 2*time.Second)
	f.within("the first grant", back, first, firstGrant+hold)
	require.Zero(f, flaps, "an outage is one")
}

// paused freezes a server by SIGSTOP.
func paused(f *fault) {
	s := redistest.Start(f)
	a := newFleet(f, at(s.Addr()))
	a.set("ample", rate(ample, time.Hour))
	waited, tried := a.waits("ample", 4, time.Millisecond), a.tries("ample", 2, time.Millisecond)
	time.Sleep(500 * time.Millisecond)
	s.Pause()
	time.Sleep(20 * time.Millisecond) // what was on its way has arrived
	frozen := time.Now()
	time.Sleep(12 * time.Second)
	meanwhile := permitsOf(after(tried.all(), frozen)) + permitsOf(after(waited.all(), frozen))
	s.Resume()
	back := time.Now()
	first := f.grants(waited, back)
	time.Sleep(time.Second)
	a.end()
	told := waited.total() + tried.total()
	in := inRedis(f, admin(f, s), "ample")
	f.measured("%d granted in 12 s; first grant %v after SIGCONT; %d reported, %d in Redis; %d non-blocking calls got ErrUnavailable", meanwhile, round(first), told, in.used, tried.errs())
	require.Zero(f, meanwhile)
	waited.requireTyped(f, true)
	tried.requireTyped(f, false)
	require.EqualValues(f, ample, in.sum())
	require.LessOrEqual(f, told, in.used)
	require.LessOrEqual(f, in.used, told+int64(tried.errs()))
	f.within("the first grant", back, first, firstGrant)
}

// lostReplies executes calls and then loses their replies, each up to twice, until ten thousand are lost. A reply that
// is lost breaks the connection, so that the calls behind it in a flight get none either; they are not counted.
func lostReplies(f *fault) {
	const lose, limiters = 10_000, 40
	s := redistest.Start(f)
	proxy := redistest.StartProxy(f, s.Addr())
	a := newFleet(f, at(proxy.Addr(), func(o *redis.Options) { o.PoolSize = 200 }))
	names, books := make([]string, limiters), make([]*ledger, limiters)
	for i := range limiters {
		names[i] = "lossy" + string(rune('A'+i))
		a.set(names[i], rate(ample, time.Hour))
	}
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
	for i, name := range names {
		books[i] = a.waits(name, 2, 0)
	}
	f.soon("ten thousand replies are lost", func() bool { return proxy.Counts().LostReplies >= lose })
	enough.Store(true)
	time.Sleep(500 * time.Millisecond)
	a.end()
	told, errs := int64(0), 0
	for i, name := range names {
		books[i].requireTyped(f, true)
		told += books[i].total()
		errs += books[i].errs()
		requireNoDrift(f, admin(f, s), name, ample, books[i].total())
	}
	f.measured("%d replies lost, %d grants: drift 0; errors to callers: %d", proxy.Counts().LostReplies, told, errs)
}

// scriptFlush empties the script cache all the time.
func scriptFlush(f *fault) {
	s, ctx := redistest.Start(f), context.Background()
	a := newFleet(f, at(s.Addr()))
	rdb := admin(f, s)
	const limiters = 16
	var done atomic.Int64
	names := make([]string, limiters)
	books := make([]*ledger, limiters)
	for i := range names {
		names[i] = "flush" + string(rune('A'+i))
		a.set(names[i], rate(ample, time.Hour))
		books[i] = &ledger{}
	}
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
	for i, name := range names {
		a.each(4, func(c *ratelimiter.Client) {
			begin := time.Now()
			ok, err := c.RateLimiter(name).TryAcquire(ctx, 1, 0)
			books[i].note(begin, 1, ok, false, err)
			done.Add(1)
		})
	}
	begin := time.Now()
	f.soon("100,000 calls, or as many as there are in half a minute", func() bool {
		return done.Load() >= 100_000 || time.Since(begin) > 30*time.Second
	})
	a.end()
	flushing.Wait()
	for i, name := range names {
		books[i].requireTyped(f, true)
		requireNoDrift(f, rdb, name, ample, books[i].total())
	}
	f.measured("%d flushes, %d calls: 0 errors, drift 0", flushes, done.Load())
	require.Greater(f, done.Load(), int64(10*flushes), "calls between two flushes")
}

// policies kills a server under each policy at once.
func policies(f *fault) {
	const permits, interval, nodes = 60, time.Second, fleetSize
	s := redistest.Start(f, "--appendonly", "yes", "--appendfsync", "always")
	type side struct {
		*fleet
		*ledger
	}
	sides := map[string]side{}
	for name, p := range map[string]ratelimiter.OutagePolicy{
		"closed": ratelimiter.FailClosed(),
		"open":   ratelimiter.FailOpen(),
		"local":  ratelimiter.LocalQuota(rate(permits, interval), nodes),
	} {
		a := newFleet(f, at(s.Addr()), ratelimiter.WithOutagePolicy(p))
		a.set(name, rate(permits, interval))
		b := &ledger{}
		a.each(2, func(c *ratelimiter.Client) { // grants of the policies are grants, here
			begin := time.Now()
			r, err := c.RateLimiter(name).Allow(context.Background(), 1)
			b.note(begin, 1, r.Granted, false, err)
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
		down := after(b.all(), known)
		granted[name], fullestOf[name] = permitsOf(down), fullest(down, interval)
	}
	s.Restart()
	back := time.Now()
	first := f.grants(sides["closed"].ledger, back)
	time.Sleep(2500 * time.Millisecond)
	for _, b := range sides {
		b.end()
		b.requireTyped(f, false)
	}
	across := fullest(sides["local"].all(), interval)
	f.measured("known after %v; granted in %v: FailClosed %d, FailOpen %d, local quotas %d (fullest window %d at rate %d; %d across the return); first grant %v after the restart",
		round(known.Sub(killed)), round(restart.Sub(known)), granted["closed"], granted["open"], granted["local"], fullestOf["local"], permits, across, round(first))
	require.Zero(f, granted["closed"])
	require.Greater(f, granted["open"], int64(2*permits))
	require.LessOrEqual(f, fullestOf["local"], int64(permits))
	require.Positive(f, granted["local"])
	require.LessOrEqual(f, across, int64(2*permits))
	f.within("the first grant", back, first, firstGrant)
}
