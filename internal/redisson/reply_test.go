// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A forger replies to scripts in place of Redis. It sends its replies one after another, and then fails.
type forger struct {
	redistest.Passing
	replies []any
}

var errNoReply = errors.New("no reply is left")

func (f *forger) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		if len(f.replies) == 0 {
			cmd.SetErr(errNoReply)
			return errNoReply
		}
		redistest.Reply(cmd, f.replies[0])
		f.replies = f.replies[1:]
		return cmd.Err()
	}
}

// run carries out an operation with one attempt at each call.
func run[T any](op permit.Op[T]) (T, error) {
	v, err := op.Run(context.Background())
	return v, permit.Failed(op.Name, "limiter", err)
}

// forged returns a limiter whose Redis is the returned forger.
func forged(t *testing.T) (*Limiter, *forger) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	f := &forger{}
	rdb.AddHook(f)
	script := func(name string, keys, args int) *Script {
		return NewScript(dispatch.New(name, "", keys, args), ResendUnsent)
	}
	conn := NewConn(rdb, Config{Scripts: &Scripts{
		Acquire: script("acquire", 3, 7).OptionalArgs(2).RepliesIntegers(), AcquireRest: script("acquire_rest", 3, 12).OptionalArgs(7), AcquireAll: script("acquire_all", 3*OneCallParts, 4+OneCallParts),
		GiveBack: script("give_back", 3, 5), Reserve: script("reserve", 4, 9), Heal: script("heal", 3, 10).OptionalArgs(6),
		TrySetRate: script("try_set_rate", 1, 5), SetRate: script("set_rate", 5, 7), Available: script("available", 3, 5),
		Release: script("release", 3, 4), Delete: script("delete", 7, 0), Expire: script("expire", 5, 3),
		ClearExpire: script("clear_expire", 5, 0), ExpireTime: script("expire_time", 1, 0),
		Rate: script("rate", 1, 0), Exists: script("exists", 1, 0), TTL: script("ttl", 1, 0), Inspect: script("inspect", 3, 3),
	}})
	return &Limiter{Conn: conn, Name: "limiter", Keys: NewKeys("limiter", "id")}, f
}

// list returns a reply of the given numbers.
func list(n ...int64) (r []any) {
	for _, n := range n {
		r = append(r, n)
	}
	return r
}

// named returns a reply of acquire_rest from its text.
func named(text string) []any {
	r := list(statusOK)
	for i, word := range strings.Fields(text) {
		if i%2 == 1 {
			r = append(r, word)
		} else {
			n, _ := strconv.ParseInt(word, 10, 64)
			r = append(r, n)
		}
	}
	return r
}

func batch(runs ...permit.Run) *permit.Batch { return &permit.Batch{ID: permit.ID{1}, Runs: runs} }

