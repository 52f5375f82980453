package ratelimiter

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

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

func newRealRing(t *testing.T, args []string, opts ...func(*redis.RingOptions)) *realRing {
	redistest.NeedReal(t)
	r := &realRing{t: t, ctx: t.Context()}
	o := &redis.RingOptions{Addrs: map[string]string{}, DisableIdentity: true}
	for i := range 3 {
		s := redistest.Start(t, args...)
		r.servers = append(r.servers, s)
		o.Addrs[fmt.Sprint("shard", i)] = s.Addr()
	}
	for _, opt := range opts {
		opt(o)
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
		shard, err := r.rdb.GetShardClientForKey(l.redis.Keys.Hash)
		require.NoError(r.t, err)
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
	r := newRealRing(t, []string{"--appendonly", "yes", "--appendfsync", "always"})
	hour, short := overall(20, time.Hour), overall(20, 500*time.Millisecond)
	burst, never := r.limiter(true, hour), r.limiter(true, hour)
	_, err := never.Delete(r.ctx)
	require.NoError(t, err)
	open, share := r.limiter(true, short).OnOutage(FailOpen()), r.limiter(true, short).OnOutage(LocalQuota(short, 2))
	waits, cools := r.limiter(true, overall(1, time.Second)), r.limiter(true, hour)
	elsewhere := []*RateLimiter{r.limiter(false, overall(1_000_000, time.Hour)), r.limiter(false, overall(1_000_000, time.Hour))}
	elsewhere[1] = beside(burst, elsewhere[1].Name()) // as some names do if there are many
	onVictim := []*RateLimiter{burst, never, open, share, waits, cools}
	require.NoError(t, burst.Acquire(r.ctx, 15))
	require.NoError(t, waits.Acquire(r.ctx, 1))

	stop, untouched := make(chan struct{}), sync.WaitGroup{}
	defer untouched.Wait()
	defer sync.OnceFunc(func() { close(stop) })()
	for _, l := range elsewhere {
		untouched.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
				}
				a, err := l.Allow(r.ctx, 1)
				if err != nil || !a.Granted || a.Degraded {
					t.Errorf("elsewhere: %+v %v", a, err)
					return
				}
			}
		})
	}

	r.victim.Kill()
	served := make(chan error, 1)
	go func() { served <- waits.Acquire(r.ctx, 1) }()
	down, degraded := time.Time{}, 0
	for begin := time.Now(); ; {
		for _, l := range []*RateLimiter{burst, never} {
			_, err := l.Allow(r.ctx, 1)
			require.ErrorIs(t, err, ErrUnavailable)
			require.NotErrorIs(t, err, ErrNotInitialized)
		}
		if time.Since(begin) > 500*time.Millisecond {
			a, err := open.Allow(r.ctx, 1)
			require.NoError(t, err)
			require.True(t, a.Granted && a.Degraded)
			a, err = share.Allow(r.ctx, 1)
			require.NoError(t, err)
			require.True(t, a.Degraded)
			if a.Granted {
				degraded++
			}
		}
		if down.IsZero() && r.rdb.Len() == 2 {
			down = time.Now()
			t.Log("taken out after", down.Sub(begin))
			// A service does this if it takes the error for a new limiter.
			for _, f := range []func() error{
				func() error { _, err := burst.TrySetRate(r.ctx, hour); return err },
				func() error { return never.SetRate(r.ctx, hour) },
				func() error { return cools.CoolDown(r.ctx, time.Now().Add(time.Minute)) },
				func() error { _, err := burst.Rate(r.ctx); return err },
				func() error { _, err := burst.Exists(r.ctx); return err },
				func() error { _, err := burst.TTL(r.ctx); return err },
				func() error { _, err := burst.AvailablePermits(r.ctx); return err },
			} {
				require.ErrorIs(t, f(), ErrUnavailable)
			}
			_, err := r.client.TryAcquireAll(r.ctx, 0, Demand{burst, 1}, Demand{elsewhere[0], 1})
			require.ErrorIs(t, err, ErrUnavailable)
		}
		if !down.IsZero() && time.Since(down) > 3*time.Second {
			break
		}
		require.Less(t, time.Since(begin), time.Minute, "the heartbeat never takes it out")
		time.Sleep(20 * time.Millisecond)
	}
	require.Zero(t, r.ended(onVictim), "the shard is dead")
	for _, l := range onVictim {
		r.noCopies(l)
	}
	require.NotZero(t, degraded)
	require.Empty(t, served)

	r.victim.Restart()
	back := time.Now()
	require.NoError(t, inTime(t, served))
	t.Log("the waiter was served", time.Since(back), "after the shard was back")
	for granted := 0; ; granted++ {
		a, err := burst.Allow(r.ctx, 1)
		for ; err != nil; a, err = burst.Allow(r.ctx, 1) {
			require.ErrorIs(t, err, ErrUnavailable)
			require.Less(t, time.Since(back), time.Minute, "Redis never decides again")
			time.Sleep(20 * time.Millisecond)
		}
		if !a.Granted {
			require.Equal(t, 5, granted, "no second burst")
			break
		}
	}
	for _, l := range []*RateLimiter{open, share} {
		soon(t, "Redis decides again", func() bool {
			a, err := l.Allow(r.ctx, 1)
			require.NoError(t, err)
			return !a.Degraded
		})
	}
}

