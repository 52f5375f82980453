// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/wire"
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
	c := must(New(rdb, opts...))(tb)
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
	r := must(w.l.Allow(w.ctx, permits))(w.t)
	return r
}

// ask makes one acquire call.
func (w *world) ask(b permit.Batch) permit.Reply {
	w.t.Helper()
	a := must(w.l.redis.Acquire(w.ctx, &b))(w.t)
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
	require.Equal(w.t, want, must(w.l.AvailablePermits(w.ctx))(w.t), "available permits")
}

func (w *world) valueKey() string { return w.l.redis.Keys.Value[w.typ()] }

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
	n := must(strconv.ParseInt(s, 10, 64))(w.t)
	return n
}

// used returns the permits in the set, expired or not, and the number of its members.
func (w *world) used() (permits int64, members int) {
	w.t.Helper()
	list := must(w.rdb.ZRange(w.ctx, w.permitsKey(), 0, -1).Result())(w.t)
	for _, s := range list {
		m := must(wire.ParseMember([]byte(s)))(w.t)
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
func keysOf(l *RateLimiter, t RateType) []string { return l.redis.Keys.Of(permit.Type(t)) }

func keysAll(l *RateLimiter, t RateType) []string { return l.redis.Keys.All(permit.Type(t)) }

// beside returns a limiter of that name which shares a lock with l, as some limiters do if there are many.
func beside(l *RateLimiter, name string) *RateLimiter {
	other := l.client.RateLimiter(name)
	other.handle = l.handle.Beside(other.redis.Keys.Hash, name, &other.redis)
	return other
}

// grant returns a member of our own format with a fresh id.
func grant(permits uint32) []byte { return redisson.Member(false, redisson.RandomID(), permits) }

// A commandHook is called in place of next for a single command.
type commandHook = func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error

// onScripts has f called for each script, and onCommands for each command.
func onScripts(rdb redis.UniversalClient, f commandHook) {
	onCommands(rdb, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return next(ctx, cmd)
		}
		return f(ctx, cmd, next)
	})
}

func onCommands(rdb redis.UniversalClient, f commandHook) { rdb.AddHook(redistest.OnCommand(f)) }

// A counter counts what a redis client sends.
type counter struct {
	redistest.Passing
	sent atomic.Int64
}

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

// must is redistest.Must.
func must[T any](v T, err error) func(t require.TestingT) T { return redistest.Must(v, err) }

// errOf returns the error of a call that returns something else, too.
func errOf[T any](_ T, err error) error { return err }

// abreast runs the subtests at the same time, since mostly they wait, each on a server of its own.
func abreast(t *testing.T, tests map[string]func(t *testing.T)) {
	t.Helper()
	var wg sync.WaitGroup
	for name, test := range tests {
		wg.Go(func() { t.Run(name, test) })
	}
	wg.Wait()
}

// hangLimit is longer than what a test waits for takes on any machine. It only ends a test that hangs.
const hangLimit = 2 * time.Minute

// soon polls until ok returns true. Unlike require.Eventually it makes no goroutine, because some tests count
// them.
func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(hangLimit); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", hangLimit, what)
		}
	}
}

// inTime returns what comes out of c.
func inTime[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(hangLimit):
		t.Fatalf("nothing within %v", hangLimit)
	}
	return v
}

// A watch counts the scripts that a redis client sends, and those that fail.
type watch struct {
	sent, failed atomic.Int64
	cure         atomic.Pointer[func()] // called once, after a failure and before the caller learns of it
}

func watched(rdb redis.UniversalClient) *watch {
	w := &watch{}
	onScripts(rdb, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		w.sent.Add(1)
		err := next(ctx, cmd)
		if err != nil && !redis.HasErrorPrefix(err, "NOSCRIPT") {
			w.failed.Add(1)
			if cure := w.cure.Swap(nil); cure != nil {
				(*cure)()
			}
		}
		return err
	})
	return w
}

// accounts returns what is wrong with a limiter of which exactly granted permits should be in use, or nil.
func accounts(rdb redis.UniversalClient, l *RateLimiter, rate, granted int64) error {
	ctx, used, wires := context.Background(), int64(0), int64(0)
	members, err := rdb.ZRangeWithScores(ctx, l.redis.Keys.Permits[Overall], 0, -1).Result()
	for _, z := range members {
		m, bad := wire.ParseMember([]byte(z.Member.(string)))
		err = errors.Join(err, bad)
		if z.Score == 0 { // a tripwire, because of which value is one less
			wires++
		} else {
			used += int64(m.Permits)
		}
	}
	value, lost := rdb.Get(ctx, l.redis.Keys.Value[Overall]).Int64()
	if err = errors.Join(err, lost); err == nil && (used != granted || value+wires != rate-granted) {
		err = fmt.Errorf("granted %d of %d, in the set %d, left %d", granted, rate, used, value)
	}
	return err
}

