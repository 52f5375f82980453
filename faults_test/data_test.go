// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/grantlog"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

// appendOnly kills a server with an append-only file five times under load. What a caller was told must be in the file:
// always to the permit, with everysec but for what Redis had not yet written.
func appendOnly(fsync string) func(f *fault) {
	return func(f *fault) {
		s := redistest.Start(f, "--appendonly", "yes", "--appendfsync", fsync)
		c := newCrowd(f, at(s.Addr()), "ample")
		var slowest time.Duration
		for range 5 {
			time.Sleep(700 * time.Millisecond)
			s.Kill()
			s.Restart()
			back := time.Now()
			first := f.grants(c.waited, back)
			slowest = max(slowest, first)
			f.within("the first grant", back, first, firstGrant)
		}
		c.end()
		in := inRedis(f, admin(f, s), "ample")
		lost := c.told() - in.used
		f.measured("five kills: %d of %d grants lost; slowest first grant after a restart %v; %d non-blocking calls got ErrUnavailable",
			max(lost, 0), c.told(), round(slowest), errs(c.tried))
		c.requireTyped()
		require.EqualValues(f, ample, in.sum(), "value and the set")
		// A call that gave up after its last attempt may have been executed all the same.
		require.GreaterOrEqual(f, lost, -int64(errs(c.tried)))
		if fsync == "always" {
			require.LessOrEqual(f, lost, int64(0))
		}
	}
}

// emptied takes everything out of a server under load. Callers that meet ErrNotInitialized set the rate again.
func emptied(times int, empty func(s *redistest.Server, rdb *redis.Client)) func(f *fault) {
	return func(f *fault) {
		const permits, interval = 20, 10 * time.Minute
		s := redistest.Start(f)
		a := newFleet(f, at(s.Addr()))
		a.set("flushed", rate(permits, interval))
		var uninitialised atomic.Int64
		b := &grantlog.Ledger{}
		for _, wait := range []bool{false, true} {
			a.each(2, func(c *ratelimiter.Client) {
				l, ctx := c.RateLimiter("flushed"), context.Background()
				timeout := time.Duration(0)
				if wait {
					timeout = 3 * time.Second
				}
				begin := time.Now()
				ok, err := l.TryAcquire(ctx, 1, timeout)
				if errors.Is(err, ratelimiter.ErrNotInitialized) {
					uninitialised.Add(1)
					_, _ = l.TrySetRate(ctx, rate(permits, interval)) // if it fails, the next call comes here again
					return
				}
				b.Note(begin, 1, ok, false, err)
			})
		}
		rdb := admin(f, s)
		for range times {
			time.Sleep(700 * time.Millisecond)
			empty(s, rdb)
		}
		time.Sleep(time.Second)
		a.end()
		told := b.Told()
		f.measured("%d times at rate %d: %d granted in all; %d calls got ErrNotInitialized, %d ErrUnavailable, %d anything else",
			times, permits, told.Permits(), uninitialised.Load(), errs(b), len(told.Errors))
		requireTyped(f, b, false)
		require.Positive(f, uninitialised.Load())
		require.LessOrEqual(f, told.Permits(), int64(permits*(times+1)))
	}
}

// usedMemory returns how many bytes Redis counts.
func usedMemory(f *fault, rdb *redis.Client) (used int) {
	f.Helper()
	_, rest, _ := strings.Cut(rdb.Info(context.Background(), "memory").Val(), "\nused_memory:")
	redistest.Must(fmt.Sscan(rest, &used))(f)
	return used
}

