// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/ops/doctor"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/wire"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A sickbed is a limiter of 10 permits in an hour with four grants of Go, two of one permit and two of two.
type sickbed struct {
	*live
	name   string
	client string // of a PER_CLIENT limiter
	used   int64
	inUse  int64 // permits that are in use, whatever the keys say
	all    bool  // look at all limiters of that name

	lenient bool // commands that break the limiter may fail
}

func (b *sickbed) key(i int) string {
	typ := ratelimiter.Overall
	if b.client != "" {
		typ = ratelimiter.PerClient
	}
	k := redisson.NewKeys(b.name, b.client)
	return [3]string{k.Hash, k.Value[typ], k.Permits[typ]}[i]
}

func (b *sickbed) do(args ...any) {
	b.Helper()
	if err := b.rdb.Do(b.Context(), args...).Err(); !b.lenient {
		require.NoError(b, err, args)
	}
}

// java is what Redisson does to a limiter when somebody asks for one permit, as docs/design/protocol.md describes it.
func (b *sickbed) java() (granted bool, err error) {
	ctx, rdb := b.Context(), b.rdb
	conf, err := rdb.HMGet(ctx, b.name, "rate", "interval", "type").Result()
	if err != nil {
		return false, err
	}
	if slices.Contains(conf, nil) {
		return false, errors.New("RateLimiter is not initialized")
	}
	var rate, interval int64
	if _, err := fmt.Sscan(fmt.Sprint(conf[0], " ", conf[1]), &rate, &interval); err != nil {
		return false, err
	}
	now := rdb.Time(ctx).Val().UnixMilli()
	stored, err := rdb.Get(ctx, b.key(1)).Int64()
	value := stored
	if errors.Is(err, redis.Nil) {
		value = rate
	} else if err != nil {
		return false, err
	}
	old, err := rdb.ZRangeByScore(ctx, b.key(2), &redis.ZRangeBy{Min: "0", Max: fmt.Sprint(now - interval)}).Result()
	if err != nil {
		return false, err
	}
	for _, raw := range old {
		m, _ := wire.ParseMember([]byte(raw))
		value += int64(m.Permits)
		b.do("zrem", b.key(2), raw)
	}
	if granted = value >= 1; granted {
		value--
		b.do("zadd", b.key(2), now, fmt.Sprintf("\x10java\x01\x00\x00\x00%08d\x01\x00\x00\x00", value+1_000_000))
	} else if rdb.ZCard(ctx, b.key(2)).Val() == 0 {
		return false, errors.New("attempt to perform arithmetic on a nil value")
	}
	b.do("incrby", b.key(1), value-stored)
	return granted, nil
}

// words splits a command as a shell does that is given what doctor.Shell prints.
func words(t *testing.T, command string) (list []string) {
	for rest := command; rest != ""; {
		word, quoted := "", false
		for rest != "" && (quoted || rest[0] != ' ') {
			switch {
			case rest[0] == '\'':
				quoted = !quoted
			case rest[0] == '\\' && !quoted:
				rest = rest[1:]
				fallthrough
			default:
				word += rest[:1]
			}
			rest = rest[1:]
		}
		require.False(t, quoted, command)
		list, rest = append(list, word), strings.TrimLeft(rest, " ")
	}
	return list
}

// An advised is a finding with the commands that its advice has, as they are in JSON.
type advised struct {
	Check, Severity, Client, Found, Fix string
	Commands                            []string
	Then, Alternatives                  []advisedStep
}

type advisedStep struct {
	If       string
	AfterMS  int64 `json:"after_ms"`
	Commands []string
	Then     []advisedStep
}

// follow does what a finding says, and chooses that alternative where there are some.
func (b *sickbed) follow(f advised, choice int) {
	b.Helper()
	require.True(b, len(f.Commands) > 0 || len(f.Then) > 0 || choice < len(f.Alternatives), f.Fix)
	b.script(f.Commands, true)
	steps := f.Then
	if choice < len(f.Alternatives) {
		steps = append(append(steps, f.Alternatives[choice]), f.Alternatives[choice].Then...)
	}
	for _, s := range steps {
		require.Less(b, s.AfterMS, int64(1000))
		time.Sleep(time.Duration(s.AfterMS) * time.Millisecond)
		b.script(s.Commands, true)
	}
}

