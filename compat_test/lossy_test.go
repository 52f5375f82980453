// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redistest"
)

// A lossy is a set of limiters on a Redis whose replies are lost, with what the callers were told.
type lossy struct {
	testing.TB
	past    redis.UniversalClient   // no reply is lost here
	through []redis.UniversalClient // one for each client
	ids     []string
	proxies []*redistest.Proxy
	seen    ledgers
	groups  [][]*lossyLimiter // which are asked for together, or one by one
}

type lossyLimiter struct {
	name  string
	rate  ratelimiter.Rate
	timed bool           // callers give up; a grant on its way to such a caller is refunded
	told  []atomic.Int64 // permits, by client
}

// Long grants stay, so that they can be counted. The short interval is longer than the time within which a call is
// sent again: otherwise what its first attempt was granted would be back before the second attempt.
const (
	lossyLong  = time.Hour
	lossyShort = 9 * time.Second
	lossyMost  = 2
)

// fill makes groups of three limiters each. Some have limiters whose permits are used up in the course of the run, so that
// rejections are lost as well and the others must keep nothing; some have short limiters, and some limiters of both types.
// Each kind also has a group whose callers give up.
func (w *lossy) fill(long int64) *lossy {
	w.Helper()
	for i := range w.through {
		w.ids = append(w.ids, fmt.Sprintf("client-%d", i))
	}
	const o, p = ratelimiter.Overall, ratelimiter.PerClient
	for _, timed := range []bool{false, true} {
		for _, rates := range [][]ratelimiter.Rate{
			{{Type: o, Permits: long, Interval: lossyLong}, {Type: o, Permits: 1e6, Interval: lossyLong}, {Type: p, Permits: 1e6, Interval: lossyLong}},
			{{Type: o, Permits: 540, Interval: lossyShort}, {Type: o, Permits: 720, Interval: lossyShort}, {Type: p, Permits: 230, Interval: lossyShort}},
			{{Type: o, Permits: 1e6, Interval: lossyLong}, {Type: o, Permits: 540, Interval: lossyShort}, {Type: p, Permits: long, Interval: lossyLong}},
		} {
			var group []*lossyLimiter
			for _, rate := range rates {
				l := &lossyLimiter{name: redistest.Key(w), rate: rate, timed: timed, told: make([]atomic.Int64, len(w.through))}
				require.True(w, redistest.Must(clienttest.New(w, w.past).RateLimiter(l.name).TrySetRate(w.Context(), rate))(w))
				group = append(group, l)
			}
			w.groups = append(w.groups, group)
		}
	}
	return w
}

// onServer and onCluster return a lossy with that many clients of go-redis, whose default is three retries.
func onServer(t testing.TB, clients int) *lossy {
	t.Helper()
	server := redistest.Start(t)
	p := redistest.StartProxy(t, server.Addr())
	w := &lossy{TB: t, past: server.Client(t), proxies: []*redistest.Proxy{p}, seen: ledgers{startLedger(t, server.Client(t))}}
	for range clients {
		rdb := server.Client(t, func(o *redis.Options) { o.Addr = p.Addr() })
		require.Equal(t, 3, rdb.Options().MaxRetries)
		w.through = append(w.through, rdb)
	}
	return w
}

func onCluster(t testing.TB, clients int) *lossy {
	t.Helper()
	cluster := redistest.StartCluster(t)
	w, byAddr := &lossy{TB: t, past: cluster.Client(t)}, map[string]*redistest.Proxy{}
	for _, node := range cluster.Nodes() {
		byAddr[node.Addr()] = redistest.StartProxy(t, node.Addr())
		w.proxies, w.seen = append(w.proxies, byAddr[node.Addr()]), append(w.seen, startLedger(t, node.Client(t)))
	}
	for range clients {
		// The nodes report their own addresses, whatever address a client dialled.
		w.through = append(w.through, cluster.Client(t, func(o *redis.ClusterOptions) {
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, byAddr[addr].Addr())
			}
		}))
	}
	return w
}

