// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Every operation on a real cluster of three masters.
func TestCluster(t *testing.T) {
	redistest.NeedReal(t)
	rdb := redistest.StartCluster(t).Client(t)
	ctx := context.Background()
	c := newClient(t, rdb)
	defer c.Close()

	for _, name := range []string{"a{b", "{a", "{}x", "x{}{y}", "a}b"} {
		_, err := c.RateLimiter(name).TrySetRate(ctx, overall(1, time.Second))
		require.ErrorIs(t, err, ErrNameNotClusterSafe, name)
		require.ErrorContains(t, err, "hashes by")
	}
	type wrapped struct{ *redis.ClusterClient }
	_, err := newClient(t, wrapped{rdb}).RateLimiter("a{b").Allow(ctx, 1)
	require.ErrorIs(t, err, ErrNameNotClusterSafe, "a client that embeds a cluster client is one")

	nodes := map[string]bool{}
	for i := range 30 {
		name := fmt.Sprint("limiter-", i)
		if i%2 == 1 {
			name = fmt.Sprintf("shop{%d}orders", i)
		}
		node := must(rdb.MasterForKey(ctx, name))(t)
		nodes[node.Options().Addr] = true
		for _, typ := range []RateType{Overall, PerClient} {
			l := c.RateLimiter(name)
			everyOperation(t, ctx, l, typ)
		}
	}
	require.Len(t, nodes, 3, "on every node")
}

// A Ring sends the keys of a limiter to the shard of its name, whatever their suffixes.
func TestRing(t *testing.T) {
	redistest.NeedReal(t)
	rdb := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{
		"one": redistest.Start(t).Addr(), "two": redistest.Start(t).Addr()}})
	t.Cleanup(func() { _ = rdb.Close() })
	ctx := context.Background()
	c := newClient(t, rdb)
	defer c.Close()
	for i := range 20 {
		everyOperation(t, ctx, c.RateLimiter(fmt.Sprint("limiter-", i)), RateType(i%2))
	}
	everyOperation(t, ctx, c.RateLimiter("a{b"), Overall)
}

// everyOperation runs every operation once, in real time, and leaves nothing behind.
func everyOperation(t *testing.T, ctx context.Context, l *RateLimiter, typ RateType) {
	t.Helper()
	require.True(t, must(l.TrySetRate(ctx, Rate{Type: typ, Permits: 5, Interval: time.Hour}))(t))
	require.True(t, must(l.TryAcquire(ctx, 3, 0))(t))
	ok, err := l.TryAcquire(ctx, 3, time.Millisecond)
	if !errors.Is(err, ErrUnavailable) { // on a busy machine the reply may be later
		require.NoError(t, err)
	}
	require.False(t, ok)
	require.EqualValues(t, 2, must(l.AvailablePermits(ctx))(t))
	require.NoError(t, l.Release(ctx, 1))
	require.NoError(t, l.Acquire(ctx, 3))
	require.True(t, must(l.UpdateRate(ctx, Rate{Type: typ, Permits: 7, Interval: time.Hour}, KeepState()))(t))
	r := must(l.Allow(ctx, 3))(t)
	require.False(t, r.Granted)
	require.EqualValues(t, 2, r.Available)
	require.Equal(t, Rate{Type: typ, Permits: 7, Interval: time.Hour}, r.Rate)
	require.NoError(t, l.SetRate(ctx, Rate{Type: typ, Permits: 7, Interval: time.Hour}))
	require.Equal(t, r.Rate, must(l.Rate(ctx))(t))
	require.True(t, must(l.Admin().Expire(ctx, time.Hour))(t))
	require.InDelta(t, time.Hour, must(l.Admin().TTL(ctx))(t), float64(time.Minute))
	at := must(l.Admin().ExpireTime(ctx))(t)
	require.WithinDuration(t, time.Now().Add(time.Hour), at, time.Minute)
	require.True(t, must(l.Admin().ClearExpire(ctx))(t))
	require.True(t, must(l.Admin().Exists(ctx))(t))
	require.True(t, must(l.Admin().Delete(ctx))(t))
}

// A shard is a node of a cluster with a connection to it.
type shard struct {
	*redis.Client
	t  *testing.T
	id string
}