// script runs commands as a shell does that was given all of them, and goes on if one fails. If all must succeed, N and D are
// filled in.
func (b *sickbed) script(list []string, all bool) {
	b.Helper()
	for _, c := range list {
		if all {
			c = strings.NewReplacer(" N ", " 10 ", " D ", " 1h ").Replace(c)
		}
		args := words(b.T, c)
		switch {
		case args[0] != "rrl":
			var cmd []any
			require.Equal(b, []string{"-h", "-p", "-n"}, []string{args[1], args[3], args[5]}, "the Redis") // TestCommandsReachTheirRedis runs it
			for _, a := range args[7:] {
				cmd = append(cmd, a)
			}
			if err := b.rdb.Do(b.Context(), cmd...).Err(); all && !errors.Is(err, redis.Nil) {
				require.NoError(b, err, c)
			}
		case all:
			b.ok(args[1:]...)
		default:
			b.run(args[1:]...)
		}
	}
}

// findings are what the doctor has advice for.
func (b *sickbed) findings() (list []advised) {
	b.Helper()
	args := []string{"doctor", b.name, "--json", "--sample", "0"}
	if b.all { // what only a look at all keys finds
		args = []string{"doctor", "--match", redisson.EscapePattern(b.name), "--json"}
	}
	_, out, _ := b.run(args...)
	r := values[struct {
		Findings []advised
		Skipped  []doctor.Skip
	}](b.T, out)[0]
	require.False(b, slices.ContainsFunc(r.Skipped, func(s doctor.Skip) bool { return !s.Minor || !b.all }), "%v", r.Skipped) // minor: the embedded server has no CONFIG
	for _, f := range r.Findings {
		conditions := map[string]bool{}
		for _, a := range f.Alternatives {
			require.False(b, conditions[a.If], "two alternatives with one condition: %+v", f)
			conditions[a.If] = true
		}
		if f.Severity != "info" || slices.Contains([]string{"ttl", "cool-down", "remains"}, f.Check) {
			list = append(list, f)
		}
	}
	return list
}

// A harm is a state in which the doctor has advice.
type harm struct {
	harm  func(*sickbed)
	check string
	found string
	s     doctor.Severity
}

