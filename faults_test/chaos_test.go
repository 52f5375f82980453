// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/test/grantlog"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

const chaosPermits, chaosInterval = 8, 500 * time.Millisecond

// A chaos is a fleet whose callers call everything while everything breaks. Some limiters get only calls that take permits or
// look, and their windows are judged; on the others everything happens.
type chaos struct {
	*fleet
	server       *redistest.Server
	proxy        *redistest.Proxy
	strict, wild []string
	books        map[string]*grantlog.Ledger
	looking      []operation // those that take permits or look
	begun        time.Time
	told         atomic.Int64

	mu            sync.Mutex
	calls         int
	errs, unnamed map[string]int
	longest       time.Duration
	slowest       string
}

func newChaos(f *fault) *chaos {
	x := &chaos{server: redistest.Start(f), books: map[string]*grantlog.Ledger{}, errs: map[string]int{}, unnamed: map[string]int{}, begun: time.Now()}
	x.proxy = redistest.StartProxy(f, x.server.Addr())
	x.fleet = newFleet(f, at(x.proxy.Addr(), func(o *redis.Options) {
		o.ReadTimeout, o.DialTimeout, o.DialerRetries, o.PoolSize = 500*time.Millisecond, 500*time.Millisecond, 1, 100
	}))
	for i := range 4 {
		x.strict, x.wild = append(x.strict, fmt.Sprintf("strict%d", i)), append(x.wild, fmt.Sprintf("wild%d", i))
		x.books[x.strict[i]] = &grantlog.Ledger{}
	}
	for _, name := range slices.Concat([]string{beside}, x.strict, x.wild) {
		x.set(name, rate(chaosPermits, chaosInterval))
	}
	x.looking = slices.DeleteFunc(slices.Clone(operations), func(op operation) bool { return !op.grants })
	return x
}

// goesOn reports whether it does: for a while, and on a machine too busy for a grant until there are some.
func (x *chaos) goesOn() bool {
	lasted := time.Since(x.begun)
	return lasted < 25*time.Second || x.told.Load() < 20 && lasted < 100*time.Second
}

// call is what one of the callers does.
func (x *chaos) call(i int) {
	r := rand.New(rand.NewPCG(uint64(i), 1))
	for x.goesOn() {
		name, op := x.strict[r.IntN(len(x.strict))], x.looking[r.IntN(len(x.looking))]
		if i%2 == 0 {
			name, op = x.wild[r.IntN(len(x.wild))], operations[r.IntN(len(operations))]
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+r.IntN(800))*time.Millisecond)
		begin := time.Now()
		n, err := safely(func() (int64, error) { return op.call(ctx, x.clients[i%fleetSize], name) })
		took := time.Since(begin)
		cancel()
		if b := x.books[name]; b != nil && n > 0 {
			b.Note(begin, n, true, false, nil)
			x.told.Add(n)
		}
		x.mu.Lock()
		x.calls++
		if took > x.longest {
			x.longest, x.slowest = took, op.name
		}
		if err != nil {
			x.errs[kind(err)]++
			if !named(err) && !broken(err) {
				x.unnamed[op.name+": "+err.Error()]++
			}
		}
		x.mu.Unlock()
	}
}

// look returns what Redis itself counts in the window that ends now, at most, in so many looks.
func (x *chaos) look(rdb *redis.Client) (looks int, inUse int64) {
	for ; x.goesOn(); time.Sleep(5 * time.Millisecond) {
		for _, name := range x.strict {
			_, value, set := keysOf(name)
			n, err := inWindow.Run(context.Background(), rdb, []string{set, value}, chaosInterval.Milliseconds()).Int64()
			if err == nil { // and the connection was not killed
				looks, inUse = looks+1, max(inUse, n)
			}
		}
	}
	return looks, inUse
}

// breaks makes one fault after another, and returns how many.
func (x *chaos) breaks(rdb *redis.Client) (faults int) {
	r, proxy := rand.New(rand.NewPCG(7, 7)), x.proxy
	wait := func(ms int) { time.Sleep(time.Duration(r.IntN(ms)) * time.Millisecond) }
	kinds := []func(){
		func() { proxy.Cut(r.IntN(2) == 0) },
		func() { proxy.Reject(); proxy.Cut(true); wait(400); proxy.Admit() },
		func() { proxy.Hold(); wait(700); proxy.Unhold() },
		func() { proxy.Judge(anyFault); wait(500); proxy.Judge(nil) },
		func() { do(x.f, rdb, "SCRIPT", "FLUSH") },
		func() { do(x.f, rdb, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") },
		func() { rdb.Del(context.Background(), "{"+x.strict[r.IntN(len(x.strict))]+"}:value") }, // as an eviction
	}
	for ; x.goesOn(); faults++ {
		kinds[r.IntN(len(kinds))]()
		wait(200)
	}
	return faults
}

func anyFault([]string) redistest.Fault {
	return map[int]redistest.Fault{
		0: {Lose: redistest.LoseReply},
		1: {Lose: redistest.LoseRequest},
		2: {Hold: time.Duration(rand.IntN(50)) * time.Millisecond},
	}[rand.IntN(8)]
}

// everythingBreaks has 200 callers.
func everythingBreaks(f *fault) {
	x := newChaos(f)
	rdb := admin(f, x.server)
	for i := range 200 {
		x.running.Go(func() { x.call(i) })
	}
	var looks int
	var inUse, most int64
	looker := x.server.Client(f)
	x.running.Go(func() { looks, inUse = x.look(looker) })
	faults := x.breaks(rdb)
	ended := make(chan struct{})
	go func() { x.running.Wait(); close(ended) }()
	f.soon("the calls end, as their contexts did", func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	time.Sleep(2 * chaosInterval)
	for _, name := range x.strict {
		most = max(most, fullest(x.books[name].Told().Grants, chaosInterval))
		f.soon("a sound limiter", func() bool {
			_, err := x.clients[0].RateLimiter(name).Allow(f.Context(), 1)
			return err == nil && inRedis(f, rdb, name).sum() == chaosPermits
		})
	}
	for _, c := range x.clients {
		require.NoError(f, c.Close())
	}
	f.soon("no goroutine of a Client is left", func() bool { return ours() == 0 })
	f.measured("%d calls under %d faults: %s; none without a name, no panic, no hang (longest call %v, %s); fullest window in %d looks at Redis %d, and certainly granted %d of %d in all, at rate %d; no goroutine of a Client left",
		x.calls, faults, counted(x.errs), round(x.longest), x.slowest, looks, inUse, most, x.told.Load(), chaosPermits)
	require.Empty(f, x.unnamed)
	require.LessOrEqual(f, inUse, int64(chaosPermits))
	require.Positive(f, inUse)
	require.LessOrEqual(f, most, int64(chaosPermits))
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