func (s shard) do(args ...any) {
	s.t.Helper()
	require.NoError(s.t, s.Do(context.Background(), args...).Err(), "%v", args)
}

// shardsOf returns the nodes of cluster, of which the one at index at has the slot of key.
func shardsOf(t *testing.T, cluster *redistest.Cluster, rdb *redis.ClusterClient, key string) (shards []shard, slot int64, at int) {
	ctx := context.Background()
	slot = rdb.ClusterKeySlot(ctx, key).Val()
	for i, node := range cluster.Nodes() {
		n := node.Client(t)
		shards = append(shards, shard{n, t, n.Do(ctx, "CLUSTER", "MYID").Val().(string)})
		if n.ClusterCountKeysInSlot(ctx, int(slot)).Val() > 0 {
			at = i
		}
	}
	return shards, slot, at
}

// A part of a cluster has no node. Its limiters wait, and those of the other parts do not notice.
func TestClusterWithoutANode(t *testing.T) {
	redistest.NeedReal(t)
	cluster := redistest.StartCluster(t)
	rdb, ctx := cluster.Client(t), context.Background()
	c := newClient(t, rdb)
	defer c.Close()
	l, other := c.RateLimiter("moving"), c.RateLimiter("elsewhere")
	for _, l := range []*RateLimiter{l, other} {
		require.NoError(t, l.SetRate(ctx, overall(10, time.Hour)))
		require.NoError(t, l.Acquire(ctx, 1))
	}
	shards, slot, at := shardsOf(t, cluster, rdb, l.Name())
	for _, s := range shards {
		s.do("CONFIG", "SET", "cluster-require-full-coverage", "no")
	}
	shards[at].do("CLUSTER", "DELSLOTS", slot)
	_, err := l.Allow(ctx, 1)
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "CLUSTERDOWN")
	var re redis.Error
	require.ErrorAs(t, err, &re)
	served := make(chan error, 1)
	go func() { served <- l.Acquire(ctx, 1) }()
	require.NoError(t, other.Acquire(ctx, 1))
	require.Empty(t, served)
	shards[at].do("CLUSTER", "ADDSLOTS", slot)
	require.NoError(t, inTime(t, served))
	require.NoError(t, accounts(rdb, l, 10, 2))
}

// A master dies for good. Its replica is found when it has taken over, and not at go-redis' own pace, which is once a
// minute.
func TestClusterLosesAMaster(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Repeats(t)
	cluster := redistest.StartCluster(t)
	cluster.AddReplica(t, 0)
	rdb, ctx := cluster.Client(t), context.Background()
	c := newClient(t, rdb)
	defer c.Close()
	l := c.RateLimiter("{06S}failover") // slot 0, of the first master
	require.NoError(t, l.SetRate(ctx, overall(1_000_000, time.Hour)))
	require.NoError(t, l.Acquire(ctx, 1))
	require.NoError(t, rdb.Do(ctx, "WAIT", 1, 1000).Err())
	cluster.Nodes()[0].Kill()
	begin := time.Now()
	require.True(t, must(l.TryAcquire(ctx, 1, time.Minute))(t))
	t.Logf("granted %v after the kill", time.Since(begin).Round(time.Millisecond))
	require.Less(t, time.Since(begin), 45*time.Second, "go-redis looks by itself after a minute")
}

// A realRing is a ring of three servers, with the heartbeat of go-redis.
type realRing struct {
	t       *testing.T
	ctx     context.Context
	servers []*redistest.Server
	rdb     *redis.Ring
	client  *Client
	victim  *redistest.Server // the server that fails
	names   int

	mu     sync.Mutex
	events []Event
}

func newRealRing(t *testing.T, args ...string) *realRing {
	redistest.NeedReal(t)
	r := &realRing{t: t, ctx: t.Context()}
	o := &redis.RingOptions{Addrs: map[string]string{}, DisableIdentity: true}
	for i := range 3 {
		s := redistest.Start(t, args...)
		r.servers = append(r.servers, s)
		o.Addrs[fmt.Sprint("shard", i)] = s.Addr()
	}
	r.rdb = redis.NewRing(o)
	t.Cleanup(func() { require.NoError(t, r.rdb.Close()) })
	r.client = newClient(t, r.rdb, WithHook(Hook{Event: func(e Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events = append(r.events, e)
	}}))
	t.Cleanup(func() { require.NoError(t, r.client.Close()) })
	r.victim = r.servers[1]
	return r
}

