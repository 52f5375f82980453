// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redistest"
)

// ours returns a taker that uses every way to acquire.
func (w *lossy) ours() taker {
	clients := make([]*ratelimiter.Client, len(w.through))
	for i, rdb := range w.through {
		clients[i] = clienttest.New(w, rdb, ratelimiter.WithClientID(w.ids[i]))
		w.Cleanup(func() { _ = clients[i].Close() })
	}
	return func(ctx context.Context, rng *rand.Rand, l *lossyLimiter, client int, permits int64) (bool, error) {
		limiter := clients[client].RateLimiter(l.name)
		switch way := rng.IntN(4); { // none waits for permits that come back in an hour
		case way == 1:
			return limiter.TryAcquire(ctx, permits, 0)
		case way == 2 && l.timed:
			return limiter.TryAcquire(ctx, permits, time.Duration(1+rng.IntN(30))*time.Millisecond)
		case way == 3 && l.rate.Interval == lossyShort:
			return true, limiter.Acquire(ctx, permits)
		}
		r, err := limiter.Allow(ctx, permits)
		return r.Granted, err
	}
}

// requireAtMostOnce checks, after all callers have returned, that no permit was taken twice or lost. Each member in
// the sets stands for permits that callers were told of, and for no others; value and the members add up to the rate;
// and one interval later the whole rate is free again. seen may be nil.
func (w *lossy) requireAtMostOnce(seen func(key string) []entry) {
	w.Helper()
	var told, drift, waiting int64
	for _, h := range w.holdings() {
		told += h.toldSum
		require.NotZero(w, h.toldSum, h.permits)
		if h.rate.Interval == lossyLong {
			var value, used int64
			// Grants of callers that gave up are refunded in the background.
			eventually(callLimit, func() bool {
				value, used = w.state(h)
				return used == h.toldSum && value+used == h.rate.Permits
			})
			require.Equal(w, h.toldSum, used, "%s: told of, and granted", h.permits)
			require.Equal(w, h.rate.Permits, value+used, "%s: value %d, used %d", h.permits, value, used)
			continue
		}
		waiting++
		var free int64
		eventually(h.rate.Interval+callLimit, func() bool {
			var err error
			free, err = h.mine.AvailablePermits(w.Context())
			require.NoError(w, err)
			return free == h.rate.Permits
		})
		value, used := w.state(h)
		drift += max(h.rate.Permits-free, free-h.rate.Permits)
		require.Equal(w, h.rate.Permits, free, "%s: an interval later", h.permits)
		require.Equal(w, h.rate.Permits, value+used, "%s: value %d, used %d", h.permits, value, used)
		if seen != nil && !h.timed {
			grants := seen(h.permits)
			require.Equal(w, h.toldSum, permitsIn(grants), "%s: told of, and granted", h.permits)
			require.LessOrEqual(always(w), fullest(grants, h.rate.Interval, byScore), h.rate.Permits, "%s: a window", h.permits)
		}
	}
	require.NotZero(w, waiting)
	w.Logf("%d replies lost, callers told of %d permits, drift of the capacity %d", w.lost(), told, drift)
}

// at returns the grants under a key of the permits. It does not tell which permits were refunded.
func (l *ledger) at(rdb redis.UniversalClient, key string) []entry {
	l.of(rdb, key) // waits for what was granted until now
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.entries[key])
}

// lossyClients returns n clients of go-redis through the proxy, with its default of three retries.
func lossyClients(t testing.TB, n int, p *redistest.Proxy, server *redistest.Server) (out []redis.UniversalClient) {
	for range n {
		rdb := server.Client(t, func(o *redis.Options) { o.Addr = p.Addr() })
		require.Equal(t, 3, rdb.Options().MaxRetries)
		out = append(out, rdb)
	}
	return out
}

// TestLostReplies checks that 10,000 lost replies lose no permit.
func TestLostReplies(t *testing.T) {
	seed := newTwinSeed(t).run
	t.Logf("RATELIMITER_COMPAT_SEED=%d", seed)
	server := redistest.Start(t)
	p := redistest.StartProxy(t, server.Addr())
	w := newLossy(t, server.Client(t), lossyClients(t, 4, p, server), []*redistest.Proxy{p}, 3000)
	ledger := startLedger(t, server.Addr())
	began := time.Now()
	w.run(seed, 10_000, newLoser(seed, 0.5, lossyMost), w.ours())
	t.Logf("%v, %+v", time.Since(began).Round(time.Millisecond), p.Counts())
	w.requireAtMostOnce(func(key string) []entry { return ledger.at(w.past, key) })
	require.GreaterOrEqual(t, p.Counts().LostReplies, 10_000)
	require.NotZero(t, p.Counts().LostRequests)
}

