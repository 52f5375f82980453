// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/wire"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// A ward is one limiter whose keys a test puts into a state.
type ward struct {
	*testing.T
	ctx  context.Context
	rdb  *redis.Client
	name string
	now  time.Time
}

func newWard(t *testing.T) *ward {
	rdb := redistest.Client(t)
	return &ward{t, t.Context(), rdb, redistest.Key(t), rdb.Time(t.Context()).Val()}
}

func (w *ward) key(suffix string) string { return redisson.Suffixed(w.name, suffix) }

// An act changes the keys of the limiter.
type act func(w *ward)

func (w *ward) do(acts ...act) {
	w.Helper()
	for _, a := range acts {
		a(w)
	}
}

func redisDo(args ...any) act {
	return func(w *ward) {
		w.Helper()
		require.NoError(w, w.rdb.Do(w.ctx, args...).Err())
	}
}

func hash(pairs ...any) act {
	return func(w *ward) { w.do(redisDo(append([]any{"hset", w.name}, pairs...)...)) }
}

func unset(field string) act { return func(w *ward) { w.do(redisDo("hdel", w.name, field)) } }

// rate sets the hash of a limiter of 10 permits in a minute.
func rate(typ int) act { return hash("rate", 10, "interval", 60_000, "type", typ, "keepAliveTime", 0) }

func value(v any) act { return valueOf("", v) }

func valueOf(client string, v any) act {
	return func(w *ward) { w.do(redisDo("set", w.key("value")+client, v)) }
}

// grant adds a grant of the age.
func grant(permits uint32, age time.Duration) act { return grantOf("", permits, age) }

func grantOf(client string, permits uint32, age time.Duration) act {
	return member(client, redisson.Member(false, redisson.RandomID(), permits), age)
}

// markedGrant adds a grant of the age that Go has met that long ago, and has marked.
func markedGrant(permits byte, age, seen time.Duration) act {
	return func(w *ward) {
		p := string([]byte{permits, 0, 0, 0})
		at := binary.BigEndian.AppendUint64(nil, uint64(w.now.Add(-seen).UnixMilli()))
		w.do(member("", []byte("\x10~t~"+p+string(at[2:])+"abc"+p), age))
	}
}

func redisKey(command, suffix string) act {
	return func(w *ward) { w.do(redisDo(command, w.key(suffix))) }
}

func member(client string, raw []byte, age time.Duration) act {
	return func(w *ward) {
		w.do(redisDo("zadd", w.key("permits")+client, w.now.Add(-age).UnixMilli(), raw))
	}
}

// grants adds n grants of one permit each.
func grants(n int, age time.Duration) act {
	return func(w *ward) {
		zs := make([]redis.Z, n)
		for i := range zs {
			zs[i] = redis.Z{Score: float64(w.now.Add(-age).UnixMilli()), Member: redisson.Member(false, redisson.RandomID(), 1)}
		}
		require.NoError(w, w.rdb.ZAdd(w.ctx, w.key("permits"), zs...).Err())
	}
}

// expire sets the TTL of the hash, or of the key with a suffix.
func expire(suffix string, d time.Duration) act {
	return func(w *ward) {
		key := w.name
		if suffix != "" {
			key = w.key(suffix)
		}
		w.do(redisDo("pexpire", key, d.Milliseconds()))
	}
}

// findings returns what the doctor finds above Info, and the Info findings of those checks.
func (w *ward) findings(checks ...string) []Finding {
	w.Helper()
	d := &Doctor{Survey: survey.New(w.rdb)}
	var r *Report
	if slices.Contains(checks, "other-type") { // only a look at all limiters finds the clients of one that has none
		r = redistest.Must(d.All(w.ctx, survey.Query{Match: w.name}, 10, nil))(w)
	} else {
		r = redistest.Must(d.Limiter(w.ctx, w.name))(w)
	}
	require.Empty(w, r.Skipped)
	var list []Finding
	for _, f := range r.Findings {
		require.NotEmpty(w, f.Means)
		require.NotEmpty(w, f.Java)
		require.NotEmpty(w, f.Go)
		require.Equal(w, w.name, f.Limiter)
		if f.Severity > Info || slices.Contains(checks, f.Check) {
			list = append(list, f)
		}
	}
	return list
}

