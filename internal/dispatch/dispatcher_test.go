// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// through is a hook that passes everything on.
type through struct{}

func (through) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (through) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (through) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A fakeRedis is the hook of a redis client that takes the place of Redis and of the network. It replies to an
// EVALSHA with its last argument, after latency, and records what leaves when.
type fakeRedis struct {
	through
	latency time.Duration
	hello   any           // the reply to a HELLO, or its error
	took    time.Duration // how long Redis takes for calls in a joint
	// judge may set the reply or error of a command. It reports false for one that is to be replied to as usual.
	judge func(cmd redis.Cmder) bool
	// trip is called at the beginning of a round trip, if it is not nil.
	trip func(ctx context.Context, cmds []redis.Cmder)

	mu        sync.Mutex
	began     time.Time
	pipelines []string // "1ms 3: a b c": three commands left one millisecond after the beginning
}

func (f *fakeRedis) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "ping" { // by which a ring's pins learn whether a shard is closed
			return next(ctx, cmd)
		}
		return f.fly(ctx, []redis.Cmder{cmd})
	}
}

func (f *fakeRedis) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return f.fly
}

// note records that cmds leave.
func (f *fakeRedis) note(cmds []redis.Cmder) {
	names := make([]string, len(cmds))
	for i, cmd := range cmds {
		args := cmd.Args()
		names[i] = fmt.Sprint(args[len(args)-1])
		if cmd.Name() == "eval" {
			names[i] = "eval " + names[i]
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pipelines = append(f.pipelines, fmt.Sprintf("%v %d: %s", time.Since(f.began), len(cmds), strings.Join(names, " ")))
}

func (f *fakeRedis) fly(ctx context.Context, cmds []redis.Cmder) error {
	if last := cmds[len(cmds)-1]; last.Name() == "hello" {
		switch v := f.hello.(type) {
		case nil:
			last.SetErr(redisError("ERR unknown command 'hello'")) // calls of one script leave in a command each
		case error:
			last.SetErr(v)
		default:
			last.(OnceCmd).SetVal(v)
		}
		cmds = cmds[:len(cmds)-1]
	}
	if last, ok := cmds[len(cmds)-1].(Once); ok {
		last.Cmder.(*redis.TimeCmd).SetVal(f.began.Add(f.took))
		cmds = cmds[:len(cmds)-1]
	}
	f.note(cmds)
	if f.trip != nil {
		f.trip(ctx, cmds)
	}
	time.Sleep(f.latency)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, cmd := range cmds {
		if f.judge == nil || !f.judge(cmd) {
			args := cmd.Args()
			if once, ok := cmd.(OnceCmd); ok {
				once.SetVal(args[len(args)-1])
			}
		}
	}
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			return err
		}
	}
	return nil
}

// sizes returns how many commands left when.
func (f *fakeRedis) sizes() (list []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.pipelines {
		s, _, _ = strings.Cut(s, ":")
		list = append(list, s)
	}
	return list
}

var echo = New("echo", "return ARGV[1]", 1, 1)

// A hangar is a Dispatcher in a bubble, with a fake in place of Redis.
type hangar struct {
	*fakeRedis
	t   *testing.T
	d   *Dispatcher
	wg  sync.WaitGroup
	n   int
	key string
}

func inHangar(t *testing.T, latency time.Duration, f func(h *hangar)) {
	synctest.Test(t, func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		defer rdb.Close()
		h := &hangar{fakeRedis: &fakeRedis{latency: latency, began: time.Now()}, t: t, d: Of(rdb), key: "k"}
		rdb.AddHook(h.fakeRedis)
		f(h)
		h.wg.Wait()
		synctest.Wait()
		require.Empty(t, h.d.single.air, "all have landed")
		require.Nil(t, h.d.single.first)
	})
}

// call makes a call of that name, whose reply is the name, and returns its outcome.
func (h *hangar) call(ctx context.Context, name string) (any, error) {
	cmd, err := echo.Command([]string{h.key}, name)
	require.NoError(h.t, err)
	return echo.Once(ctx, h.d, cmd)
}

