// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/redistest"
)

// chaos calls everything from 200 goroutines while everything breaks. Some limiters get only calls that take permits
// or look, and their windows are judged; on the others everything happens.
func chaos(f *fault) {
	const goroutines, permits, interval, lasts = 200, 8, 500 * time.Millisecond, 25 * time.Second
	const enough, atMost = 20, 100 * time.Second // on a machine too busy for a grant it goes on until it has some
	s, ctx := redistest.Start(f), context.Background()
	proxy := redistest.Must(redistest.NewProxy(s.Addr()))(f)
	f.Cleanup(proxy.Close)
	a := newFleet(f, at(proxy.Addr(), func(o *redis.Options) {
		o.ReadTimeout, o.DialTimeout, o.DialerRetries, o.PoolSize = 500*time.Millisecond, 500*time.Millisecond, 1, 100
	}))
	var strict, wild []string
	books := map[string]*ledger{}
	for i := range 4 {
		strict, wild = append(strict, fmt.Sprintf("strict%d", i)), append(wild, fmt.Sprintf("wild%d", i))
		books[strict[i]] = &ledger{}
	}
	for _, name := range append(append([]string{beside}, strict...), wild...) {
		a.set(name, rate(permits, interval))
	}
	var (
		mu      sync.Mutex
		errs    = map[string]int{}
		slowest = map[string]time.Duration{}
		calls   int
		unnamed = map[string]int{}
		looking []operation
		told    atomic.Int64
		begun   = time.Now()
	)
	goesOn := func() bool {
		lasted := time.Since(begun)
		return lasted < lasts || told.Load() < enough && lasted < atMost
	}
	for _, op := range operations {
		if op.grants {
			looking = append(looking, op)
		}
	}
	var callers sync.WaitGroup
	for i := range goroutines {
		callers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for goesOn() {
				name, op := strict[r.IntN(len(strict))], looking[r.IntN(len(looking))]
				if i%2 == 0 {
					name, op = wild[r.IntN(len(wild))], operations[r.IntN(len(operations))]
				}
				call, cancel := context.WithTimeout(ctx, time.Duration(1+r.IntN(800))*time.Millisecond)
				begin := time.Now()
				n, err := safely(func() (int64, error) { return op.call(call, a.clients[i%fleetSize], name) })
				took := time.Since(begin)
				cancel()
				if b := books[name]; b != nil && n > 0 {
					b.note(begin, n, true, false, nil)
					told.Add(n)
				}
				mu.Lock()
				calls++
				slowest[op.name] = max(slowest[op.name], took)
				if err != nil {
					errs[kind(err)]++
					if !named(err) && !broken(err) {
						unnamed[op.name+": "+err.Error()]++
					}
				}
				mu.Unlock()
			}
		})
	}
	rdb, faults := admin(f, s), 0
	look := s.Client(f)
	looks, inUse := 0, int64(0) // what Redis itself counts in the window that ends now
	callers.Go(func() {
		for goesOn() {
			for _, name := range strict {
				_, value, set := keysOf(name)
				n, err := inWindow.Run(ctx, look, []string{set, value}, interval.Milliseconds()).Int64()
				if err != nil {
					continue // a connection that was killed
				}
				looks, inUse = looks+1, max(inUse, n)
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	r := rand.New(rand.NewPCG(7, 7))
	for ; goesOn(); faults++ {
		switch r.IntN(7) {
		case 0:
			proxy.Cut(r.IntN(2) == 0)
		case 1:
			proxy.Reject()
			proxy.Cut(true)
			time.Sleep(time.Duration(r.IntN(400)) * time.Millisecond)
			proxy.Admit()
		case 2:
			proxy.Hold()
			time.Sleep(time.Duration(r.IntN(700)) * time.Millisecond)
			proxy.Unhold()
		case 3:
			proxy.Judge(func(words []string) (v redistest.Fault) {
				switch rand.IntN(8) {
				case 0:
					v.Lose = redistest.LoseReply
				case 1:
					v.Lose = redistest.LoseRequest
				case 2:
					v.Hold = time.Duration(rand.IntN(50)) * time.Millisecond
				}
				return v
			})
			time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond)
			proxy.Judge(nil)
		case 4:
			do(f, rdb, "SCRIPT", "FLUSH")
		case 5:
			do(f, rdb, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		case 6:
			rdb.Del(ctx, "{"+strict[r.IntN(len(strict))]+"}:value") // as an eviction
		}
		time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
	}
	hung := make(chan struct{})
	go func() { callers.Wait(); close(hung) }()
	select {
	case <-hung:
	case <-time.After(time.Minute):
		f.Fatal("calls hang a minute after their contexts ended")
	}
	most, longest, op := int64(0), time.Duration(0), ""
	for _, name := range strict {
		most = max(most, fullest(books[name].all(), interval))
	}
	for name, took := range slowest {
		if took > longest {
			longest, op = took, name
		}
	}
	time.Sleep(2 * interval)
	for _, name := range strict {
		f.soon("a sound limiter", func() bool {
			_, err := a.clients[0].RateLimiter(name).Allow(ctx, 1)
			return err == nil && inRedis(f, rdb, name).sum() == permits
		})
	}
	for _, c := range a.clients {
		require.NoError(f, c.Close())
	}
	goroutinesLeft := 0
	f.soon("no goroutine of a Client is left", func() bool {
		goroutinesLeft = ours()
		return goroutinesLeft == 0
	})
	f.measured("%d calls under %d faults: %s; none without a name, no panic, no hang (longest call %v, %s); fullest window in %d looks at Redis %d, and certainly granted %d of %d in all, at rate %d; no goroutine of a Client left",
		calls, faults, counted(errs), round(longest), op, looks, inUse, most, told.Load(), permits)
	require.Empty(f, unnamed)
	require.LessOrEqual(f, inUse, int64(permits))
	require.Positive(f, inUse)
	require.LessOrEqual(f, most, int64(permits))
}

// inWindow adds up the permits of a set that were granted within the interval before now. A large request that takes its
// permits ahead holds those that have yet to come back, too: they make value negative. While value is evicted nobody can tell
// how many these are; the next call rebuilds it, and leaves the set as it is.
var inWindow = redis.NewScript(`
local t, value, sum = redis.call('TIME'), redis.call('GET', KEYS[2]), 0
if not value then
  return 0
end
local now = t[1] * 1000 + math.floor(t[2] / 1000)
for _, m in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], string.format('(%.0f', now - ARGV[1]), string.format('%.0f', now))) do
  local a, b, c, d = string.byte(m, -4, -1)
  sum = sum + a + b * 256 + c * 65536 + d * 16777216
end
return sum + math.min(0, tonumber(value))`)

// ours returns the number of goroutines that run code of the engine.
func ours() int {
	buf := make([]byte, 4<<20)
	buf = buf[:runtime.Stack(buf, true)]
	n := 0
	for stack := range strings.SplitSeq(string(buf), "\n\n") {
		if strings.Contains(stack, "/internal/engine.") || strings.Contains(stack, "/internal/dispatch.") {
			n++
		}
	}
	return n
}