// finds checks that there is one finding, of that check and severity, of which what is found, the fix and what it means to Java
// match a pattern, in which NAME is the limiter's.
func (w *ward) finds(check string, s Severity, pattern string) {
	w.Helper()
	list := w.findings(check)
	require.Len(w, list, 1, "%+v", list)
	f := list[0]
	require.Equal(w, check+" "+s.String(), f.Check+" "+f.Severity.String())
	require.Regexp(w, "(?s)"+strings.ReplaceAll(pattern, "NAME", regexp.QuoteMeta(w.name)+"(?: --redis redis://[0-9.:]+/0 --user default)?"), strings.Join([]string{f.Found, f.Fix, f.Java}, "\n"))
}

// java returns a member of each layout of Redisson.
func java(permits byte) map[wire.Layout][]byte {
	tail := string([]byte{permits, 0, 0, 0})
	return map[wire.Layout][]byte{
		wire.LayoutFI:        []byte("\x01\x02\x03\x04" + tail),
		wire.LayoutLc0I:      []byte("\x08\x00\x00\x00\x00\x00\x00\x00abcdefgh" + tail),
		wire.LayoutBc0IShort: []byte("\x08abcdefgh" + tail),
		wire.LayoutBc0ILong:  []byte("\x10abcdefghabcdefgh" + tail),
	}
}

// TestHealthyLimitersAreSilent examines limiters as the package itself leaves them, in all the states that it has.
func TestHealthyLimitersAreSilent(t *testing.T) {
	w := newWard(t)
	client := clienttest.New(t, w.rdb)
	defer client.Close()
	for i, rate := range []ratelimiter.Rate{
		{Permits: 3, Interval: time.Hour},
		{Permits: 3, Interval: time.Hour, KeepAlive: time.Hour},
		{Permits: 3, Interval: time.Hour, MinGap: time.Millisecond},
		{Permits: 3, Interval: time.Hour, Type: ratelimiter.PerClient},
		{Permits: 3, Interval: 20 * time.Millisecond},
		{Permits: 5000, Interval: time.Hour},
	} {
		w.name = redistest.Key(t)
		l := client.RateLimiter(w.name)
		require.NoError(t, l.SetRate(w.ctx, rate))
		require.Empty(t, w.findings(), "%d: fresh", i)
		for range 3 {
			redistest.Must(l.TryAcquire(w.ctx, rate.Permits/3, time.Second))(t)
		}
		require.Empty(t, w.findings(), "%d: used", i)
		redistest.Must(l.Allow(w.ctx, 3))(t)
		require.Empty(t, w.findings(), "%d: rejected", i)
		require.NoError(t, l.Release(w.ctx, 1))
		require.Empty(t, w.findings(), "%d: released", i)
		require.NoError(t, l.CoolDown(w.ctx, time.Now().Add(2*time.Hour), ratelimiter.Reopen(time.Hour)))
		require.Empty(t, w.findings(), "%d: cooling down", i)
		redistest.Must(l.Allow(w.ctx, 1))(t)
		redistest.Must(l.Admin().LiftCoolDown(w.ctx))(t)
		require.Empty(t, w.findings(), "%d: lifted", i)
	}
}

// While callers wait there is a tripwire in the set, and value may be below 0.
func TestWaitingCallersAreSilent(t *testing.T) {
	w := newWard(t)
	client := clienttest.New(t, w.rdb)
	l := client.RateLimiter(w.name)
	require.NoError(t, l.SetRate(w.ctx, ratelimiter.Rate{Permits: 2, Interval: time.Hour}))
	require.NoError(t, l.Acquire(w.ctx, 2))
	go func() { _, _ = l.TryAcquire(w.ctx, 1, time.Minute) }()
	require.Eventually(t, func() bool { return w.rdb.Get(w.ctx, w.key("value")).Val() == "-1" }, time.Minute, time.Millisecond)
	require.Empty(t, w.findings())
	require.NoError(t, client.Close())
	require.Empty(t, w.findings())
}

// A look is what the doctor finds after some acts: nothing at all, or nothing of a check, if found is empty.
type look struct {
	acts  []act
	check string
	s     Severity
	found string
}