// asleep returns how many callers of l have been rejected and wait while nothing is in flight.
func asleep(l *RateLimiter) int {
	return l.handle.Snapshot().Asleep
}

// load has Redis know all scripts, so that no call is answered NOSCRIPT. Which script a call sends may be a matter of chance: one
// in some is a check.
func (w *world) load() {
	for _, s := range allScripts() {
		require.NoError(w.t, w.rdb.ScriptLoad(w.ctx, s.Src).Err())
	}
}

// hold delays the replies of scripts, which run at once, by what the result holds.
func hold(w *world, d time.Duration) *atomic.Int64 {
	w.load()
	delay := &atomic.Int64{}
	delay.Store(int64(d))
	onScripts(w.rdb, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		time.Sleep(time.Duration(delay.Load()))
		return err
	})
	return delay
}

// A cut fails commands without sending them, and dials, while it is down.
type cut struct {
	down atomic.Bool
	err  atomic.Pointer[error]
}

var refusedDial = &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}

func cutOff(w *world, err error) *cut {
	c := &cut{}
	c.err.Store(&err)
	onCommands(w.rdb, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if !c.down.Load() {
			return next(ctx, cmd)
		}
		cmd.SetErr(*c.err.Load())
		return cmd.Err()
	})
	o := w.rdb.Options()
	dial := o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if c.down.Load() {
			return nil, *c.err.Load()
		}
		return dial(ctx, network, addr)
	}
	return c
}

// failsWith makes another error the reason.
func (c *cut) failsWith(err error) { c.err.Store(&err) }

// goesAway makes the process of w notice that Redis is down.
func goesAway(w *world, c *cut) {
	c.down.Store(true)
	_, err := w.l.OnOutage(FailClosed()).Allow(w.ctx, 1)
	require.ErrorIs(w.t, err, ErrUnavailable)
	require.True(w.t, w.l.handle.Health().Down())
}

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

// A fault counts scripts. As many as are left it fails with err, after it has run them or not.
type fault struct{ left, sent atomic.Int64 }

func inject(w *world, run bool, err error) *fault {
	w.load()
	f := &fault{}
	onScripts(w.rdb, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		f.sent.Add(1)
		if f.left.Load() <= 0 {
			return next(ctx, cmd)
		}
		if run {
			_ = next(ctx, cmd)
		}
		f.left.Add(-1)
		cmd.SetErr(err)
		return err
	})
	return f
}

// A forger replies to scripts in place of Redis while it has replies.
type forger struct {
	mu      sync.Mutex
	replies []any
	forever any // what it replies when it has none left
	err     error
}

func (f *forger) on(rdb *redis.Client) *forger {
	onCommands(rdb, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		ok := strings.HasPrefix(cmd.Name(), "eval")
		switch {
		case f.err != nil:
			cmd.SetErr(f.err)
			return f.err
		case ok && len(f.replies) > 0:
			redistest.Reply(cmd, f.replies[0])
			f.replies = f.replies[1:]
		case ok && f.forever != nil:
			redistest.Reply(cmd, f.forever)
		default:
			return next(ctx, cmd)
		}
		return cmd.Err()
	})
	return f
}

// A resender sends each script again, as a proxy does that has lost the first reply. The caller gets
// the reply of the second and does not know of the first.
type resender struct {
	on    atomic.Bool
	only  *redisson.Script // if it is not nil, the only script that is sent again
	first bool             // the caller gets the reply of the first, as if the network had doubled the request
}

// inResends runs f in a world whose scripts are sent twice as long as the resender is on.
func inResends(t *testing.T, r Rate, f func(t *testing.T, w *world, twice *resender)) {
	inWorld(t, r, func(t *testing.T, w *world) {
		w.load()
		twice := &resender{}
		twice.on.Store(true)
		onScripts(w.rdb, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if !twice.on.Load() || twice.only != nil && cmd.Args()[1] != twice.only.Sha && cmd.Args()[1] != twice.only.Src {
				return next(ctx, cmd)
			}
			again := redis.NewCmd(ctx, cmd.Args()...)
			if twice.first {
				defer func() { _ = next(ctx, again) }()
			} else {
				_ = next(ctx, again)
			}
			return next(ctx, cmd)
		})
		f(t, w, twice)
	})
}

