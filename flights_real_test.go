package ratelimiter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A pipelines is a hook that counts the pipelines that a redis client sends, the scripts in them, and those of the
// scripts to which no reply came.
type pipelines struct {
	scriptHook
	sent, scripts, lost atomic.Int64
}

func (p *pipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

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
				ok, err := w.limiters[n].TryAcquire(one, 1, time.Minute)
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
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
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
	lose := int64(redistest.Cases(2000, 10_000))
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	rdb := server.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() })
	require.Equal(t, 3, rdb.Options().MaxRetries, "go-redis would send a pipeline again")
	p := &pipelines{}
	rdb.AddHook(p)
	w := newCrowd(t, rdb, 128, false, namesOf(200, "lost-%d")...)
	w.more(1000)
	proxy.Judge(func(words []string) (f redistest.Fault) {
		if strings.HasPrefix(words[0], "eval") && rand.IntN(200) == 0 {
			f.Lose, f.Reset = redistest.LoseReply, rand.IntN(2) == 0
			if rand.IntN(8) == 0 {
				f.Lose = redistest.LoseRequest
			}
		}
		return f
	})
	for end := time.Now().Add(3 * time.Minute); p.lost.Load() < lose && !t.Failed() && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
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
	rdb, ctx := cluster.Client(t), context.Background()
	outer, inner := &pipelines{}, &pipelines{}
	rdb.AddHook(outer)
	rdb.OnNewNode(func(node *redis.Client) { node.AddHook(inner) })
	w := newCrowd(t, rdb, 96, true, append(namesOf(60, "{moving}:%d"), namesOf(90, "elsewhere-%d")...)...)
	slot := rdb.ClusterKeySlot(ctx, "{moving}").Val()
	shards, from := make([]shard, 3), 0
	for i, node := range cluster.Nodes() {
		n := node.Client(t)
		shards[i] = shard{n, t, n.Do(ctx, "CLUSTER", "MYID").Val().(string)}
		if n.ClusterCountKeysInSlot(ctx, int(slot)).Val() > 0 {
			from = i
		}
	}
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