// limiter returns a limiter that lives on the victim, or on another shard.
func (r *realRing) limiter(onVictim bool, rate Rate) *RateLimiter {
	for {
		r.names++
		l := r.client.RateLimiter(fmt.Sprint(r.t.Name(), r.names))
		shard := must(r.rdb.GetShardClientForKey(l.redis.Keys.Hash))(r.t)
		if (shard.Options().Addr == r.victim.Addr()) == onVictim {
			require.NoError(r.t, l.SetRate(r.ctx, rate))
			return l
		}
	}
}

// ended returns for how many healths of limiters on the victim the end of an outage was reported.
func (r *realRing) ended(on []*RateLimiter) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		for _, l := range on {
			if e.Kind == OutageEnded && e.Limiter == l.Name() {
				n++
			}
		}
	}
	return n
}

// noCopies checks that no other server has anything of l, which lives on the victim.
func (r *realRing) noCopies(l *RateLimiter) {
	for _, s := range r.servers {
		if s != r.victim {
			n, err := s.Client(r.t).Exists(r.ctx, l.redis.Keys.Hash, l.redis.Keys.Value[Overall], l.redis.Keys.Permits[Overall]).Result()
			require.NoError(r.t, err)
			require.Zero(r.t, n, "a copy on another shard")
		}
	}
}

// A shard dies, and the heartbeat of the ring takes it out. Its limiters are unavailable until it is up again,
// as the policy of each says, and no other limiter is affected.
func TestRingLosesAShard(t *testing.T) {
	r := newRealRing(t, "--appendonly", "yes", "--appendfsync", "always")
	hour := overall(20, time.Hour)
	burst, never, waits := r.limiter(true, hour), r.limiter(true, hour), r.limiter(true, overall(1, time.Second))
	open := r.limiter(true, hour).OnOutage(FailOpen())
	elsewhere := beside(burst, r.limiter(false, overall(1_000_000, time.Hour)).Name()) // as some names do if there are many
	must(never.Admin().Delete(r.ctx))(t)
	require.NoError(t, burst.Acquire(r.ctx, 15))
	require.NoError(t, waits.Acquire(r.ctx, 1))

	r.victim.Kill()
	served := make(chan error, 1)
	go func() { served <- waits.Acquire(r.ctx, 1) }()
	var out time.Time // when the heartbeat has taken the shard out
	for begin := time.Now(); out.IsZero() || time.Since(out) < 3*time.Second; time.Sleep(20 * time.Millisecond) {
		require.Less(t, time.Since(begin), hangLimit, "the heartbeat never takes it out")
		a := must(elsewhere.Allow(r.ctx, 1))(t)
		require.True(t, a.Granted && !a.Degraded)
		for _, l := range []*RateLimiter{burst, never} {
			_, err := l.Allow(r.ctx, 1)
			require.ErrorIs(t, err, ErrUnavailable)
			require.NotErrorIs(t, err, ErrNotInitialized)
		}
		if !out.IsZero() || r.rdb.Len() == 3 {
			continue
		}
		out = time.Now()
		for _, method := range methods(burst) { // a service sets the rate if it takes the error for a new limiter
			if !slices.Contains(waitsForRedis, method) {
				require.ErrorIs(t, callMethod(burst, method, r.ctx), ErrUnavailable, method)
			}
		}
		_, err := r.client.TryAcquireAll(r.ctx, 0, Demand{burst, 1}, Demand{elsewhere, 1})
		require.ErrorIs(t, err, ErrUnavailable)
	}
	a := must(open.Allow(r.ctx, 1))(t)
	require.True(t, a.Granted && a.Degraded)
	require.Zero(t, r.ended([]*RateLimiter{burst, never, waits, open}), "the shard is dead")
	r.noCopies(burst)
	r.noCopies(never)
	require.Empty(t, served)

	r.victim.Restart()
	require.NoError(t, inTime(t, served))
	soon(t, "Redis decides again", func() bool { return !must(open.Allow(r.ctx, 1))(t).Degraded })
	granted := 0
	soon(t, "what was left is used", func() bool {
		a, err := burst.Allow(r.ctx, 1)
		if a.Granted {
			granted++
		}
		return err == nil && !a.Granted
	})
	require.Equal(t, 5, granted, "no second burst")
}