// TestStates changes limiters step by step, and looks at each state; TestAdvice of rrl has those that are malformed.
func TestStates(t *testing.T) {
	const s, m, h = time.Second, time.Minute, time.Hour
	type acts = []act
	healthy := look{}
	then := func(l look, a ...act) look { l.acts = a; return l }
	for name, looks := range map[string][]look{
		"stuck": {
			{acts{rate(0), value(0)}, "stuck", Critical, "0 of 10 permits left, and none in use.*rrl heal NAME --write.*arithmetic on a nil value"},
			{acts{value(4)}, "stuck", Warning, "4 of 10 permits left, and none in use"},
			{acts{grant(3, h)}, "stuck", Warning, "7 of 10"}, // what has expired comes back, and is not enough
			then(healthy, grant(3, 2*h)),
		},
		"balance": {
			{acts{rate(0), value(5), grant(3, s)}, "lost", Warning, "5 left and 3 in the set make 8 permits, 2 less than the rate of 10"},
			then(healthy, grant(1, h), grant(1, s)),
			{acts{grant(4, 2*s)}, "surplus", Warning, "5 left and 9 in the set make 14 permits, 4 more than the rate of 10"},
		},
		"a large set is added up in steps": {
			then(healthy, hash("rate", 5000, "interval", 60_000, "type", 0), grants(3000, 0), value(2000)),
			{acts{value(1999)}, "lost", Warning, "1999 left and 3000 in the set make 4999 permits, 1 less than the rate of 5000"},
		},
		"value": {
			{acts{rate(0), grant(3, s)}, "value", Critical, "there is no value, with 3 of 10 permits in use"},
			{acts{value("099")}, "value", Critical, `the value is "099"`},
			{acts{value("many")}, "value", Critical, `the value is "many"`},
			{acts{value("5.0")}, "value", Critical, `the value is "5.0"`},
			{acts{value("-0")}, "value", Critical, `the value is "-0"`},
			{acts{value("")}, "value", Critical, `the value is ""`},
			then(healthy, value(7)),
		},
		"shared keys": {
			then(healthy, rate(0)),
			{acts{func(w *ward) { w.name = "{" + w.name + "}" }, rate(0)}, "shared-keys", Critical, `has the same keys`},
			{acts{func(w *ward) { w.name = strings.Trim(w.name, "{}") }}, "shared-keys", Critical, `the limiter "{NAME}" has the same keys`},
		},
		"writers": {
			{acts{hash("rate", 10, "interval", 60_000, "type", 0), member("", java(1)[wire.LayoutBc0IShort], s), member("", java(1)[wire.LayoutBc0ILong], s), value(8)},
				"writers", Info, "1 by Redisson 3.17.0 to 3.20; 1 by Redisson 3.21.0 and later; the hash by Redisson before 3.38.0"},
			{acts{hash("keepAliveTime", 0)}, "writers", Info, "the hash by Redisson 3.38.0 or later, or Go"},
			{acts{markedGrant(1, s, 20*s), value(7)}, "writers", Info, "1 by Redisson 3.21.0 and later; 1 by somebody whose clock is fast; the hash"},
		},
		"TTL": {
			{acts{rate(0), value(9), grant(1, 0), expire("", 20*s)}, "ttl", Warning, "the limiter expires in.*permits are in use for"},
			{acts{expire("", 2*m)}, "ttl", Warning, "the hash expires in 2m0s, and its permits do not: the limiter is gone then, unless a caller renews it.*--keep-alive 1m0s "},
			{acts{hash("keepAliveTime", 3_600_000)}, "ttl", Warning, "the hash expires in .*--keep-alive 1h0m0s "},
			{acts{hash("keepAliveTime", 0)}, "ttl", Warning, "the hash expires in .*--keep-alive 1m0s "},
			then(healthy, expire("permits", 2*m), expire("value", 2*m)),
			{acts{expire("permits", 5*s)}, "ttl", Warning, "the grants expire in"},
			{acts{expire("permits", 2*m), func(w *ward) { w.do(redisDo("persist", w.key("value"))) }}, "ttl", Info, "the value has no TTL but the grants have one"},
			then(look{check: "ttl"}, expire("value", 2*m)),
			{acts{hash("keepAliveTime", 1000)}, "ttl", Warning, "the keep-alive of 1s is shorter than the interval of 1m0s"},
		},
		"remains": {
			{acts{grant(1, 0), value(9)}, "remains", Warning, "and never expires"},
			{acts{expire("value", m), expire("permits", m)}, "remains", Info, "and expires in 1m0s"},
		},
		"the keys of another type": {
			then(healthy, rate(1), grantOf(":a", 1, 0), valueOf(":a", 9)),
			then(healthy, grant(1, 0)), // one of the two keys alone shows nothing
			{acts{value(9)}, "other-type", Warning, "the limiter is PER_CLIENT, and keys of an OVERALL one with 1 member are left"},
		},
		"the keys of clients": {
			{acts{rate(0), grantOf(":a", 1, 0), valueOf(":a", 9)}, "other-type", Warning,
				"the limiter is OVERALL, and keys of 1 client of a PER_CLIENT one are left.*NAME}:value:a"},
		},
		"dead clients": {
			then(healthy, rate(1), grantOf(":a", 10, 30*m), valueOf(":a", 0)),
			{acts{grantOf(":b", 10, 2*h), valueOf(":b", 0)}, "dead-clients", Warning, "1 of 2 clients: no acquire.*:value:b"},
			then(healthy, expire("permits:b", m), expire("value:b", m)),
		},
		"a huge set": {
			// Java reclaims so many in less than 10 ms.
			then(look{check: "huge-set"}, hash("rate", 20_000, "interval", 60_000, "type", 0), grants(4900, 2*m), value(15_100)),
			{acts{grants(100, 2*m), value(15_000)}, "huge-set", Info, "5000 of 5000 members have expired and nobody has reclaimed them"},
			then(look{check: "huge-set"}, grants(5000, 0), value(10_000)), // they are not most of them
			{acts{grants(100, 0), value(9_900)}, "huge-set", Info, "10100 members"},
		},
		"a clock that is fast": {
			{acts{rate(0), value(8), member("", java(1)[wire.LayoutBc0ILong], -m), grant(1, s)}, "clock", Warning,
				"the dates of 1 member are up to.*mark the grants: rrl heal NAME --write; after 1m0.001s, give the permits back: rrl heal NAME --write;.*Redisson 3.21.0 and later"},
			{acts{unset("keepAliveTime"), redisKey("del", "permits"), member("", java(1)[wire.LayoutLc0I], -m), value(9)}, "clock", Warning,
				"set the clocks by NTP: .*; once no Redisson 3.16.4 to 3.16.8 uses the limiter, which could not read the marks: mark the grants: rrl heal NAME --write"},
		},
		"a clock that was fast": {
			{acts{rate(0), value(9), markedGrant(1, -h, 20*s)}, "clock", Warning,
				"of which Go has marked 1, are up to .* ahead.*\nafter [0-9.]+s, give the permits back: rrl heal NAME --write; set the clocks by NTP: the grants are by somebody whose clock is fast"},
			{acts{redisKey("del", "permits"), markedGrant(1, -h, m)}, "clock", Warning, "ahead of the clock of Redis\ngive the permits back: rrl heal NAME --write;"},
			{acts{redisKey("del", "permits"), markedGrant(1, -h, m), member("", java(1)[wire.LayoutBc0ILong], -h), value(8)}, "clock", Warning, "2 members, of which Go has marked 1.*mark the grants"},
		},
		"a cool-down that is not meant": {
			{acts{rate(0), hash("coolDown", int64(95_600_000_000_000))}, "cool-down", Warning, "a cool-down until 4999-.*rrl lift NAME --write"},
			{acts{hash("coolDown", time.Now().Add(h).UnixMilli())}, "cool-down", Info, "a cool-down for another 59m[0-9.]+s, until [^;\n]*\n"},
			{acts{hash("waiting", fmt.Sprintf("28d0 40 %d 3600000 ;", time.Now().UnixMilli()))}, "cool-down", Info, "a cool-down for another .*; callers that wait: 40\n"},
			{acts{hash("reopenUntil", int64(95_600_000_000_000))}, "cool-down", Warning, "then re-opening until 4999-"},
			{acts{hash("coolDown", 1)}, "cool-down", Warning, "^re-opening until 4999-"},
			then(look{check: "cool-down"}, hash("reopenUntil", 2)),
		},
		"a gap that is too long": {
			then(healthy, rate(0), hash("minGap", 6000)),
			then(healthy, hash("rate", 7, "minGap", 8572)), // a seventh of a minute, rounded up
			{acts{hash("minGap", 12_000)}, "min-gap", Warning, "with at least 12s between permits, requests for one permit get 5 of the 7 permits in 1m0s.*--min-gap 8.571s"},
			then(healthy, hash("rate", 1, "minGap", 99_000)),
			{acts{hash("keepAliveTime", 500)}, "ttl", Warning, "the keep-alive of 500ms is shorter than the interval"}, // and until it is not, no rate can be set
			{acts{hash("rate", int64(1)<<50, "minGap", 100, "keepAliveTime", 0)}, "min-gap", Warning, "get 600 of.*--min-gap 0s"},
			{acts{hash("rate", 10, "minGap", 30_000, "keepAliveTime", 3_600_000), member("", java(1)[wire.LayoutBc0ILong], s), value(9)}, "min-gap", Warning,
				"if only Go and Redisson 3.38.0 or later use the limiter, which renew a TTL: rrl set-rate NAME --min-gap 6s --write"},
		},
		"a keep-alive that is no number": {
			{acts{rate(0), hash("keepAliveTime", "abc"), value(9), grant(1, s)}, "malformed", Critical, `keepAliveTime is "abc"\n.*hset.* 1 NAME keepAliveTime 0 10 abc`},
			{acts{hash("keepAliveTime", "")}, "malformed", Critical, `keepAliveTime is ""`},
			then(healthy, hash("keepAliveTime", -1)),
		},
		"a hash without a type, which has a keep-alive": {
			{acts{hash("rate", 10, "interval", 60_000, "keepAliveTime", 3_600_000), value(9), member("", java(1)[wire.LayoutBc0ILong], s)}, "malformed", Critical,
				"the hash has no type.*if only Go and Redisson 3.38.0 or later use the limiter, which renew a TTL: rrl set-rate NAME --permits 10 --interval 1m0s --type overall --keep-alive 1h0m0s --write"},
		},
		"a brace": {
			{acts{func(w *ward) { w.name += "{b" }, rate(0)}, "slot", Info, "this Redis is no cluster"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWard(t)
			for _, l := range looks {
				if w.do(l.acts...); l.found == "" {
					require.Empty(t, w.findings(l.check))
					continue
				}
				w.finds(l.check, l.s, l.found)
			}
		})
	}
}