// TestLostRepliesToTheEnd checks that a try that never gets a reply returns an error, and that it takes its permits
// once, however often it was sent, and for one interval.
func TestLostRepliesToTheEnd(t *testing.T) {
	server := redistest.Start(t)
	p := redistest.StartProxy(t, server.Addr())
	w := newLossy(t, server.Client(t), lossyClients(t, 4, p, server), []*redistest.Proxy{p}, 100)
	var warm, callers sync.WaitGroup
	warm.Add(len(w.ids) * len(w.limiters))
	for _, l := range w.limiters {
		for i, id := range w.ids {
			callers.Go(func() {
				// Each try has a Client of its own, because a Client that knows that Redis is down sends nothing.
				c := clienttest.New(t, w.through[i], ratelimiter.WithClientID(id))
				defer c.Close()
				limiter := c.RateLimiter(l.name)
				assert.NoError(t, limiter.Acquire(t.Context(), 1)) // loads the script, and learns the type
				warm.Done()
				warm.Wait()
				p.Judge(func(words []string) (f redistest.Fault) {
					if strings.HasPrefix(words[0], "eval") {
						f.Lose = redistest.LoseReply
					}
					return f
				})
				r, err := limiter.Allow(t.Context(), 3)
				assert.ErrorIs(t, err, ratelimiter.ErrUnavailable)
				assert.ErrorIs(t, err, io.EOF, "the cause")
				assert.False(t, r.Granted)
				l.told[i].Add(4)
			})
		}
	}
	callers.Wait()
	require.GreaterOrEqual(t, w.lost(), 4*len(w.ids)*len(w.limiters))
	p.Judge(nil)
	w.requireAtMostOnce(nil)
}

// TestLostRepliesOfACluster checks that the redirect loop of go-redis's cluster client takes no permits twice either.
func TestLostRepliesOfACluster(t *testing.T) {
	seed := newTwinSeed(t).run
	t.Logf("RATELIMITER_COMPAT_SEED=%d", seed)
	cluster := redistest.StartCluster(t)
	byAddr := map[string]*redistest.Proxy{}
	var proxies []*redistest.Proxy
	var ledgers []*ledger
	var nodes []*redis.Client
	for _, node := range cluster.Nodes() {
		p := redistest.StartProxy(t, node.Addr())
		byAddr[node.Addr()] = p
		proxies = append(proxies, p)
		ledgers = append(ledgers, startLedger(t, node.Addr()))
		nodes = append(nodes, node.Client(t))
	}
	var through []redis.UniversalClient
	for range 2 {
		// The nodes report their own addresses, whatever address a client dialled.
		through = append(through, cluster.Client(t, func(o *redis.ClusterOptions) {
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, byAddr[addr].Addr())
			}
		}))
	}
	w := newLossy(t, cluster.Client(t), through, proxies, 1000)
	began := time.Now()
	w.run(seed, 1500, newLoser(seed, 0.5, lossyMost), w.ours())
	for _, p := range proxies {
		t.Logf("%v, %+v", time.Since(began).Round(time.Millisecond), p.Counts())
		require.NotZero(t, p.Counts().LostReplies, "limiters are on all nodes")
	}
	w.requireAtMostOnce(func(key string) (grants []entry) {
		for i, l := range ledgers {
			grants = append(grants, l.at(nodes[i], key)...)
		}
		return grants
	})
}

// TestLostRepliesOfRedisson checks that the same run finds the fault of Redisson's script: go-redis sends it again
// like any command, and permits are lost for good.
func TestLostRepliesOfRedisson(t *testing.T) {
	seed := newTwinSeed(t).run
	t.Logf("RATELIMITER_COMPAT_SEED=%d", seed)
	j := newJar(t, newestListed())
	server := redistest.Start(t)
	p := redistest.StartProxy(t, server.Addr())
	rdb := server.Client(t)
	require.NoError(t, j.load(t.Context(), rdb))
	w := newLossy(t, rdb, lossyClients(t, 4, p, server), []*redistest.Proxy{p}, 3000)
	w.run(seed, 800, newLoser(seed, 0.5, lossyMost), func(ctx context.Context, rng *rand.Rand, l *lossyLimiter, client int, permits int64) (bool, error) {
		return j.tryAcquire(ctx, w.through[client], l.name, w.ids[client], permits, rng.Uint64())
	})
	var told, drift, members int64
	for _, h := range w.holdings() {
		value, used := w.state(h)
		drift += h.rate.Permits - value - used
		told += h.toldSum
		if h.rate.Interval == lossyLong {
			members += used - h.toldSum
		}
	}
	t.Logf("Redisson %s: %d replies lost, callers told of %d permits, drift of the capacity %d; of an hour, %d permits more used than told of",
		j.version, w.lost(), told, drift, members)
	require.Positive(t, drift, "neither left nor in use")
}

// tryAcquire runs the jar's script, as a program would that had copied it.
func (j *jar) tryAcquire(ctx context.Context, rdb redis.UniversalClient, name, id string, permits int64, bits uint64) (bool, error) {
	op := twinOp{name: "tryAcquire", permits: permits}
	words := j.send(ctx, rdb.Pipeline(), op, name, id, time.Now().UnixMilli(), j.random(bits)).cmd.Args()
	cmd := rdb.Do(ctx, words...)
	switch answer := (sent{op: op, cmd: cmd}).answer(); answer.word {
	case granted:
		return true, nil
	case rejected:
		return false, nil
	default:
		return false, cmd.Err()
	}
}