// begin begins a call, which comes before those that begin later, and hands its outcome to check.
func (h *hangar) begin(ctx context.Context, name string, check func(reply any, err error)) {
	h.wg.Go(func() { check(h.call(ctx, name)) })
	synctest.Wait()
}

// succeed begins a call that must succeed.
func (h *hangar) succeed(name string) {
	h.begin(context.Background(), name, func(reply any, err error) {
		if err != nil || reply != name {
			h.t.Error(name, "got", reply, err)
		}
	})
}

// leave begins n calls at this instant, in this order, each of which must succeed.
func (h *hangar) leave(n int) {
	for range n {
		h.n++
		h.succeed(fmt.Sprint(h.n))
	}
}

// fill begins as many calls as leave at once, and does not record them.
func (h *hangar) fill() {
	n := len(h.pipelines)
	for range fewCalls {
		h.succeed("first")
	}
	require.Len(h.t, h.pipelines, n+fewCalls)
	h.pipelines = h.pipelines[:n]
}

// TestLoneCallLeavesAtOnce checks that a call leaves in the goroutine of its caller if little is on its way.
func TestLoneCallLeavesAtOnce(t *testing.T) {
	inHangar(t, 500*time.Microsecond, func(h *hangar) {
		var in string
		h.trip = func(context.Context, []redis.Cmder) { in = goroutine() }
		for range 3 {
			reply, err := h.call(context.Background(), "a")
			require.NoError(t, err)
			require.Equal(t, "a", reply)
			require.Equal(t, goroutine(), in)
		}
		require.Equal(t, []string{"0s 1", "500µs 1", "1ms 1"}, h.sizes())
	})
}

// goroutine returns the number of this goroutine.
func goroutine() string {
	var b [64]byte
	return strings.Fields(string(b[:runtime.Stack(b[:], false)]))[1]
}

// TestCallsLeaveTogether checks that calls which come while fewCalls are in flight leave together, in their order.
func TestCallsLeaveTogether(t *testing.T) {
	inHangar(t, 500*time.Microsecond, func(h *hangar) {
		h.leave(fewCalls + 6)
		time.Sleep(100 * time.Microsecond)
		h.leave(2)
		h.wg.Wait()
		require.Equal(t, []string{"0s 1: 1", "0s 1: 2", "0s 1: 3", "0s 1: 4", "0s 1: 5", "0s 1: 6", "0s 1: 7", "0s 1: 8",
			"500µs 8: 9 10 11 12 13 14 15 16"}, h.pipelines)
	})
	// Those that would leave Redis with nothing to do while their callers come back leave in two halves.
	inHangar(t, 500*time.Microsecond, func(h *hangar) {
		l := h.d.single
		l.landing = 1
		h.leave(11)
		l.mu.Lock()
		l.landing = 0
		l.leaveLocked(time.Now())
		l.mu.Unlock()
		h.wg.Wait()
		require.ElementsMatch(t, []string{"0s 6", "0s 5"}, h.sizes())
	})
}

// TestCallsDuringALanding checks that nobody leaves while the callers of a pipeline are being woken, so that those who call
// again leave together.
func TestCallsDuringALanding(t *testing.T) {
	inHangar(t, 500*time.Microsecond, func(h *hangar) {
		l := h.d.single
		l.landing = 1
		h.leave(3)
		time.Sleep(time.Second / 2)
		require.Empty(t, h.pipelines)
		require.Zero(t, l.due, "whoever wakes the callers sees to those who wait")
		c := h.d.newCall(context.Background(), echo, []any{"evalsha", echo.Sha, 1, "k", "a"})
		l.mu.Lock()
		l.landing = 0
		now := time.Now()
		d := l.departsLocked(now, 1)
		l.mu.Unlock()
		l.fly([]*call{c}, d)
		<-c.done
		h.wg.Wait()
		require.Equal(t, []string{"500ms 1: a", "500.5ms 3: 1 2 3"}, h.pipelines)
		require.Zero(t, l.landing)
	})
}