// TestNoCommandThatWouldFail has limiters whose hash or keys have to be mended by hand first: until then heal and set-rate end
// with an error, so no other finding offers them to a script.
func TestNoCommandThatWouldFail(t *testing.T) {
	list := func(w *ward) {
		w.do(redisKey("del", "value"), func(w *ward) { w.do(redisDo("lpush", w.key("value"), "x")) })
	}
	fast := member("", java(1)[wire.LayoutBc0ILong], -time.Minute)
	for name, acts := range map[string][]act{
		"a clock that is fast and a rate that is none":      {rate(0), value(9), fast, hash("rate", "x")},
		"a clock that is fast and no rate":                  {value(9), fast},
		"a clock that is fast and a value that is a list":   {rate(0), fast, list},
		"a gap that is too long and a value that is a list": {rate(0), hash("minGap", 12_000), list},
		"a short keep-alive and a value that is a list":     {rate(0), hash("keepAliveTime", 1000), list},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWard(t)
			w.do(acts...)
			found := w.findings("")
			require.NotEmpty(t, found)
			for _, f := range found {
				require.Empty(t, f.Commands, f.Check)
			}
		})
	}
}

// TestLayouts has members of two layouts, which some versions of Redisson read together. Ours is read by the first and the third group
// of versions.
func TestLayouts(t *testing.T) {
	w := newWard(t)
	both := func(y, z wire.Layout) []Finding {
		w.name = redistest.Key(t)
		members := java(1)
		members[wire.LayoutOurs] = redisson.Member(false, redisson.RandomID(), 1)
		members[wire.LayoutUnknown] = []byte("?\x01\x00\x00\x00")
		w.do(rate(0), member("", members[y], time.Second), member("", members[z], time.Second), value(8))
		if y == z || y == wire.LayoutUnknown {
			w.do(value(9))
		}
		return w.findings()
	}
	groups := map[wire.Layout]int{wire.LayoutFI: 1, wire.LayoutLc0I: 2, wire.LayoutBc0IShort: 3, wire.LayoutBc0ILong: 3, wire.LayoutOurs: 0}
	for y, of := range groups {
		for z, with := range groups {
			list := both(y, z)
			if of == 2 && with == 2 { // the hash shows that somebody uses the limiter who has another layout, unless told
				require.Len(t, list, 1)
				require.Equal(t, "unshared-layout", list[0].Check)
				require.Equal(t, Warning, list[0].Severity)
				require.Contains(t, list[0].Found, "member")
				continue
			}
			if of == with || of == 0 && with != 2 || with == 0 && of != 2 {
				require.Empty(t, list, "%s and %s", y, z)
				continue
			}
			require.Len(t, list, 1, "%s and %s", y, z)
			require.Equal(t, "layouts", list[0].Check)
			require.Contains(t, list[0].Found, y.Writers())
			require.Contains(t, list[0].Found, z.Writers())
		}
	}
	list := both(wire.LayoutUnknown, wire.LayoutFI)
	require.Contains(t, list[len(list)-1].Found, "1 of a layout that no known version writes")
}