// TestForeignReplies checks that a reply that no script makes, from a proxy or from a script replaced on the
// server, is an error that names the limiter. It is never a grant and never causes a panic. Where go-redis cannot read it
// as the integers that acquire replies, the call may have been executed, and acquire_rest follows as a replay.
func TestForeignReplies(t *testing.T) {
	l, f := forged(t)
	ctx := context.Background()
	operations := map[string]func() error{
		"acquire": func() error {
			a, err := l.Acquire(ctx, batch(permit.Run{Permits: 1, Count: 1}))
			require.Empty(t, a.Granted)
			return err
		},
		"acquire of many": func() error {
			_, err := l.Acquire(ctx, batch(permit.Run{Permits: 1, Count: 2}, permit.Run{Permits: 3, Count: 4}))
			return err
		},
		"acquire beside others": func() error {
			b := batch(permit.Run{Permits: 1, Count: 1})
			b.Allowance = permit.Allowance{On: true}
			_, err := l.Acquire(ctx, b)
			return err
		},
		"acquire_all": func() error {
			_, err := l.AcquireAll(ctx, []permit.Part{{Limiter: l, Permits: 1}, {Limiter: l, Permits: 2}}, false)
			return err
		},
		"reserve":      func() error { _, err := l.Reserve(ctx, permit.Reservation{Want: 1}); return err },
		"available":    func() error { _, err := run(l.Available()); return err },
		"release":      func() error { _, err := run(l.Release(1)); return err },
		"set_rate":     func() error { _, err := run(l.SetRate(permit.Rate{}, false, false)); return err },
		"inspect":      func() error { _, err := run(l.Inspect()); return err },
		"heal":         func() error { _, err := run(l.Heal(permit.Overall, permit.Checked)); return err },
		"try_set_rate": func() error { _, err := run(l.TrySetRate(permit.Rate{})); return err },
		"expire":       func() error { _, err := run(l.Expire(1, "", "")); return err },
		"clear_expire": func() error { _, err := run(l.ClearExpire()); return err },
		"expire_time":  func() error { _, err := run(l.ExpireTime()); return err },
		"delete":       func() error { _, err := run(l.Delete()); return err },
		"rate":         func() error { _, err := run(l.Rate()); return err },
		"exists":       func() error { _, err := run(l.Exists()); return err },
		"ttl":          func() error { _, err := run(l.TTL()); return err },
	}
	for name, op := range operations {
		for _, reply := range []any{"OK", nil, 1.5, []any{}, []any{"x"}, []any{nil, int64(1)}, []any{int64(0), "x", "y"}} {
			f.replies = []any{reply}
			err := op()
			require.NotErrorIs(t, err, errNoReply)
			if failure := new(retry.Error); name == "acquire" && errors.As(err, &failure) {
				require.Equal(t, reply == nil, failure.Outcome == retry.Executed, "nil is a reply")
				continue
			}
			require.ErrorContains(t, err, `"limiter"`, "%s was replied %v", name, reply)
		}
	}
	for _, name := range []string{"acquire", "acquire of many", "acquire beside others", "reserve", "available", "inspect", "heal"} {
		for _, reply := range []any{list(0), list(0, 1), list(77), list(4), list(3)} {
			f.replies = []any{reply}
			require.Error(t, operations[name](), "%s was replied %v", name, reply)
		}
	}
	f.replies = []any{list(0, 4, 1000, 10, 2000, 60000, 0, 0, 0)}
	require.ErrorContains(t, operations["acquire"](), "unexpected", "a reply that was read half")
	for _, name := range []string{"acquire", "available", "release", "reserve"} {
		for _, c := range []struct {
			reply []any
			want  error
		}{
			{list(1), permit.ErrNotInitialized}, {list(4), permit.ErrMalformed},
			{list(2, 7), permit.ErrMalformed}, {list(2, -1), permit.ErrMalformed}, {list(2), permit.ErrMalformed},
		} {
			f.replies = []any{c.reply}
			require.ErrorIs(t, operations[name](), c.want, "%s was replied %v", name, c.reply)
		}
		f.replies = []any{list(2, 1), list(2, 0), list(2, 1), list(2, 0)}
		require.ErrorIs(t, operations[name](), permit.ErrConflict, "%s follows three changes of the type", name)
		require.Empty(t, f.replies)
	}
	for _, reply := range []any{list(1), list(2, 1)} {
		f.replies = []any{reply}
		require.NoError(t, operations["heal"](), "the next call will be told")
	}
	f.replies = []any{list(0, 1, 0), list(0, 0, 1)}
	require.NoError(t, operations["release"](), "in two steps")
	require.Empty(t, f.replies)
	// A set that changes every time it is read is left alone.
	f.replies = []any{list(5), list(5), list(5)}
	require.ErrorContains(t, operations["available"](), "faster")
	f.replies = []any{list(5), list(5), list(5)}
	require.NoError(t, operations["heal"]())
	require.Empty(t, f.replies)
}