// harmsOfLimiters returns the states that the doctor knows a command for.
func harmsOfLimiters() map[string]harm {
	hset := func(pairs ...any) func(*sickbed) {
		return func(b *sickbed) { b.do(append([]any{"hset", b.name}, pairs...)...) }
	}
	hdel := func(fields ...any) func(*sickbed) {
		return func(b *sickbed) { b.do(append([]any{"hdel", b.name}, fields...)...) }
	}
	value := func(v any) func(*sickbed) { return func(b *sickbed) { b.do("set", b.key(1), v) } }
	wrong := func(i int) func(*sickbed) {
		return func(b *sickbed) {
			b.do("del", b.key(i))
			b.do("rpush", b.key(i), "x")
		}
	}
	expire := func(i int, d time.Duration) func(*sickbed) {
		return func(b *sickbed) { b.do("pexpire", b.key(i), d.Milliseconds()) }
	}
	both := func(list ...func(*sickbed)) func(*sickbed) {
		return func(b *sickbed) {
			for _, f := range list {
				f(b)
			}
		}
	}
	forgotten := func(b *sickbed) {
		b.do("del", b.key(2))
		b.used = 0
	}
	surplus := func(used, left int64) func(*sickbed) {
		return func(b *sickbed) {
			b.do("del", b.key(2))
			b.do("zadd", b.key(2), b.rdb.Time(b.Context()).Val().UnixMilli(), redisson.Member(false, redisson.RandomID(), uint32(used)))
			b.do("set", b.key(1), left)
			b.used = used
		}
	}
	return map[string]harm{
		"stuck":                               {both(value(0), forgotten), "stuck", "0 of 10 permits left", doctor.Critical},
		"stuck in part":                       {both(value(4), forgotten), "stuck", "4 of 10 permits left", doctor.Warning},
		"lost":                                {value(1), "lost", "1 left and 6 in the set", doctor.Warning},
		"no value":                            {func(b *sickbed) { b.do("del", b.key(1)) }, "value", "there is no value, with 6 of 10 permits in use", doctor.Critical},
		"no number":                           {value("many"), "value", `the value is "many"`, doctor.Critical},
		"wrong hash":                          {wrong(0), "wrong-type", "is a list, not a hash", doctor.Critical},
		"wrong value":                         {wrong(1), "wrong-type", "is a list, not a string", doctor.Critical},
		"wrong permits":                       {both(hset("interval", 300), wrong(2), func(b *sickbed) { b.used = 0 }), "wrong-type", "is a list, not a zset", doctor.Critical},
		"no rate":                             {hdel("rate"), "malformed", "the hash has no rate", doctor.Critical},
		"no interval":                         {hdel("interval"), "malformed", "the hash has no interval", doctor.Critical},
		"no type":                             {hdel("type"), "malformed", "the hash has no type", doctor.Critical},
		"no type, short keep-alive":           {both(hdel("type"), hset("keepAliveTime", 1000)), "malformed", "the hash has no type", doctor.Critical},
		"a keep-alive alone":                  {hdel("rate", "interval", "type"), "malformed", "the hash has no rate, interval, type", doctor.Critical},
		"rate 0":                              {hset("rate", 0), "malformed", `rate is "0"`, doctor.Critical},
		"interval -1":                         {hset("interval", -1), "malformed", `interval is "-1"`, doctor.Critical},
		"type 7":                              {hset("type", 7), "malformed", `type is "7"`, doctor.Critical},
		"type 7, rate x":                      {hset("type", 7, "rate", "x"), "malformed", `type is "7"`, doctor.Critical},
		"keep-alive 1.5":                      {hset("keepAliveTime", "1.5"), "malformed", `keepAliveTime is "1.5"`, doctor.Critical},
		"keep-alive of bytes":                 {hset("keepAliveTime", "a\x00b"), "malformed", `keepAliveTime is "a\x00b"`, doctor.Critical},
		"no hash":                             {func(b *sickbed) { b.do("del", b.name) }, "remains", "there is no hash", doctor.Warning},
		"no hash, with TTLs":                  {both(func(b *sickbed) { b.do("del", b.name) }, expire(1, time.Hour), expire(2, time.Hour)), "remains", "there is no hash", doctor.Info},
		"short hash":                          {expire(0, time.Minute), "ttl", "the limiter expires in", doctor.Warning},
		"short grants":                        {expire(2, time.Minute), "ttl", "the grants expire in", doctor.Warning},
		"short value":                         {expire(1, time.Minute), "ttl", "the value expires in", doctor.Warning},
		"short grants of a hash that expires": {both(expire(0, 2*time.Hour), expire(1, 2*time.Hour), expire(2, time.Minute)), "ttl", "the grants expire in", doctor.Warning},
		"value forever":                       {both(expire(0, 2*time.Hour), expire(2, 2*time.Hour), func(b *sickbed) { b.do("persist", b.key(1)) }), "ttl", "the value has no TTL", doctor.Info},
		"short keep-alive":                    {hset("keepAliveTime", 1000), "ttl", "the keep-alive of 1s is shorter", doctor.Warning},
		"cool-down": {func(b *sickbed) {
			b.ok(slices.DeleteFunc([]string{"cool-down", b.name, "--for=1h", "--write", "--client=" + b.client}, func(s string) bool { return s == "--client=" })...)
		}, "cool-down", "a cool-down for another", doctor.Info},
		"surplus, 10 in use, 500 left": {surplus(10, 500), "surplus", "permit", doctor.Warning},
		"surplus, 4 in use, 11 left":   {surplus(4, 11), "surplus", "permit", doctor.Warning},
		"surplus, 4 in use, 14 left":   {surplus(4, 14), "surplus", "permit", doctor.Warning},
		"surplus, 4 in use, 16 left":   {surplus(4, 16), "surplus", "permit", doctor.Warning},
		"surplus, 4 in use, 20 left":   {surplus(4, 20), "surplus", "permit", doctor.Warning},
		"surplus, 10 in use, 10 left":  {surplus(10, 10), "surplus", "permit", doctor.Warning},
		"surplus, 10 in use, 5 left":   {surplus(10, 5), "surplus", "permit", doctor.Warning},
		"surplus, 4 in use, 8 left":    {surplus(4, 8), "surplus", "permit", doctor.Warning},
		"other type": {func(b *sickbed) {
			other := redisson.NewKeys(b.name, "other")
			typ := ratelimiter.PerClient
			if b.client != "" {
				typ = ratelimiter.Overall
			}
			b.do("set", other.Value[typ], 3)
			b.do("zadd", other.Permits[typ], time.Now().Add(-2*time.Hour).UnixMilli(), redisson.Member(false, redisson.RandomID(), 7))
		}, "other-type", "are left", doctor.Warning},
	}
}