// TestSlowClock shows that a grant which comes during the sample with a date before it is that of a slow clock.
func TestSlowClock(t *testing.T) {
	w := newWard(t)
	w.do(rate(0), value(9), grant(1, time.Second))
	read := func() *survey.State { return redistest.Must(survey.New(w.rdb).Read(w.ctx, w.name, ""))(t) }
	p := &patient{name: w.name, main: read()}
	w.do(member("", java(1)[wire.LayoutBc0IShort], 3*time.Second), value(8))
	p.later = read()
	list := p.clock()
	require.Len(t, list, 1)
	require.Contains(t, list[0].Fix, "Redisson 3.17.0 to 3.20")
	require.Contains(t, list[0].Found, "before it")
	p.later = p.main
	require.Empty(t, p.clock())
}

func TestSlotInACluster(t *testing.T) {
	redistest.NeedReal(t)
	w := &ward{T: t, ctx: t.Context(), name: "a{b"}
	rdb := redistest.StartCluster(t).Client(t)
	require.NoError(t, rdb.HSet(w.ctx, w.name, "rate", 10, "interval", 60_000, "type", 0).Err())
	r := redistest.Must((&Doctor{Survey: survey.New(rdb)}).Limiter(w.ctx, w.name))(t)
	require.True(t, r.Sick())
	require.Equal(t, "slot", r.Findings[len(r.Findings)-1].Check)
}