// A pipelines is a hook that counts the pipelines that a redis client sends, the scripts in them, and those of the
// scripts to which no reply came.
type pipelines struct {
	redistest.Passing
	sent, scripts, lost atomic.Int64
}

func (p *pipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if strings.HasPrefix(cmds[0].Name(), "eval") {
			p.sent.Add(1)
			p.scripts.Add(int64(len(cmds)))
		}
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			var reply redis.Error
			if c, ok := cmd.(dispatch.OnceCmd); ok && c.Val() == nil && c.Err() != nil && !errors.As(c.Err(), &reply) {
				p.lost.Add(1)
			}
		}
		return err
	}
}

// A crowd is many limiters of one client, and what callers were told of each.
type crowd struct {
	t        *testing.T
	rate     int64
	limiters []*RateLimiter
	told     []atomic.Int64
	calls    atomic.Int64
	stop     context.CancelFunc
	callers  sync.WaitGroup
}

// newCrowd has callers acquire permits of limiters of these names until end is called. If leave is true, a caller in
// eight gives up after a moment, so that its call may be in flight, or be granted later.
func newCrowd(t *testing.T, rdb redis.UniversalClient, callers int, leave bool, names ...string) *crowd {
	c := newClient(t, rdb)
	t.Cleanup(func() { _ = c.Close() })
	w := &crowd{t: t, rate: 1_000_000, told: make([]atomic.Int64, len(names))}
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	t.Cleanup(stop)
	for _, name := range names {
		l := c.RateLimiter(name)
		require.NoError(t, l.SetRate(ctx, overall(w.rate, time.Hour)))
		require.NoError(t, l.Acquire(ctx, 1))
		w.told[len(w.limiters)].Add(1)
		w.limiters = append(w.limiters, l)
	}
	for i := range callers {
		w.callers.Go(func() {
			for ctx.Err() == nil {
				n := rand.IntN(len(w.limiters))
				one, cancel := context.Background(), context.CancelFunc(func() {})
				hasty := leave && i%8 == 0
				if hasty {
					one, cancel = context.WithTimeout(one, time.Duration(rand.IntN(2000))*time.Microsecond)
				}
				ok, err := true, error(nil)
				if l := w.limiters[n]; i%2 == 0 {
					ok, err = l.TryAcquire(one, 1, time.Minute)
				} else {
					err = l.Acquire(one, 1)
				}
				cancel()
				switch {
				case err == nil && ok:
					w.told[n].Add(1)
					w.calls.Add(1)
				case hasty && errors.Is(err, context.DeadlineExceeded):
				default:
					t.Error(ok, err)
					return
				}
			}
		})
	}
	return w
}

// more waits for some more grants.
func (w *crowd) more(n int64) {
	from := w.calls.Load()
	soon(w.t, "grants go on", func() bool { return w.calls.Load() >= from+n || w.t.Failed() })
}

// end checks that each limiter has granted what callers were told of, and no more.
func (w *crowd) end(rdb redis.UniversalClient) {
	w.stop()
	w.callers.Wait()
	for i, l := range w.limiters {
		var err error
		// Grants of callers that gave up are refunded in the background.
		for end := time.Now().Add(hangLimit); ; time.Sleep(time.Millisecond) {
			if err = accounts(rdb, l, w.rate, w.told[i].Load()); err == nil || time.Now().After(end) {
				break
			}
		}
		require.NoError(w.t, err, l.Name())
	}
}

func namesOf(n int, format string) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf(format, i)
	}
	return names
}