// TestRepliesToAcquire checks how the replies of acquire are decoded.
func TestRepliesToAcquire(t *testing.T) {
	l, f := forged(t)
	one, two := permit.Run{Permits: 2, Count: 3}, permit.Run{Permits: 5, Count: 1}
	at := time.UnixMilli(1000)
	rate := permit.Rate{Permits: 10, Interval: 2 * time.Second, KeepAlive: time.Minute}
	gap := rate
	gap.MinGap = 7 * time.Millisecond
	for name, c := range map[string]struct {
		runs  []permit.Run
		share bool
		reply []any
		want  reading
	}{
		"all of one run":          {[]permit.Run{one}, false, list(0, 4, 1000, 10, 2000, 60000, -1), reading{permit.Reply{Granted: []int64{3}, Available: 4, Now: at, Rate: rate}, false, false}},
		"all of one run, no TTL":  {[]permit.Run{one}, false, list(0, 4, 1000, 10, 2000, 60000, 0), reading{permit.Reply{Granted: []int64{3}, Available: 4, Now: at, Rate: rate}, true, false}},
		"all of one run, a TTL":   {[]permit.Run{one}, false, list(0, 4, 1000, 10, 2000, 60000, 1), reading{permit.Reply{Granted: []int64{3}, Available: 4, Now: at, Rate: rate}, false, false}},
		"a part, with a wait":     {[]permit.Run{one}, false, list(0, 4, 1000, 10, 2000, 60000, 0, 500, 2), reading{permit.Reply{Granted: []int64{2}, Wait: 500 * time.Millisecond, Available: 4, Now: at, Rate: rate}, true, false}},
		"and another layout":      {[]permit.Run{one}, false, list(0, 4, 1000, 10, 2000, 60000, -1, 1), reading{permit.Reply{Granted: []int64{3}, Available: 4, Now: at, Rate: rate}, false, true}},
		"a part, and another":     {[]permit.Run{one}, false, list(0, 4, 1000, 10, 2000, 60000, 0, 500, 2, 1), reading{permit.Reply{Granted: []int64{2}, Wait: 500 * time.Millisecond, Available: 4, Now: at, Rate: rate}, true, true}},
		"another, of many":        {[]permit.Run{one}, false, named("1000 granted 3 available 4 rate 10 interval 2000 keepAlive 60000 ttl 1 other 1"), reading{permit.Reply{Granted: []int64{3}, Available: 4, Now: at, Rate: rate}, false, true}},
		"the permits exceed":      {[]permit.Run{one, two}, false, list(3, 10), reading{permit.Reply{Granted: []int64{-1, -1}, Rate: permit.Rate{Permits: 10}}, false, false}},
		"a part of one run":       {[]permit.Run{one}, false, named("1000 granted 2 wait 500 available 1 rate 10 interval 2000 keepAlive 60000 minGap 7 ttl 1 skew 9"), reading{permit.Reply{Granted: []int64{2}, Wait: 500 * time.Millisecond, Available: 1, Now: at, Rate: gap, Skew: 9 * time.Millisecond}, false, false}},
		"two runs, one that does": {[]permit.Run{one, two}, false, named("1000 granted -1 granted 1 available 1 rate 10 interval 2000 keepAlive 60000 minGap 7 again 1 walked 512 walkedPermits 77"), reading{permit.Reply{Granted: []int64{-1, 1}, Available: 1, Now: at, Rate: gap, Next: permit.On, Cursor: permit.Cursor{Members: 512, Permits: 77}}, true, false}},
		"heal first":              {[]permit.Run{one}, false, named("1000 granted 0 wait 500 available 1 rate 10 interval 2000 keepAlive 60000 minGap 7 ttl 1 again 2 skew 9"), reading{permit.Reply{Granted: []int64{0}, Wait: 500 * time.Millisecond, Available: 1, Now: at, Rate: gap, Skew: 9 * time.Millisecond, Next: permit.Heal}, false, false}},
		"beside others": {[]permit.Run{one}, true, named("1000 granted 0 wait 500 rate 10 interval 2000 keepAlive 60000 minGap 7 ttl 1 soon 20 found 1 stands 1 mine 4 theirs 5 ours 6 blocked 8 waiting 300 waiting 301"),
			reading{permit.Reply{Granted: []int64{0}, Wait: 500 * time.Millisecond, Now: at, Rate: gap, Others: permit.Others{Soon: 20 * time.Millisecond,
				WireFound: true, WireLeft: true, Mine: 4, Java: 5, Kin: 6, Blocked: 8, Waiting: []int64{300, 301}}}, false, false}},
	} {
		b := batch(c.runs...)
		b.Allowance.On = c.share
		f.replies = []any{c.reply}
		if usual(b) && len(c.reply) > 10 {
			f.replies = []any{list(statusUnusual), c.reply}
		}
		got, err := l.acquire(context.Background(), b, false, false)
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
}

// TestHealedOf checks what replies tell of permits that were healed.
func TestHealedOf(t *testing.T) {
	for name, c := range map[string]struct {
		reply any
		want  permit.Healed
	}{
		"done":        {[]any{int64(0), "marked", int64(4), "restored", int64(10), "lost", int64(3), "surplus", int64(2), "done"}, permit.Healed{Value: 10, Lost: 3, Surplus: 2, Clock: 4}},
		"goes on":     {[]any{int64(0), "marked", int64(4), "surplus", int64(2), "next", int64(1)}, permit.Healed{Clock: 4, Surplus: 2}},
		"starts over": {list(5), permit.Healed{}},
		"not numbers": {[]any{"", int64(1), int64(4)}, permit.Healed{}},
		"no list":     {int64(4), permit.Healed{}},
	} {
		require.Equal(t, c.want, healedOf(c.reply), name)
	}
}

// TestRepliesAtRandom checks that no reply causes a panic or grants more than was asked for, whatever numbers it
// contains.
func TestRepliesAtRandom(t *testing.T) {
	l, _ := forged(t)
	number := rapid.OneOf(rapid.Int64Range(-2, 20), rapid.SampledFrom([]int64{1 << 31, 1 << 32, 1 << 61, 1 << 62, -1 << 63, 1<<63 - 1}))
	rapid.Check(t, func(rt *rapid.T) {
		b := batch()
		for range rapid.IntRange(1, 4).Draw(rt, "runs") {
			b.Runs = append(b.Runs, permit.Run{Permits: 1, Count: rapid.Int64Range(1, 5).Draw(rt, "count")})
		}
		b.Allowance.On = rapid.Bool().Draw(rt, "beside others")
		n := rapid.IntRange(1, 20).Draw(rt, "numbers")
		reply := list(rapid.SliceOfN(number, n, n).Draw(rt, "reply")...)
		if rapid.Bool().Draw(rt, "status OK") {
			reply[0] = int64(0)
		}
		pairs := slices.Clone(reply[:min(2, n)])
		for range rapid.IntRange(0, 6).Draw(rt, "names") {
			pairs = append(pairs, rapid.SampledFrom([]string{"granted", "rate", "interval", "wait", "again", "waiting", "other", "unknown"}).Draw(rt, "name"), number.Draw(rt, "of it"))
		}
		a, err := l.readRest(b, l.Scripts.AcquireRest, pairs)
		if u, ok := l.readUsual(b, slices.Clone(reply)); ok {
			a, err = u, nil
			a.Granted = append(a.Granted, make([]int64, len(b.Runs)-1)...) // of one run only
		}
		if err == nil {
			require.Len(rt, a.Granted, len(b.Runs))
			for i, g := range a.Granted {
				require.True(rt, -1 <= g && g <= b.Runs[i].Count)
			}
		}
		parts := []permit.Part{{Limiter: l, Permits: 1}, {Limiter: l, Permits: 2}}
		rejected, err := l.readAcquireAll(parts, slices.Clone(reply))
		for _, i := range rejected {
			require.True(rt, err == nil && 0 <= i && i < len(parts))
		}
	})
}

// TestAcquireCommand checks that a Limiter sends each argument in its place, as docs/design/protocol.md describes.
func TestAcquireCommand(t *testing.T) {
	l, _ := forged(t)
	l.tag, l.KeyTTL = 0x1234, time.Hour
	id := permit.ID{0x12, 0x34, 3, 4, 5, 6, 7, 0, 9, 10, 11, 12, 13, 14, 15, 16}
	member := Member(l.LongLength, id, 6)
	one := permit.Run{Permits: 2, Count: 3}
	for name, c := range map[string]struct {
		b    permit.Batch
		want []any // the arguments that follow the keys
	}{
		"plain":       {permit.Batch{}, []any{"0", int64(2), int64(3), member, ""}},
		"a replay":    {permit.Batch{Replay: true}, []any{"0", int64(2), int64(3), member, "replay "}},
		"all flags":   {permit.Batch{Replay: true, Check: permit.Checked, Healed: true, InOrder: true, DryRun: true}, []any{"0", int64(2), int64(3), member, "replay check healed order dry "}},
		"PER_CLIENT":  {permit.Batch{Type: permit.PerClient}, []any{"1", int64(2), int64(3), member, "", "", "", int64(3600000), "", "", int64(0), ""}},
		"dated back":  {permit.Batch{At: time.UnixMilli(77)}, []any{"0", int64(2), int64(3), member, "", int64(77), "", int64(3600000), "", "", int64(0), ""}},
		"a walk":      {permit.Batch{Cursor: permit.Cursor{Members: 512, Permits: 700}}, []any{"0", int64(2), int64(3), member, "", "", "", int64(3600000), "512 700", "", int64(0), ""}},
		"more runs":   {permit.Batch{Runs: []permit.Run{one, {Permits: 2, Count: 40}, {Permits: 1, Count: 1}}}, []any{"0", int64(2), int64(3), member, "", "", "2 40 1 1 ", int64(3600000), "", "", int64(0), ""}},
		"with others": {permit.Batch{Allowance: permit.Allowance{On: true, Grace: 120 * time.Millisecond, May: 4, Survey: true, Waiting: 7}}, []any{"0", int64(2), int64(3), member, "", "", "", int64(3600000), "", "120 4 4660 1 7", int64(0), ""}},
		"a note":      {permit.Batch{Allowance: permit.Allowance{Waiting: 7, NoteFor: 4 * time.Second}}, []any{"0", int64(2), int64(3), member, "", "", "", int64(3600000), "", "", int64(0), "1234 7 4000 "}},
		"of a client": {permit.Batch{Type: permit.PerClient, Floor: 5, Allowance: permit.Allowance{Waiting: 7, NoteFor: 4 * time.Second}}, []any{"1", int64(2), int64(3), member, "", "", "", int64(3600000), "", "0 0 65536 0 0", int64(5), "1234.5 7 4000 id"}},
		"a floor":     {permit.Batch{Floor: 5, Allowance: permit.Allowance{On: true}}, []any{"0", int64(2), int64(3), member, "", "", "", int64(3600000), "", "0 0 65536 0 0", int64(5), ""}},
	} {
		b := c.b
		if b.ID = id; b.Runs == nil {
			b.Runs = []permit.Run{one}
		}
		cmd, err := l.acquireCommand(&b)
		require.NoError(t, err, name)
		require.Equal(t, []any{"evalsha", l.Scripts.AcquireRest.Sha, 3}, cmd[:3], name)
		for i, key := range l.Keys.Of(b.Type) {
			require.Equal(t, key, cmd[3+i], name)
		}
		require.Equal(t, c.want, said(cmd[6:]), name)
	}
	l.SharedClock = true
	cmd, err := l.acquireCommand(&permit.Batch{ID: id, Runs: []permit.Run{{Permits: 1 << 31, Count: 4}}})
	require.NoError(t, err)
	require.Equal(t, []any{"0", int64(1 << 31), int64(4), Member(l.LongLength, id, permit.Max), "mark "}, said(cmd[6:]), "a member holds no more")
}

// said returns args with their words as a string.
func said(args []any) []any {
	words, _ := args[4].([]byte)
	args[4] = string(words)
	return args
}

// TestUsualCommand checks which calls go to acquire, and what it is sent.
func TestUsualCommand(t *testing.T) {
	l, _ := forged(t)
	l.KeyTTL = time.Hour
	run := []permit.Run{{Permits: 2, Count: 3}}
	member := Member(l.LongLength, permit.ID{}, 6)
	for _, c := range []struct {
		b     permit.Batch
		noTTL bool
		want  []any
	}{
		{permit.Batch{Runs: run, InOrder: true, Alone: true}, false, []any{"0", int64(2), int64(3), member, 0}},
		{permit.Batch{Runs: run, Allowance: permit.Allowance{Waiting: 3, NoteFor: 1}}, true, []any{"0", int64(2), int64(3), member, 1}},
		{permit.Batch{Runs: run, Type: permit.PerClient}, false, []any{"1", int64(2), int64(3), member, 0, "", int64(3600000)}},
	} {
		require.True(t, usual(&c.b))
		cmd, err := l.usualCommand(&c.b, c.noTTL)
		require.NoError(t, err)
		require.Equal(t, []any{"evalsha", l.Scripts.Acquire.Sha, 3}, cmd[:3])
		require.Equal(t, c.want, cmd[6:])
	}
	for _, b := range []permit.Batch{
		{Runs: append(run, run...)}, {Runs: []permit.Run{{Permits: permit.Max, Count: 2}}}, {Runs: run, Replay: true},
		{Runs: run, Check: permit.Checked}, {Runs: run, DryRun: true}, {Runs: run, At: time.UnixMilli(1)},
		{Runs: run, Cursor: permit.Cursor{Members: 1}}, {Runs: run, Allowance: permit.Allowance{On: true}}, {Runs: run, Floor: 1},
		{Runs: run, Type: permit.PerClient, Allowance: permit.Allowance{NoteFor: 1}},
	} {
		require.False(t, usual(&b), "%+v", b)
	}
}

// TestNotesOfAPerClientLimiter: a process notes who waits for a PER_CLIENT limiter once a second at most, since acquire does not note it.
func TestNotesOfAPerClientLimiter(t *testing.T) {
	begin := time.Now()
	for typ, want := range map[permit.Type][]bool{permit.Overall: {true, true, true, true}, permit.PerClient: {true, false, false, true}} {
		h := &hints{typ: typ}
		for i, at := range []time.Duration{0, time.Millisecond, 999 * time.Millisecond, time.Second} {
			b := permit.Batch{Runs: []permit.Run{{Permits: 1, Count: 1}}, Allowance: permit.Allowance{Waiting: 1, NoteFor: time.Second}}
			lower := b
			lower.Floor = 1
			h.prepare(&lower, begin.Add(at))
			require.Positive(t, lower.Allowance.NoteFor, "a lower class, whose queue is another one, %v after %v", typ, at)
			h.prepare(&b, begin.Add(at))
			require.Equal(t, want[i], b.Allowance.NoteFor > 0, "%v after %v", typ, at)
		}
	}
}