// TestPipelinesAreBounded: by their calls, by their bytes and by the time that they take Redis.
func TestPipelinesAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		micros int
		key    int // its length
		calls  int
		want   []string
	}{
		"calls":         {calls: 2*maxCalls + 7, want: []string{"500µs 64", "500µs 64", "1ms 7"}},
		"a third":       {calls: 3*maxCalls + 7, want: []string{"500µs 64", "500µs 64", "500µs 64", "1ms 7"}},
		"bytes":         {key: maxBytes / 4, calls: 9, want: []string{"500µs 3", "500µs 3", "500µs 3"}},
		"one too long":  {key: 2 * maxBytes, calls: 2, want: []string{"500µs 1", "500µs 1"}},
		"time of Redis": {micros: 300, calls: 9, want: []string{"500µs 2", "500µs 2", "500µs 2", "500µs 2", "1ms 1"}},
	} {
		defer func() { echo.Micros = 0 }()
		echo.Micros = c.micros
		inHangar(t, 500*time.Microsecond, func(h *hangar) {
			h.key = strings.Repeat("k", max(1, c.key))
			h.fill()
			h.leave(c.calls)
			h.wg.Wait()
			require.Equal(t, c.want, h.sizes(), name)
		})
	}
	require.LessOrEqual(t, maxCalls*usualMicros, maxMicros, "a usual pipeline is full by its calls")
	require.Greater(t, (maxCalls+4)*usualMicros, maxMicros, "and not by far")
}

// TestScriptsThatGoAlone checks that calls which may keep Redis busy for long wait for nobody and nobody waits for them.
func TestScriptsThatGoAlone(t *testing.T) {
	inHangar(t, 500*time.Microsecond, func(h *hangar) {
		alone := New("alone", "return ARGV[1]", 1, 1)
		alone.Alone = true
		for i := range 4 {
			h.wg.Go(func() {
				cmd, _ := echo.Command([]string{"k"}, "alone")
				script, sender := alone, Sender(h.d)
				if i%2 == 1 {
					script, sender = echo, Alone(h.d)
				}
				_, err := script.Once(context.Background(), sender, cmd)
				require.NoError(t, err)
			})
		}
		synctest.Wait()
		h.leave(fewCalls + 1)
		h.wg.Wait()
		require.Equal(t, append(slices.Repeat([]string{"0s 1"}, 4+fewCalls), "500µs 1"), h.sizes())
	})
}

// TestPipelinesOnALongLine checks that a pipeline which has been in flight for a while keeps nobody waiting, up to
// maxPipelines of them.
func TestPipelinesOnALongLine(t *testing.T) {
	inHangar(t, 20*time.Millisecond, func(h *hangar) {
		h.fill()
		h.leave(10)
		time.Sleep(500 * time.Microsecond)
		h.leave(3)
		time.Sleep(1500 * time.Microsecond)
		h.leave(3)
		h.wg.Wait()
		require.Equal(t, []string{"1ms 13: 1 2 3 4 5 6 7 8 9 10 11 12 13", "2ms 1: 14", "2ms 1: 15", "2ms 1: 16"}, h.pipelines)
	})
}

// TestPipelinesAfterManySlowOnes checks that calls leave as soon as a pipeline has grown old, although the timer was set for
// later: for when a call would leave beside maxPipelines that do not land.
func TestPipelinesAfterManySlowOnes(t *testing.T) {
	inHangar(t, 20*time.Millisecond, func(h *hangar) {
		h.fill()
		for range maxPipelines - fewCalls {
			time.Sleep(time.Millisecond)
			h.leave(1)
		}
		h.leave(1) // which waits for a pipeline to land, or for stuck
		time.Sleep(26 * time.Millisecond)
		require.Equal(t, []string{"1ms 1", "2ms 1", "3ms 1", "4ms 1", "20ms 1"}, h.sizes())
		h.leave(fewCalls + 3) // beside the last one, which lands at 40 ms
		h.wg.Wait()
		require.Equal(t, []string{"30ms 1", "31ms 3"}, h.sizes()[len(h.sizes())-2:])
	})
}