// More clients than are looked at are reported, not left out in silence.
func TestManyClients(t *testing.T) {
	w := newWard(t)
	w.do(rate(1))
	for _, id := range []string{":1", ":2", ":3", ":4"} {
		w.do(grantOf(id, 1, 0), valueOf(id, 9))
	}
	r := redistest.Must((&Doctor{Survey: survey.New(w.rdb), MaxClients: 3}).Limiter(w.ctx, w.name))(t)
	require.Equal(t, "looked at only 3 clients", r.Findings[len(r.Findings)-1].Found)
}

// TestExplanations compares the table of docs/findings.md with the explanations, or writes it with RRL_TEST_DOCS set.
func TestExplanations(t *testing.T) {
	const page, begin, end = "../../../docs/findings.md", "<!-- The table is written by RRL_TEST_DOCS=write go test -run Explanations ./internal/ops/doctor -->\n", "<!-- The end of the table. -->\n"
	doc := redistest.Must(os.ReadFile(page))(t)
	var table strings.Builder
	table.WriteString("| check | means | Java | Go | fix |\n|---|---|---|---|---|\n")
	ids := Checks()
	slices.Sort(ids)
	for _, id := range ids {
		e := explanations()[id]
		for _, text := range []string{e.Means, e.Java, e.Go, e.Fix} {
			require.NotEmpty(t, text, id)
			require.Equal(t, strings.TrimSpace(text), text, id)
		}
		fmt.Fprintf(&table, "| <a id=\"%s\"></a>`%[1]s` | %s | %s | %s | %s |\n", id, e.Means, e.Java, e.Go, e.Fix)
	}
	head, rest, ok1 := strings.Cut(string(doc), begin)
	there, tail, ok2 := strings.Cut(rest, end)
	require.True(t, ok1 && ok2, "%s has lost its table", page)
	if os.Getenv("RRL_TEST_DOCS") == "write" {
		require.NoError(t, os.WriteFile(page, []byte(head+begin+table.String()+end+tail), 0o600))
		return
	}
	require.Equal(t, table.String(), there, "RRL_TEST_DOCS=write go test -run Explanations ./internal/ops/doctor writes it")
}