// evicted lets Redis evict keys of limiters that are used up, and asks them again.
func evicted(f *fault) {
	const permits, limiters = 10, 300
	s, ctx := redistest.Start(f, "--maxmemory", "0", "--maxmemory-policy", "allkeys-random"), context.Background()
	a := newFleet(f, at(s.Addr()))
	rdb := admin(f, s)
	for i := range limiters {
		name := fmt.Sprintf("e%d", i)
		a.set(name, rate(permits, time.Hour))
		l := a.clients[i%fleetSize].RateLimiter(name)
		require.NoError(f, l.Acquire(ctx, permits/2))
		require.NoError(f, l.Acquire(ctx, permits/2))
	}
	// A little less memory at a time, until a third of the keys is gone. Each write evicts as much as it has to.
	for limit := usedMemory(f, rdb) + 512<<10; rdb.DBSize(ctx).Val() > 2*limiters; limit -= 2 << 10 {
		do(f, rdb, "CONFIG", "SET", "maxmemory", limit)
		_ = rdb.Set(ctx, "junk", 1, 0).Err()
	}
	do(f, rdb, "CONFIG", "SET", "maxmemory", 0)
	var whole, value, set, hash int
	for i := range limiters {
		name := fmt.Sprintf("e%d", i)
		hashKey, valueKey, permitsKey := keysOf(name)
		there := func(key string) bool { return rdb.Exists(ctx, key).Val() == 1 }
		hasHash, hasValue, hasSet := there(hashKey), there(valueKey), there(permitsKey)
		l, granted := a.clients[(i+1)%fleetSize].RateLimiter(name), 0
		var err error
		for range 2 * permits {
			ok, e := l.TryAcquire(ctx, 1, 0)
			if err = e; ok {
				granted++
			}
		}
		switch {
		case !hasHash:
			hash++
			require.ErrorIs(f, err, ratelimiter.ErrNotInitialized)
			require.Zero(f, granted)
		case !hasSet: // nobody can know any more
			set++
			require.NoError(f, err)
			require.LessOrEqual(f, granted, permits)
		case !hasValue:
			value++
			require.NoError(f, err)
			require.Zero(f, granted, "the set tells what is in use")
		default:
			whole++
			require.NoError(f, err)
			require.Zero(f, granted)
		}
		if hasHash {
			require.EqualValues(f, permits, inRedis(f, rdb, name).sum())
		}
	}
	f.measured("of %d used-up limiters %d lost the value (0 granted beyond the rate), %d the set (one rate more at most), %d the hash (ErrNotInitialized); %d none; afterwards all add up",
		limiters, value, set, hash, whole)
	require.Positive(f, value*set*hash*whole, "every kind of loss")
}

// An outage is what the callers of two fleets, one of them with FailOpen, met.
type outage struct {
	*crowd
	opened                 *grantlog.Ledger
	begin, back            time.Time
	engaged, first         time.Duration // until FailOpen granted, and from the end to the first grant
	meanwhile, interrupted int64         // permits granted without FailOpen, and outages that began or ended in between
}

// meets has two fleets meet an outage that lasts so long.
func (f *fault) meets(addr string, lasts time.Duration, breaks, mends func()) *outage {
	open := newFleet(f, at(addr), ratelimiter.WithOutagePolicy(ratelimiter.FailOpen()))
	open.set("open", rate(ample, time.Hour))
	o := &outage{crowd: newCrowd(f, at(addr), "closed"), opened: open.tries("open", 2, time.Millisecond)}
	time.Sleep(500 * time.Millisecond)
	breaks()
	o.begin = time.Now()
	f.soon("FailOpen grants", func() bool {
		o.engaged = time.Since(o.begin)
		return o.opened.Told().Degraded > 0
	})
	time.Sleep(time.Until(o.begin.Add(lasts)))
	o.meanwhile = o.since(o.begin)
	o.interrupted = max(o.began.Load()-fleetSize, 0) + max(open.began.Load()-fleetSize, 0) + o.ended.Load() + open.ended.Load()
	mends()
	o.back = time.Now()
	o.first = f.grants(o.waited, o.back)
	time.Sleep(2500 * time.Millisecond)
	o.end()
	open.end()
	return o
}

// requireKept checks what is promised of every outage, where the first grant after it takes no longer than that.
func (o *outage) requireKept(firstGrant time.Duration) {
	o.f.Helper()
	o.requireTyped()
	requireTyped(o.f, o.opened, false)
	o.f.within("until FailOpen grants", o.begin, o.engaged, 2*time.Second)
	o.f.within("the first grant", o.back, o.first, firstGrant)
	require.Zero(o.f, o.interrupted, "an outage is one")
}

// outOfMemory lets Redis reject writes for some seconds.
func outOfMemory(f *fault) {
	s := redistest.Start(f)
	rdb := admin(f, s)
	limit := func(bytes int) func() { return func() { do(f, rdb, "CONFIG", "SET", "maxmemory", bytes) } }
	o := f.meets(s.Addr(), 6*time.Second, limit(1), limit(0))
	f.measured("%d granted by FailClosed in 6 s without memory; FailOpen engages after %v; outages that began or ended in between: %d; first grant %v after the memory; drift 0 of %d",
		o.meanwhile, round(o.engaged), o.interrupted, round(o.first), o.told())
	require.Zero(f, o.meanwhile)
	o.requireNoDrift(rdb)
	o.requireKept(firstGrant)
}