// TestPipelineThatHangs checks that a connection which hangs, or a slow script, holds up its own pipeline only.
func TestPipelineThatHangs(t *testing.T) {
	inHangar(t, 100*time.Microsecond, func(h *hangar) {
		h.trip = func(_ context.Context, cmds []redis.Cmder) {
			if slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Args()[len(c.Args())-1] == "1" }) {
				time.Sleep(time.Second)
			}
		}
		h.leave(fewCalls + 2)
		time.Sleep(900 * time.Millisecond)
		h.leave(1)
		h.wg.Wait()
		require.Equal(t, []string{"100µs 2: 9 10", "900ms 1: 11"}, h.pipelines[fewCalls:])
	})
	// All connections hang: whoever comes leaves after a while, in ever fewer pipelines.
	inHangar(t, time.Second, func(h *hangar) {
		for range 400 {
			h.leave(1)
			time.Sleep(time.Millisecond)
		}
		h.wg.Wait()
		require.Equal(t, []string{"0s 1", "1ms 1", "2ms 1", "3ms 1", "4ms 1", "5ms 1", "6ms 1", "7ms 1",
			"8ms 1", "9ms 1", "10ms 1", "11ms 1",
			"111ms 64", "211ms 64", "311ms 64", "411ms 64", "511ms 64", "611ms 64", "711ms 4"}, h.sizes())
	})
	// More come than such a Redis replies to: they are not sent any more after a second.
	inHangar(t, 5*time.Second, func(h *hangar) {
		var unsent atomic.Int64
		for i := range 3000 {
			h.wg.Go(func() {
				_, err := h.call(context.Background(), fmt.Sprint(i))
				if err == nil {
					return
				}
				unsent.Add(1)
				failure := Failure(err)
				require.Equal(t, retry.NotExecuted, failure.Outcome)
				require.True(t, failure.Local)
				require.GreaterOrEqual(t, time.Since(h.began), time.Second)
				require.LessOrEqual(t, time.Since(h.began), 1100*time.Millisecond)
			})
		}
		h.wg.Wait()
		require.EqualValues(t, 3000-fewCalls-(maxPipelines-fewCalls+9)*64, unsent.Load())
	})
}

// TestCallersLeave checks that a caller whose context ends returns at once, that it is not asked for if its call
// has not left, and that the others in its pipeline do not notice.
func TestCallersLeave(t *testing.T) {
	inHangar(t, 500*time.Microsecond, func(h *hangar) {
		h.trip = func(ctx context.Context, cmds []redis.Cmder) {
			if len(cmds) > 1 {
				_, ok := ctx.Deadline()
				require.False(t, ok, "the context of a pipeline is not that of one caller")
				require.Equal(t, "v", ctx.Value(h), "but has the values of the first")
			}
		}
		h.fill()
		base := context.WithValue(context.Background(), h, "v")
		short, stop := context.WithTimeout(base, 200*time.Microsecond) // before the pipeline leaves
		defer stop()
		long, end := context.WithTimeout(base, 700*time.Microsecond) // while it is in flight
		defer end()
		for i, ctx := range []context.Context{short, long, context.WithValue(base, toNode{}, nil), long} {
			h.begin(ctx, fmt.Sprint("c", i), func(_ any, err error) {
				want := []time.Duration{200 * time.Microsecond, 700 * time.Microsecond, time.Millisecond, 700 * time.Microsecond}[i]
				require.Equal(t, want, time.Since(h.began))
				require.Equal(t, ctx.Err(), err)
			})
		}
		h.leave(1)
		h.wg.Wait()
		require.Equal(t, []string{"500µs 4: c1 c2 c3 1"}, h.pipelines)
	})
	// All have left.
	inHangar(t, 500*time.Microsecond, func(h *hangar) {
		h.fill()
		ctx, stop := context.WithTimeout(context.Background(), 200*time.Microsecond)
		defer stop()
		for range 3 {
			h.begin(ctx, "c", func(_ any, err error) { require.Equal(t, context.DeadlineExceeded, err) })
		}
		h.wg.Wait()
		require.Empty(t, h.sizes())
	})
	// A caller that leaves by itself can be left, too.
	inHangar(t, time.Second, func(h *hangar) {
		ctx, stop := context.WithTimeout(context.Background(), time.Millisecond)
		defer stop()
		_, err := h.call(ctx, "c")
		require.Equal(t, context.DeadlineExceeded, err)
		require.Equal(t, time.Millisecond, time.Since(h.began))
		time.Sleep(time.Second)
	})
}

