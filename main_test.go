package ratelimiter

import (
	"context"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/wire"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// A world is a limiter in a bubble of virtual time, with a Redis of the lane's kind and functions that put the
// keys into any state.
type world struct {
	t      *testing.T
	ctx    context.Context
	rdb    *redis.Client
	client *Client
	l      *RateLimiter
	epoch  time.Time
}

// inWorld runs f on a limiter of rate r in every lane. Only in miniredis is the clock of Redis virtual; for a
// real server each call carries the time of the bubble.
func inWorld(t *testing.T, r Rate, f func(t *testing.T, w *world), opts ...Option) {
	t.Helper()
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		w := newWorld(t, rdb, opts...)
		defer func() { require.NoError(t, w.client.Close()) }()
		if r != (Rate{}) {
			require.NoError(t, w.l.SetRate(w.ctx, r))
		}
		f(t, w)
	})
}

func newWorld(t *testing.T, rdb *redis.Client, opts ...Option) *world {
	if !redistest.TTLsAreVirtual() {
		opts = append([]Option{WithClientClock(), func(c *config) { c.sharedClock = true }}, opts...)
	}
	client := newClient(t, rdb, opts...)
	return &world{t: t, ctx: context.Background(), rdb: rdb, client: client,
		l: client.RateLimiter(redistest.Key(t)), epoch: time.Now()}
}

// newClient returns a Client that uses rdb, and fails the test if there is none.
func newClient(tb testing.TB, rdb redis.UniversalClient, opts ...Option) *Client {
	tb.Helper()
	c, err := New(rdb, opts...)
	require.NoError(tb, err)
	return c
}

func overall(permits int64, interval time.Duration) Rate {
	return Rate{Permits: permits, Interval: interval}
}

// at sleeps until d after the world began.
func (w *world) at(d time.Duration) { time.Sleep(d - time.Since(w.epoch)) }

func (w *world) elapsed() time.Duration { return time.Since(w.epoch) }

func (w *world) try(permits int64) Result {
	w.t.Helper()
	r, err := w.l.Allow(w.ctx, permits)
	require.NoError(w.t, err)
	return r
}

// ask makes one acquire call.
func (w *world) ask(b permit.Batch) permit.Reply {
	w.t.Helper()
	a, err := w.l.redis.Acquire(w.ctx, &b)
	require.NoError(w.t, err)
	return a
}

func (w *world) granted(permits int64) {
	w.t.Helper()
	r := w.try(permits)
	require.True(w.t, r.Granted, "%d permits rejected: %+v", permits, r)
}

func (w *world) rejected(permits int64, wait time.Duration) {
	w.t.Helper()
	r := w.try(permits)
	require.False(w.t, r.Granted, "%d permits granted: %+v", permits, r)
	require.Equal(w.t, wait, r.Wait)
}

// batched asks for each number of permits at one instant, so that the requests share a call.
func batched(ctx context.Context, l *RateLimiter, permits []int64) []engine.Outcome {
	requests := make([]engine.Request, len(permits))
	for i, n := range permits {
		requests[i] = engine.Request{Permits: n, TellWait: true}
	}
	return l.handle.Together(ctx, requests)
}

// together asks count times for permits at one instant.
func together(ctx context.Context, l *RateLimiter, permits, count int64) (granted int64, last engine.Outcome, err error) {
	for _, last = range batched(ctx, l, slices.Repeat([]int64{permits}, int(count))) {
		if err == nil {
			err = last.Err
		}
		if last.Granted {
			granted++
		}
	}
	return granted, last, err
}

func (w *world) available(want int64) {
	w.t.Helper()
	n, err := w.l.AvailablePermits(w.ctx)
	require.NoError(w.t, err)
	require.Equal(w.t, want, n, "available permits")
}

func (w *world) valueKey() string   { return w.l.redis.Keys.Value[w.typ()] }
func (w *world) permitsKey() string { return w.l.redis.Keys.Permits[w.typ()] }

func (w *world) typ() RateType {
	n, err := w.rdb.HGet(w.ctx, w.l.redis.Keys.Hash, "type").Int()
	if err != nil || n != int(PerClient) {
		return Overall
	}
	return RateType(n)
}

// value returns the value key as a number, or -1 if there is no such key.
func (w *world) value() int64 {
	w.t.Helper()
	s, err := w.rdb.Get(w.ctx, w.valueKey()).Result()
	if err == redis.Nil {
		return -1
	}
	require.NoError(w.t, err)
	n, err := strconv.ParseInt(s, 10, 64)
	require.NoError(w.t, err)
	return n
}

// used returns the permits in the set, expired or not, and the number of its members.
func (w *world) used() (permits int64, members int) {
	w.t.Helper()
	list, err := w.rdb.ZRange(w.ctx, w.permitsKey(), 0, -1).Result()
	require.NoError(w.t, err)
	for _, s := range list {
		m, err := wire.ParseMember([]byte(s))
		require.NoError(w.t, err)
		permits += int64(m.Permits)
	}
	return permits, len(list)
}

// put adds a member as some version of Redisson would have written it, d after the world began.
func (w *world) put(d time.Duration, member []byte) {
	w.t.Helper()
	require.NoError(w.t, w.rdb.ZAdd(w.ctx, w.permitsKey(),
		redis.Z{Score: float64(w.epoch.Add(d).UnixMilli()), Member: member}).Err())
}

func (w *world) setValue(v any) {
	w.t.Helper()
	require.NoError(w.t, w.rdb.Set(w.ctx, w.valueKey(), v, 0).Err())
}

// keysOf returns the keys that hold a rate of type t, and keysAll those of both types, of t first.
func keysOf(l *RateLimiter, t RateType) []string  { return l.redis.Keys.Of(permit.Type(t)) }
func keysAll(l *RateLimiter, t RateType) []string { return l.redis.Keys.All(permit.Type(t)) }

// beside returns a limiter of that name which shares a lock with l, as some limiters do if there are many.
func beside(l *RateLimiter, name string) *RateLimiter {
	other := l.client.RateLimiter(name)
	other.handle = l.handle.Beside(other.redis.Keys.Hash, name, &other.redis)
	return other
}

// grant returns a member of our own format with a fresh id.
func grant(permits uint32) []byte { return redisson.Member(false, redisson.RandomID(), permits) }

// A scriptHook has the methods that the hooks of these tests share, which look at single commands.
type scriptHook struct{}

func (scriptHook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (scriptHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A counter counts what a redis client sends.
type counter struct{ sent atomic.Int64 }

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.sent.Add(1)
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.sent.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

func count(rdb *redis.Client) *counter {
	c := &counter{}
	rdb.AddHook(c)
	return c
}

// noTTL is the TTL that go-redis returns of a key without one.
const noTTL = time.Duration(-1)

// errOf returns the error of a call that returns something else, too.
func errOf[T any](_ T, err error) error { return err }