func (w *lossy) lost() (n int) {
	for _, p := range w.proxies {
		n += p.Counts().LostReplies
	}
	return n
}

// A taker acquires permits of one limiter, or of all of several, as one client.
type taker func(ctx context.Context, rng *rand.Rand, client int, of []*lossyLimiter, permits []int64) (bool, error)

// run runs callers of each client on each group until the given number of replies are lost. With lists, half of the calls
// are for all limiters of the group, in any order.
func (w *lossy) run(seed uint64, goal int, lists bool, take taker) *loser {
	w.Helper()
	losers := newLoser(seed, 0.5)
	for _, p := range w.proxies {
		p.Judge(losers.judge)
	}
	ctx, cancel := context.WithTimeout(w.Context(), 3*time.Minute)
	defer cancel()
	var callers sync.WaitGroup
	var faults, away atomic.Int64
	for i := range 4 * len(w.through) * len(w.groups) {
		client, group := i%len(w.through), w.groups[i/len(w.through)%len(w.groups)]
		rng := rand.New(rand.NewPCG(seed, uint64(i)+2))
		callers.Go(func() {
			for w.lost() < goal && faults.Load() < 10 && away.Load() == 0 {
				of, permits, began := slices.Clone(group), []int64(nil), time.Now()
				rng.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
				if !lists || rng.IntN(2) == 0 {
					of = of[:1]
				}
				for range of {
					permits = append(permits, 1+rng.Int64N(5))
				}
				switch granted, err := take(ctx, rng, client, of, permits); {
				case err == nil && granted:
					for i, l := range of {
						l.told[client].Add(permits[i])
					}
				case of[0].timed && errors.Is(err, ratelimiter.ErrUnavailable): // its time was up first
				case errors.Is(err, ratelimiter.ErrUnavailable): // to a machine that stands still
					away.Add(1)
				case err != nil: // the last attempt always gets a reply
					faults.Add(1)
					w.Errorf("%s: after %v: %v", of[0].name, time.Since(began), err)
				}
			}
		})
	}
	callers.Wait()
	redistest.Measured(w, away.Load() == 0, "the machine is too slow: Redis seemed unavailable to %d callers", away.Load())
	for _, p := range w.proxies {
		p.Judge(nil)
		require.NotZero(w, p.Counts().LostReplies, "limiters are on all nodes")
	}
	w.Logf("RATELIMITER_COMPAT_SEED=%d: %d replies lost, %d of them of lists; the longest sending took %v", seed, w.lost(), losers.lists,
		losers.slowest.Round(time.Millisecond))
	return losers
}

// ours returns a taker that uses every way to acquire.
func (w *lossy) ours() taker {
	clients := make([]*ratelimiter.Client, len(w.through))
	for i, rdb := range w.through {
		clients[i] = clienttest.New(w, rdb, ratelimiter.WithClientID(w.ids[i]))
		w.Cleanup(func() { _ = clients[i].Close() })
	}
	return func(ctx context.Context, rng *rand.Rand, client int, of []*lossyLimiter, permits []int64) (bool, error) {
		c, way, timeout := clients[client], rng.IntN(4), time.Duration(0)
		if way >= 2 && of[0].timed {
			timeout = time.Duration(1+rng.IntN(30)) * time.Millisecond
		}
		// None waits for permits that come back in an hour.
		waits := way == 0 && !of[0].timed && !slices.ContainsFunc(of, func(l *lossyLimiter) bool { return l.rate.Interval == lossyLong })
		limiter := c.RateLimiter(of[0].name)
		if len(of) == 1 {
			switch {
			case waits:
				return true, limiter.Acquire(ctx, permits[0])
			case way > 0:
				return limiter.TryAcquire(ctx, permits[0], timeout)
			}
			r, err := limiter.Allow(ctx, permits[0])
			return r.Granted, err
		}
		var demands []ratelimiter.Demand
		for i, l := range of {
			demands = append(demands, ratelimiter.Demand{Limiter: c.RateLimiter(l.name), Permits: permits[i]})
		}
		if waits {
			r, err := c.AcquireAll(ctx, demands...)
			return r.Granted, err
		}
		r, err := c.TryAcquireAll(ctx, timeout, demands...)
		if err == nil && !r.Granted && (r.Limiter == nil || r.Wait <= 0 && timeout == 0) {
			err = fmt.Errorf("rejected by nobody: %+v", r)
		}
		return r.Granted, err
	}
}