// TestLostRepliesInFlights cuts connections in the middle of flights that many limiters share. Redis runs what is
// behind the cut, too, and nobody is told; nothing is granted twice or lost.
func TestLostRepliesInFlights(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Repeats(t)
	lose := int64(redistest.Cases(300, 10_000))
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	rdb := server.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() })
	require.Equal(t, 3, rdb.Options().MaxRetries, "go-redis would send a pipeline again")
	p := &pipelines{}
	rdb.AddHook(p)
	w := newCrowd(t, rdb, 128, false, namesOf(200, "lost-%d")...)
	w.more(1000)
	proxy.Judge(func(words []string) (f redistest.Fault) {
		if strings.HasPrefix(words[0], "eval") && rand.IntN(20) == 0 { // one command has the calls of many limiters
			f.Lose, f.Reset = redistest.LoseReply, rand.IntN(2) == 0
			if rand.IntN(8) == 0 {
				f.Lose = redistest.LoseRequest
			}
		}
		return f
	})
	for n := int64(100); n <= lose; n += 100 {
		soon(t, fmt.Sprint(n, " replies are lost"), func() bool { return p.lost.Load() >= n || t.Failed() })
	}
	proxy.Judge(nil)
	w.end(server.Client(t))
	t.Logf("%d grants, %.1f scripts in a flight, no reply to %d; %+v",
		w.calls.Load(), float64(p.scripts.Load())/float64(p.sent.Load()), p.lost.Load(), proxy.Counts())
	require.GreaterOrEqual(t, p.lost.Load(), lose)
}