// A shard hangs for longer than the heartbeat waits.
func TestRingWithAFrozenShard(t *testing.T) {
	r := newRealRing(t, nil, func(o *redis.RingOptions) { o.ReadTimeout = 300 * time.Millisecond })
	hour := overall(20, time.Hour)
	l, other := r.limiter(true, hour), r.limiter(false, overall(1_000_000, time.Hour))
	require.NoError(t, l.Acquire(r.ctx, 15))
	granted, begin := 15, time.Now()
	r.victim.Pause()
	for out, rejected := false, 0; rejected < 100; time.Sleep(10 * time.Millisecond) { // until Redis has decided so often again
		require.Less(t, time.Since(begin), time.Minute, "the heartbeat never takes it out, or never back")
		if !out && r.rdb.Len() < 3 {
			out = true
			r.victim.Resume()
		}
		a, err := l.Allow(r.ctx, 1)
		require.NotErrorIs(t, err, ErrNotInitialized)
		if err != nil {
			require.ErrorIs(t, err, ErrUnavailable)
			_, err := l.TrySetRate(r.ctx, hour)
			if err != nil {
				require.ErrorIs(t, err, ErrUnavailable)
			}
		} else if a.Granted {
			granted++
		} else if out {
			rejected++
		}
		_, err = other.Allow(r.ctx, 1)
		require.NoError(t, err)
	}
	require.LessOrEqual(t, granted, 20)
	require.NoError(t, accounts(r.victim.Client(t), l, 20, 20))
	r.noCopies(l)
}

// The limiters of a shard share one outage, whatever their names, and those of another shard have another one.
func TestOutageOfAShardOfARing(t *testing.T) {
	rdb := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1", "b": "127.0.0.1:2", "c": "127.0.0.1:3"},
		HeartbeatFrequency: time.Hour})
	defer func() { require.NoError(t, rdb.Close()) }()
	c := newClient(t, rdb)
	defer func() { require.NoError(t, c.Close()) }()
	healths := map[*redis.Client]*outage.Health{}
	for i := range 1000 {
		l := c.RateLimiter(fmt.Sprint(i))
		shard, err := rdb.GetShardClientForKey(l.redis.Keys.Hash)
		require.NoError(t, err)
		if healths[shard] == nil {
			healths[shard] = l.handle.Health()
		}
		require.Same(t, healths[shard], l.handle.Health())
	}
	require.Len(t, healths, 3)
	different := map[*outage.Health]bool{}
	for _, o := range healths {
		different[o] = true
	}
	require.Len(t, different, 3)
}