// holds checks that used permits of l are in its set, and that value is the rest of the rate.
func (w *world) holds(l *RateLimiter, rate, used int64) {
	w.t.Helper()
	r := must(l.Rate(w.ctx))(w.t)
	keys := keysOf(l, r.Type)
	value := must(w.rdb.Get(w.ctx, keys[1]).Int64())(w.t)
	found := int64(0)
	for _, s := range w.rdb.ZRange(w.ctx, keys[2], 0, -1).Val() {
		m := must(wire.ParseMember([]byte(s)))(w.t)
		found += int64(m.Permits)
	}
	require.Equal(w.t, [2]int64{rate - used, used}, [2]int64{value, found}, "value and the permits in the set of %s", l.Name())
}

// requireIdle checks that no caller waits and that nothing is in flight. It works only inside a synctest bubble.
func requireIdle(t *testing.T, c *Client) {
	t.Helper()
	synctest.Wait()
	require.NoError(t, c.engine.CheckIdle())
}

// another returns the same limiter in another process, with an id of its own.
func (w *world) another(opts ...Option) *world {
	w.t.Helper()
	peer := newWorld(w.t, redistest.Peer(w.t, w.rdb), opts...)
	w.t.Cleanup(func() { _ = peer.client.Close() })
	peer.l, peer.epoch = peer.client.RateLimiter(w.l.Name()), w.epoch
	return peer
}

// otherProcess returns a Client of another process.
func (w *world) otherProcess() *Client { return w.another().client }

// settled checks that value and the members add up to the rate.
func (w *world) settled(rate int64) {
	w.t.Helper()
	used, _ := w.used()
	require.Equal(w.t, rate, w.value()+used, "value %d and %d in use", w.value(), used)
}

// fill adds n members of one permit each, d after the world began.
func (w *world) fill(d time.Duration, n int) {
	w.t.Helper()
	zs := make([]redis.Z, n)
	for i := range zs {
		zs[i] = redis.Z{Score: float64(w.epoch.Add(d).UnixMilli()), Member: grant(1)}
	}
	require.NoError(w.t, w.rdb.ZAdd(w.ctx, w.permitsKey(), zs...).Err())
}

// needVirtualTTLs skips a test on a real server, whose clock ends the TTLs.
func needVirtualTTLs(t *testing.T) {
	if !redistest.TTLsAreVirtual() {
		t.Skip("the TTLs are those of a real clock")
	}
}

// javaGrant returns a grant as Redisson 3.21.0 writes it.
func javaGrant(permits uint32) []byte {
	return redistest.LuaPack("BcI", 16, []byte("0123456789abcdef"), permits)
}

func allScripts() (list []*redisson.Script) {
	v := reflect.ValueOf(scripts)
	for i := range v.NumField() {
		list = append(list, v.Field(i).Interface().(*redisson.Script))
	}
	return list
}

// A cpuMeter is a hook that measures the processor time that each script takes of Redis, one script after another. Unlike
// the time that passes it is the same however busy the machine is. It holds the two looks at the clock, too.
type cpuMeter struct {
	t     *testing.T
	admin *redis.Client
	mu    sync.Mutex
	took  []time.Duration
}

func (m *cpuMeter) on(rdb *redis.Client) {
	onScripts(rdb, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		before := m.used()
		err := next(ctx, cmd)
		m.took = append(m.took, m.used()-before)
		return err
	})
}

// requireBounded checks that most scripts have not taken Redis long, and returns what each has taken, the least first.
func (m *cpuMeter) requireBounded() []time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	slices.Sort(m.took)
	half := m.took[len(m.took)/2] // the others have the machine's own stalls in them
	m.t.Logf("%d calls, median %v, largest %v", len(m.took), half, m.took[len(m.took)-1])
	redistest.Measured(m.t, half < 5*time.Millisecond, "half of the calls took Redis more than %v", half)
	return m.took
}

// used returns the processor time that the thread which runs the commands has taken so far. Redis before 6.2 tells that of
// all its threads, of which the others have nothing to do.
func (m *cpuMeter) used() (d time.Duration) {
	info, found := m.admin.Info(context.Background(), "cpu").Val(), 0
	of := ""
	if strings.Contains(info, "_main_thread") {
		of = "_main_thread"
	}
	for line := range strings.FieldsSeq(info) {
		switch name, seconds, _ := strings.Cut(line, ":"); name {
		case "used_cpu_sys" + of, "used_cpu_user" + of:
			n, err := time.ParseDuration(seconds + "s")
			if err != nil {
				m.t.Error(err)
			}
			d, found = d+n, found+1
		}
	}
	if found != 2 {
		m.t.Errorf("INFO does not tell the processor time: %q", info)
	}
	return d
}

// idle reports whether nothing of c is in flight.
func idle(c *Client) bool { return c.engine.Idle() }

// inFormat makes a client write members in one of the two formats that it can write.
func inFormat(f wire.Format) Option {
	return func(c *config) { c.longMembers = f == wire.FormatLc0I }
}