// TestFlightsInTrouble lets callers of many limiters go on while the script cache is emptied, connections are
// killed, and Redis stands still.
func TestFlightsInTrouble(t *testing.T) {
	redistest.NeedReal(t)
	abreast(t, map[string]func(*testing.T){
		"SCRIPT FLUSH": func(t *testing.T) {
			flightsWhile(t, true, 2*time.Millisecond, 300, "SCRIPT", "FLUSH")
		},
		"CLIENT KILL": func(t *testing.T) {
			// A refund that fails four times is given up, and its permits are free an interval later.
			flightsWhile(t, false, 5*time.Millisecond, 200, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		},
		"CLIENT PAUSE": func(t *testing.T) {
			flightsWhile(t, true, 20*time.Millisecond, 50, "CLIENT", "PAUSE", "15")
		},
	})
}

func flightsWhile(t *testing.T, leave bool, pause time.Duration, times int, trouble ...any) {
	server := redistest.Start(t)
	admin, rdb, ctx := server.Client(t), server.Client(t), context.Background()
	p := &pipelines{}
	rdb.AddHook(p)
	w := newCrowd(t, rdb, 64, leave, namesOf(100, "trouble-%d")...)
	for range times {
		require.NoError(t, admin.Do(ctx, trouble...).Err())
		time.Sleep(pause)
	}
	w.more(100)
	w.end(admin)
	require.Positive(t, p.sent.Load())
	t.Logf("%d grants, %.1f scripts in a flight", w.calls.Load(), float64(p.scripts.Load())/float64(p.sent.Load()))
}

// TestFlightsWhileSlotsMove moves a slot with many limiters, so that some calls of a flight meet ASK or MOVED and
// others do not. Callers of these limiters and of those on the other nodes get no error, and nothing is granted twice
// or lost.
func TestFlightsWhileSlotsMove(t *testing.T) {
	redistest.NeedReal(t)
	cluster := redistest.StartCluster(t)
	rdb := cluster.Client(t)
	outer, inner := &pipelines{}, &pipelines{}
	rdb.AddHook(outer)
	rdb.OnNewNode(func(node *redis.Client) { node.AddHook(inner) })
	w := newCrowd(t, rdb, 96, true, append(namesOf(60, "{moving}:%d"), namesOf(90, "elsewhere-%d")...)...)
	shards, slot, from := shardsOf(t, cluster, rdb, "{moving}")
	for range 2 {
		to := (from + 1) % 3
		a, b := shards[from], shards[to]
		w.more(300)
		b.do("CLUSTER", "SETSLOT", slot, "IMPORTING", a.id)
		a.do("CLUSTER", "SETSLOT", slot, "MIGRATING", b.id)
		host, port, _ := strings.Cut(b.Options().Addr, ":")
		for i, l := range w.limiters[:60] {
			a.do("MIGRATE", host, port, "", 0, 5000, "KEYS", l.redis.Keys.Hash, l.redis.Keys.Value[Overall], l.redis.Keys.Permits[Overall])
			if i%15 == 0 {
				w.more(100) // ASK for some of the limiters
			}
		}
		b.do("CLUSTER", "SETSLOT", slot, "NODE", b.id)
		a.do("CLUSTER", "SETSLOT", slot, "NODE", b.id)
		w.more(300) // MOVED
		from = to
	}
	w.end(rdb)
	t.Logf("%d grants, %.1f scripts in a flight", w.calls.Load(), float64(outer.scripts.Load())/float64(outer.sent.Load()))
	require.Positive(t, outer.sent.Load(), "hooks of the cluster's client see the flights")
	require.GreaterOrEqual(t, inner.scripts.Load(), outer.scripts.Load(), "and so do those of its nodes")
}

// replicaReads are the commands that connect a client to a replica, or look at it.
var replicaReads = regexp.MustCompile(`^cmdstat_(client|cluster|command|config|hello|info|ping|quit|readonly)`)

// readBy runs every operation by a client that sends what only reads to a replica, which lags. What the client returns is what
// the master has, and the replica is never asked.
func readBy(t *testing.T, rdb redis.UniversalClient, replica *redis.Client, name string) {
	ctx := context.Background()
	require.NoError(t, replica.ConfigResetStat(ctx).Err())
	c := newClient(t, rdb)
	defer c.Close()
	l := c.RateLimiter(name)
	rate := Rate{Permits: 5, Interval: time.Hour, KeepAlive: 2 * time.Hour}
	require.False(t, must(l.Admin().Exists(ctx))(t))
	require.True(t, must(l.TrySetRate(ctx, rate))(t))
	for range 8 { // a client that routes at random asks the master now and then
		require.Equal(t, rate, must(l.Rate(ctx))(t))
		require.True(t, must(l.Admin().Exists(ctx))(t))
		require.InDelta(t, 2*time.Hour, must(l.Admin().TTL(ctx))(t), float64(time.Minute))
		require.False(t, must(l.Admin().ExpireTime(ctx))(t).IsZero())
		require.EqualValues(t, 5, must(l.AvailablePermits(ctx))(t))
		require.EqualValues(t, 5, must(l.Peek(ctx, 1))(t).Available)
		require.Equal(t, rate, must(l.Admin().Inspect(ctx))(t).Rate)
	}
	for _, typ := range []RateType{Overall, PerClient} {
		everyOperation(t, ctx, c.RateLimiter("{"+name+"}every"), typ)
	}
	for _, line := range regexp.MustCompile(`(?m)^cmdstat_[^:]*`).FindAllString(must(replica.Info(ctx, "commandstats").Result())(t), -1) {
		require.Regexp(t, replicaReads, line, "the replica ran it")
	}
}

// TestReadsOfClusterAreFromMasters: a cluster's client may send what only reads to replicas.
func TestReadsOfClusterAreFromMasters(t *testing.T) {
	redistest.NeedReal(t)
	cluster := redistest.StartCluster(t)
	replica := cluster.AddLaggingReplica(t)
	stats := replica.Client(t)
	for name, set := range map[string]func(*redis.ClusterOptions){
		"ReadOnly":       func(o *redis.ClusterOptions) { o.ReadOnly = true },
		"RouteRandomly":  func(o *redis.ClusterOptions) { o.RouteRandomly = true },
		"RouteByLatency": func(o *redis.ClusterOptions) { o.RouteByLatency = true },
	} {
		t.Run(name, func(t *testing.T) {
			readBy(t, cluster.Client(t, set), stats, "{06S}"+name) // slot 0, of the first master
		})
	}
}

// TestReadsOfFailoverClusterAreFromMasters: so may the client that redis.NewFailoverClusterClient returns, which is one of a
// cluster whose slots are all of the master that the sentinels name.
func TestReadsOfFailoverClusterAreFromMasters(t *testing.T) {
	redistest.NeedReal(t)
	master, replica := redistest.Start(t), redistest.Start(t)
	stats, ctx := replica.Client(t), context.Background()
	host, port := "127.0.0.1", regexp.MustCompile(`\d+$`).FindString(master.Addr())
	require.NoError(t, stats.Do(ctx, "replicaof", host, port).Err())
	require.EqualValues(t, 1, must(master.Client(t).Do(ctx, "wait", 1, 10_000).Int())(t))
	redistest.Lag(t, master, replica)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		RouteRandomly: true,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: master.Addr()}, {Addr: replica.Addr()}}}}, nil
		},
	})
	defer rdb.Close()
	readBy(t, rdb, stats, "failover")
}