// TestExamineOfOneClient examines what was read of one client: its permits are not those of a limiter of the other type.
func TestExamineOfOneClient(t *testing.T) {
	for what, c := range map[string]struct {
		acts  []act
		check string // empty for none
	}{
		"in use":      {[]act{rate(1), grantOf(":"+redisson1, 4, 0), valueOf(":"+redisson1, 6)}, ""},
		"no keys":     {[]act{rate(1)}, ""},
		"overall":     {[]act{rate(0), grant(4, 0), value(6)}, ""},
		"stuck":       {[]act{rate(1), valueOf(":"+redisson1, 6)}, "stuck"},
		"other type":  {[]act{rate(0), grantOf(":"+redisson1, 4, 0), valueOf(":"+redisson1, 6)}, "other-type"},
		"no hash":     {[]act{grantOf(":"+redisson1, 4, 0), valueOf(":"+redisson1, 6)}, "remains"},
		"a neighbour": {[]act{rate(1), member(":"+redisson1, []byte("bob"), 2*time.Hour), valueOf(":"+redisson1, "seventeen")}, ""},
		"broken rate": {[]act{rate(1), hash("rate", "many"), grantOf(":"+redisson1, 4, 0), valueOf(":"+redisson1, 6)}, "malformed"},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWard(t)
			w.do(c.acts...)
			var checks []string
			for _, f := range Examine(Target{}, redistest.Must(survey.New(w.rdb).Read(w.ctx, w.name, redisson1))(t)) {
				if f.Severity > Info {
					checks = append(checks, f.Check)
				}
				if f.Check == "malformed" {
					require.Contains(t, f.Fix, "--type per_client --client "+redisson1+" --write")
				}
			}
			if c.check == "" {
				require.Empty(t, checks)
			} else {
				require.Equal(t, []string{c.check}, checks)
			}
		})
	}
}

// TestEitherType has limiters whose hash is broken while permits of both types may be in use: to name one type would free those of
// the other for a script that runs the commands.
func TestEitherType(t *testing.T) {
	const id = ":5ad5e3a7-8b4a-4b0e-9c5f-3d2c7f1e6a90"
	all, each := []act{value(9), grant(1, 0)}, []act{valueOf(id, 9), grantOf(id, 1, 0)}
	other := func(client string) act {
		return func(w *ward) { w.do(redisKey("del", "permits"+client), redisDo("rpush", w.key("permits")+client, "x")) }
	}
	for name, list := range map[string][]act{
		"type 7":                              {rate(7)},
		"no type":                             {hash("rate", 10, "interval", 60_000)},
		"type 2, no interval":                 {hash("rate", 10, "type", 2)},
		"type 1x, no rate":                    {hash("interval", 60_000, "type", "1x")},
		"no type, a client's are a list":      {hash("rate", 10, "interval", 60_000), other(id)},
		"OVERALL with a sick keep-alive":      {rate(0), hash("keepAliveTime", "1.5")},
		"PER_CLIENT with a sick keep-alive":   {rate(1), hash("keepAliveTime", "1.5")},
		"OVERALL with a rate that is none":    {rate(0), hash("rate", "x")},
		"PER_CLIENT with a rate that is none": {rate(1), hash("rate", "x")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWard(t)
			w.do(all...)
			w.do(each...)
			w.do(list...)
			found := w.findings("malformed")
			require.Len(t, found, 1)
			require.Empty(t, found[0].Commands)
			require.NotEmpty(t, found[0].Alternatives)
		})
	}
	w := newWard(t)
	w.do(all...)
	w.do(each...)
	w.do(hash("rate", 10, "interval", 60_000), other(""))
	found := w.findings("malformed") // no rate can be set where a key is another program's
	require.Len(t, found, 1)
	require.Equal(t, "give one of the two another name", found[0].Fix)
}

// TestAnAlternativeInSteps has an advice with a condition of which a part has to wait: it is one alternative, not one of two.
func TestAnAlternativeInSteps(t *testing.T) {
	w := newWard(t)
	w.do(rate(0), unset("keepAliveTime"), member("", java(1)[wire.LayoutLc0I], -time.Minute), value(9))
	list := w.findings("clock")
	require.Len(t, list, 1)
	require.Empty(t, list[0].Commands)
	require.Empty(t, list[0].Then)
	require.Len(t, list[0].Alternatives, 1)
	a := list[0].Alternatives[0]
	require.Contains(t, a.If, "no Redisson 3.16.4 to 3.16.8 uses the limiter")
	require.Len(t, a.Commands, 1)
	require.Zero(t, a.AfterMS)
	require.Equal(t, []Step{{AfterMS: 60_001, Commands: a.Commands}}, a.Then)
}