// TestWhoSharesADispatcher checks that all users of a client share one Dispatcher, which lives as long as they do.
func TestWhoSharesADispatcher(t *testing.T) {
	a, b := redis.NewClient(&redis.Options{}), redis.NewClient(&redis.Options{})
	defer a.Close()
	defer b.Close()
	require.Same(t, Of(a), Of(a))
	require.NotSame(t, Of(a), Of(b))
	type wrapped struct{ *redis.Client }
	require.NotSame(t, Of(wrapped{a}), Of(wrapped{a}), "it may do something else with the commands")
	require.NotNil(t, Of(nil))
	require.NotNil(t, Of((*redis.ClusterClient)(nil)))
	require.NotNil(t, Of((*redis.Ring)(nil)))

	before := len(dispatchers.of)
	for range 50 {
		c := redis.NewClient(&redis.Options{})
		_ = Of(c)
		_ = c.Close()
	}
	runtime.GC()
	runtime.GC()
	_ = Of(redis.NewClient(&redis.Options{}))
	require.LessOrEqual(t, len(dispatchers.of), before+2)
}

// TestLanesOfARing checks that calls for one shard share pipelines among themselves, that hooks of the ring and of the
// shard see these, and that a hook that panics fails its own pipeline and nothing else.
func TestLanesOfARing(t *testing.T) {
	inRing(t, func(r *testRing) {
		ctx := context.Background()
		outer := &fakeRedis{}
		var panics atomic.Bool
		outer.trip = func(context.Context, []redis.Cmder) {
			if panics.Load() {
				panic("of a hook")
			}
		}
		r.rdb.AddHook(passing{outer})
		shards := map[string]*fakeRedis{}
		for _, shard := range r.rdb.GetShardClients() {
			shards[letter(shard.Options().Addr)] = &fakeRedis{latency: 500 * time.Microsecond, began: time.Now()}
			shard.AddHook(shards[letter(shard.Options().Addr)])
		}
		d := Of(r.rdb)
		keys := map[string][]string{} // by shard
		for i := range 60 {
			key := fmt.Sprint("key", i)
			shard, err := r.rdb.GetShardClientForKey(key)
			require.NoError(t, err)
			name := letter(shard.Options().Addr)
			keys[name] = append(keys[name], key)
		}
		ask := func(check func(error)) {
			var wg sync.WaitGroup
			for _, list := range keys {
				for _, key := range list {
					wg.Go(func() {
						cmd, _ := echo.Command([]string{key}, key)
						_, err := echo.Once(ctx, d, cmd)
						check(err)
					})
				}
			}
			wg.Wait()
		}
		ask(func(err error) { require.NoError(t, err) })
		for name, list := range keys {
			require.Equal(t, append(slices.Repeat([]string{"0s 1"}, fewCalls), fmt.Sprint("500µs ", len(list)-fewCalls)), shards[name].sizes(), name)
		}
		require.Len(t, outer.pipelines, 3*(fewCalls+1))

		panics.Store(true)
		ask(func(err error) {
			var p *retry.Panic
			require.ErrorAs(t, err, &p)
		})
		panics.Store(false)
		ask(func(err error) { require.NoError(t, err) })

		r.dead["a"].Store(true)
		time.Sleep(10 * time.Second)
		ask(func(err error) {
			if err != nil {
				require.ErrorIs(t, err, errShardDown)
			}
		})
	})
}

// A passing is a fakeRedis that passes on what it sees.
type passing struct{ *fakeRedis }

func (p passing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		p.note([]redis.Cmder{cmd})
		p.trip(ctx, nil)
		return next(ctx, cmd)
	}
}

func (p passing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		p.note(cmds)
		p.trip(ctx, nil)
		return next(ctx, cmds)
	}
}