// A holding is the permits of one limiter, and of one client where each client has its own.
type holding struct {
	*lossyLimiter
	mine           *ratelimiter.RateLimiter // not through the proxies
	value, permits string                   // keys
	toldSum        int64
}

func (w *lossy) holdings() (all []holding) {
	w.Helper()
	for _, l := range slices.Concat(w.groups...) {
		for client, id := range w.ids {
			mine := clienttest.New(w, w.past, ratelimiter.WithClientID(id)).RateLimiter(l.name)
			if l.rate.Type == ratelimiter.PerClient || client == 0 {
				s := redistest.Must(mine.Inspect(w.Context()))(w)
				all = append(all, holding{lossyLimiter: l, mine: mine, value: s.ValueKey, permits: s.PermitsKey})
			}
			all[len(all)-1].toldSum += l.told[client].Load()
		}
	}
	return all
}

// state returns value and the permits in the set, both as they are at one instant.
func (w *lossy) state(h holding) (value, used int64) {
	w.Helper()
	var get *redis.StringCmd
	var set *redis.StringSliceCmd
	redistest.Must(w.past.TxPipelined(w.Context(), func(pipe redis.Pipeliner) error {
		get, set = pipe.Get(w.Context(), h.value), pipe.ZRange(w.Context(), h.permits, 0, -1)
		return nil
	}))(w)
	for _, m := range set.Val() {
		used += permitsOfMember(m)
	}
	return redistest.Must(get.Int64())(w), used
}

// requireAtMostOnce checks, after all callers have returned, that no permit was taken twice or lost. Each member in
// the sets stands for permits that callers were told of, and for no others; value and the members add up to the rate;
// and one interval later the whole rate is free again.
func (w *lossy) requireAtMostOnce() {
	w.Helper()
	for _, h := range w.holdings() {
		require.NotZero(w, h.toldSum, h.permits)
		want := h.rate.Permits // an interval later
		if h.rate.Interval == lossyLong {
			want -= h.toldSum
		}
		var free, value, used int64
		eventually(lossyShort+callLimit, func() bool { // grants of callers that gave up are refunded in the background
			free = redistest.Must(h.mine.AvailablePermits(w.Context()))(w)
			value, used = w.state(h)
			return free == want && value+used == h.rate.Permits
		})
		require.Equal(w, want, free, "%s: callers were told of %d", h.permits, h.toldSum)
		require.Equal(w, h.rate.Permits, value+used, "%s: value %d, used %d", h.permits, value, used)
		if grants := w.seen.at(h.permits); h.rate.Interval == lossyShort && !h.timed {
			require.Equal(w, h.toldSum, permitsIn(grants), "%s: told of, and granted", h.permits)
			require.LessOrEqual(always(w), fullest(grants, h.rate.Interval, byScore), h.rate.Permits, "%s: a window", h.permits)
		}
	}
}

// eventually does what require.Eventually does, but in the goroutine of its caller, for conditions that may call FailNow.
func eventually(within time.Duration, done func() bool) bool {
	for until := time.Now().Add(within); ; time.Sleep(2 * time.Millisecond) {
		if done() {
			return true
		}
		if time.Now().After(until) {
			return false
		}
	}
}