// TestAdvice puts a limiter into each state that the doctor knows a command for, runs the commands as they are printed, and
// asks for permits in the same window, as Go and as Java: no more are granted than the rate, Java does not fail, and the
// doctor finds nothing any more.
func TestAdvice(t *testing.T) {
	for what, c := range harmsOfLimiters() {
		for _, of := range []struct{ who, client string }{{"Go", ""}, {"Java", ""}, {"Java", "5ad5e3a7-8b4a-4b0e-9c5f-3d2c7f1e6a90"}, {"Go", "-c d"}} {
			t.Run(strings.Join([]string{what, of.who, of.client}, " "), func(t *testing.T) {
				b := newSickbed(t, of.client)
				b.all = c.check == "other-type"
				c.harm(b)
				grantless := strings.HasPrefix(what, "stuck") || what == "wrong permits"
				// One finding may hide another, as a type that is none hides what else is wrong.
				for n := 0; ; n++ {
					list := b.findings()
					if len(list) == 0 {
						if of.client == "-c d" && grantless {
							return // a number without grants, under a name that no client draws, may be anybody's
						}
						require.Positive(t, n)
						break
					}
					require.Less(t, n, 3, "%+v", list)
					if n == 0 {
						require.Equal(t, c.check, list[0].Check, "%+v", list)
						require.Contains(t, list[0].Found, c.found)
						require.True(t, c.check != "wrong-type" || len(list) == 1, "what cannot be known of keys that hold something else: %+v", list)
						if c.check != "remains" || of.client == "" { // the keys of a client have a TTL
							require.Equal(t, c.s.String(), list[0].Severity)
						}
					}
					b.follow(list[0], 0)
				}
				b.requireHealed(of.who, c.check == "cool-down" && of.who == "Java") // its client keeps its blocks until Go meets them
			})
		}
	}
}

// newSickbed makes a limiter that is healthy.
func newSickbed(t *testing.T, client string) *sickbed {
	b := &sickbed{live: newLive(t), client: client, used: 6, inUse: 6}
	b.name = b.base + " it's"
	t.Cleanup(func() {
		b.rdb.Del(context.Background(), b.rdb.Keys(context.Background(), "*"+b.base+"*").Val()...)
	})
	l, end := b.limiter()
	defer end()
	rate := ratelimiter.Rate{Permits: 10, Interval: time.Hour}
	if client != "" {
		rate.Type = ratelimiter.PerClient
	}
	require.NoError(t, l.SetRate(t.Context(), rate))
	for _, n := range []int64{1, 1, 2, 2} {
		require.NoError(t, l.Acquire(t.Context(), n))
	}
	return b
}

func (b *sickbed) limiter() (l *ratelimiter.RateLimiter, end func()) {
	var opts []ratelimiter.Option
	if b.client != "" {
		opts = append(opts, ratelimiter.WithClientID(b.client))
	}
	one := clienttest.New(b, b.rdb, opts...)
	return one.RateLimiter(b.name), func() { _ = one.Close() }
}

// requireHealed checks that who asks gets the permits that the rate has beside those in use, or fewer, and no more.
func (b *sickbed) requireHealed(who string, fewer bool) {
	b.Helper()
	if ttl := b.rdb.PTTL(b.Context(), b.name).Val(); ttl > 0 {
		for i := range 2 {
			left := b.rdb.PTTL(b.Context(), b.key(i+1)).Val()
			require.True(b, left > 0 || left == -2, "what the limiter leaves behind goes with it")
		}
	}
	l, end := b.limiter()
	defer end()
	now := redistest.Must(l.Rate(b.Context()))(b)
	require.EqualValues(b, 10, now.Permits)
	granted := b.used
	for range 12 {
		var ok bool
		if who == "Go" {
			ok = redistest.Must(l.Allow(b.Context(), 1))(b).Granted
		} else {
			ok = redistest.Must(b.java())(b)
		}
		if ok {
			granted++
		}
	}
	if now.Interval < time.Second {
		return // more than one window
	}
	require.LessOrEqual(redistest.Final(b.T), granted, int64(10))
	require.True(b, fewer || granted == 10, "%d granted", granted)
}
