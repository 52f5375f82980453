// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/proptest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A scene is what Redis holds of a limiter of 10 permits in a minute.
type scene struct {
	fields  []any // beside rate, interval and type
	value   any   // nil for none
	members []prop
	do      func(l *ratelimiter.RateLimiter) error // afterwards
	client  string                                 // of a PER_CLIENT limiter
	surplus bool                                   // more permits are left and in use than the rate
	why     string                                 // what one permit waits for, if that is checked
	part    bool                                   // there are marks or blocks that hold nothing
}

// A prop is a member that was granted that long ago.
type prop struct {
	age     time.Duration
	permits uint32
	kind    byte          // 0 for a grant, j for one of Redisson, t for a mark, c for a block
	at      time.Duration // ago: when the mark was first seen, or when the grants were made whose place the block took; 0 for none
}

func (p prop) raw(now time.Time) []byte {
	id := redisson.RandomID()
	switch p.kind {
	case 'j':
		return append(append([]byte{8}, id[:8]...), byte(p.permits), 0, 0, 0)
	case 't', 'c', 'b':
		at := int64(0)
		if p.at != 0 {
			at = now.Add(-p.at).UnixMilli()
		}
		stamp := binary.BigEndian.AppendUint64(nil, uint64(at))[2:]
		if p.kind == 'b' { // it joined the cool-down
			stamp[0] |= 128
			p.kind = 'c'
		}
		m := redisson.Member(false, id, p.permits)
		copy(m[1:], []byte{'~', p.kind, '~'})
		copy(m[8:], stamp)
		return m
	}
	return redisson.Member(false, id, p.permits)
}

func (s scene) set(t *testing.T, rdb *redis.Client, name string) {
	t.Helper()
	ctx, suffix, typ := t.Context(), "", "0"
	if s.client != "" {
		suffix, typ = ":"+s.client, "1"
	}
	now := rdb.Time(ctx).Val()
	require.NoError(t, rdb.HSet(ctx, name, append([]any{"rate", 10, "interval", 60_000, "type", typ}, s.fields...)...).Err())
	if s.value != nil {
		require.NoError(t, rdb.Set(ctx, "{"+name+"}:value"+suffix, s.value, 0).Err())
	}
	var zs []redis.Z
	for _, p := range s.members {
		zs = append(zs, redis.Z{Score: float64(now.Add(-p.age).UnixMilli()), Member: p.raw(now)})
	}
	if zs != nil {
		require.NoError(t, rdb.ZAdd(ctx, "{"+name+"}:permits"+suffix, zs...).Err())
	}
	if s.do != nil {
		client := s.of(t, rdb)
		defer client.Close()
		require.NoError(t, s.do(client.RateLimiter(name)))
	}
}

func (s scene) of(t *testing.T, rdb *redis.Client) *ratelimiter.Client {
	if s.client != "" {
		return clienttest.New(t, rdb, ratelimiter.WithClientID(s.client))
	}
	return clienttest.New(t, rdb)
}

func sec(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// scenes are the states that the doctor knows, and the others in which callers are told something of their own.
func scenes() map[string]scene {
	grants := func(n int, age float64) (list []prop) {
		for i := range n {
			list = append(list, prop{age: sec(age) + time.Duration(i)*time.Millisecond, permits: 1})
		}
		return list
	}
	coolDown := func(d time.Duration, o ...ratelimiter.CoolDownOption) func(*ratelimiter.RateLimiter) error {
		return func(l *ratelimiter.RateLimiter) error {
			return l.CoolDown(context.Background(), time.Now().Add(d), o...)
		}
	}
	return map[string]scene{
		"fresh":                       {},
		"in use":                      {value: 4, members: grants(6, 20)},
		"full":                        {value: 0, members: grants(10, 20), why: "the permits in use"},
		"expired in part":             {value: 0, members: append(grants(4, 70), grants(6, 20)...)},
		"all expired":                 {value: 0, members: grants(10, 70)},
		"a large grant":               {value: 1, members: []prop{{age: sec(50), permits: 2}, {age: sec(10), permits: 7}}},
		"of Java":                     {value: 7, members: []prop{{age: sec(5), permits: 3, kind: 'j'}}},
		"no value":                    {members: grants(3, 20)},
		"no value, all in use":        {members: grants(10, 20)},
		"no value, more in use":       {members: grants(14, 20)},
		"a value that is none":        {value: "099", members: grants(9, 20)},
		"stuck":                       {value: 0},
		"stuck in part":               {value: 4},
		"stuck, expired":              {value: 4, members: grants(3, 70)},
		"lost":                        {value: 5, members: grants(3, 20)},
		"lost, none left":             {value: 0, members: grants(3, 20)},
		"surplus":                     {value: 5, members: grants(9, 20), surplus: true},
		"surplus above the rate":      {value: 500, members: grants(10, 20)},
		"surplus of a few":            {value: 11, members: grants(4, 20)},
		"below 0":                     {value: -2, members: grants(12, 20)},
		"ahead of the clock":          {value: 2, members: []prop{{age: -sec(100), permits: 8, kind: 'j'}}},
		"a mark":                      {value: 2, members: []prop{{age: -sec(100), permits: 8, kind: 't', at: sec(20)}}},
		"a spent mark":                {value: 2, members: []prop{{age: -sec(100), permits: 8, kind: 't', at: sec(70)}}},
		"a mark that has passed":      {value: 2, members: []prop{{age: sec(5), permits: 8, kind: 't', at: sec(70)}}},
		"a void block":                {value: 2, members: []prop{{age: -sec(100), permits: 8, kind: 'c', at: sec(20)}}},
		"a void block of nobody":      {value: 2, members: []prop{{age: -sec(100), permits: 8, kind: 'c'}}},
		"a block":                     {value: 2, members: []prop{{age: sec(20), permits: 8, kind: 'c', at: sec(40)}}},
		"a gap":                       {fields: []any{"minGap", 20_000}, value: 9, members: []prop{{age: sec(3), permits: 1}}, why: "the least gap between permits"},
		"a gap after several":         {fields: []any{"minGap", 20_000}, value: 7, members: []prop{{age: sec(3), permits: 3}}},
		"a gap that is over":          {fields: []any{"minGap", 20_000}, value: 9, members: []prop{{age: sec(30), permits: 1}}},
		"a gap of a grant ahead":      {fields: []any{"minGap", 20_000}, value: 8, members: []prop{{age: sec(30), permits: 1}, {age: -sec(10), permits: 1}}, why: "the least gap between permits"},
		"a gap of a mark":             {fields: []any{"minGap", 20_000}, value: 7, members: []prop{{age: sec(3), permits: 1}, {age: -sec(10), permits: 2, kind: 't', at: sec(2)}}, why: "the least gap between permits"},
		"a gap of an old mark":        {fields: []any{"minGap", 20_000}, value: 7, members: []prop{{age: sec(30), permits: 1}, {age: -sec(10), permits: 2, kind: 't', at: sec(50)}}},
		"a gap, and none left":        {fields: []any{"minGap", 20_000}, value: 0, members: []prop{{age: sec(50), permits: 9}, {age: sec(3), permits: 1}}},
		"a gap, and permits lost":     {fields: []any{"minGap", 20_000}, value: 2, members: []prop{{age: sec(3), permits: 1}}},
		"a gap, and permits too many": {fields: []any{"minGap", 10_000}, value: 5, surplus: true, members: []prop{{age: sec(40), permits: 2}, {age: sec(6), permits: 9}}},
		"a cool-down":                 {value: 4, members: grants(6, 20), do: coolDown(5 * time.Minute), why: "the cool-down"},
		"a short cool-down":           {value: 4, members: grants(6, 20), do: coolDown(5 * time.Second)},
		"a gradual cool-down":         {value: 4, members: grants(6, 20), do: coolDown(5*time.Second, ratelimiter.Reopen(time.Minute))},
		"a cool-down of the hash":     {fields: []any{"coolDown", 99_999_999_999_999}, value: 4, members: grants(6, 20)},
		"a cool-down that is over":    {fields: []any{"coolDown", 1000, "reopenUntil", 2000}, value: 2, members: []prop{{age: -sec(100), permits: 8, kind: 'b', at: sec(20)}}},
		"of a client":                 {client: "c", value: 4, members: grants(6, 20)},
		"of a client in a cool-down":  {client: "c", value: 4, members: grants(6, 20), do: coolDown(time.Minute)},
		"a large set":                 {fields: []any{"rate", 3000}, value: 0, members: grants(3000, 1)},
		"a large set, lost":           {fields: []any{"rate", 3000}, members: grants(2990, 1)},
		"a set of 40":                 {fields: []any{"rate", 40}, value: 0, members: grants(30, 10)},
	}
}

// TestPeekTellsWhatCallersAreTold compares what each look says of a caller with what a limiter tells one: in every state,
// for every number of permits, to the millisecond.
func TestPeekTellsWhatCallersAreTold(t *testing.T) {
	redistest.NoRace(t, "one goroutine at a time")
	for what, s := range scenes() {
		t.Run(what, func(t *testing.T) { s.compare(t) })
	}
}

// TestPeekOfRandomStates does the same with states that nobody has thought of.
func TestPeekOfRandomStates(t *testing.T) {
	redistest.NoRace(t, "one goroutine at a time")
	seed := proptest.Rand(t).Uint64()
	for n := range redistest.Cases(100, 5000) {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		s := scene{}
		sum := 0
		for range r.IntN(6) {
			p := prop{age: time.Duration(r.IntN(70_000)) * time.Millisecond, permits: uint32(1 + r.IntN(5)), kind: []byte{0, 0, 0, 'j', 't', 'c', 'b'}[r.IntN(7)]}
			if r.IntN(6) == 0 {
				p.age = -p.age
			}
			if p.kind != 'c' || r.IntN(2) == 0 {
				p.at = time.Duration(r.IntN(70_000)) * time.Millisecond
			}
			p.age, p.at = notAboutToEnd(p.age), notAboutToEnd(p.at)
			sum += int(p.permits)
			s.part = s.part || p.kind == 't' || p.kind == 'c' || p.kind == 'b'
			s.members = append(s.members, p)
		}
		switch s.value = 10 - sum; r.IntN(6) {
		case 0:
			s.value = nil
		case 1:
			s.value = r.IntN(11)
			s.surplus = s.value.(int)+sum > 10
		case 2:
			s.value = "x"
		}
		if r.IntN(4) == 0 {
			s.fields = append(s.fields, "minGap", 1+r.IntN(30_000))
		}
		if r.IntN(6) == 0 {
			s.fields = append(s.fields, "coolDown", 946_684_800_000+r.IntN(60_000)-30_000, "reopenUntil", 946_684_800_000+r.IntN(60_000))
		}
		if !t.Run(fmt.Sprintf("seed %d, case %d", seed, n), func(t *testing.T) { s.compare(t) }) {
			t.Logf("%+v", s)
			return
		}
	}
}

// notAboutToEnd returns how long ago a grant was made. The clock of a real server goes on from one call to the next, so there none
// is made that is free again within two seconds.
func notAboutToEnd(ago time.Duration) time.Duration {
	if !redistest.TTLsAreVirtual() && sec(58) <= ago && ago <= sec(60) {
		ago -= sec(2)
	}
	return ago
}

func (s scene) compare(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		ctx, sv := t.Context(), New(rdb)
		rate := int64(10)
		if len(s.fields) > 0 && s.fields[0] == "rate" {
			rate = int64(s.fields[1].(int))
		}
		for n := int64(1); n <= rate; n += max(1, rate/10) {
			var told []Peek
			name := redistest.Key(t)
			s.set(t, rdb, name)
			st := redistest.Must(sv.Read(ctx, name, s.client))(t)
			pk := redistest.Must(st.Peek(n))(t)
			if told = append(told, pk); !st.Whole && !pk.Known {
				require.True(t, redistest.Must(sv.Complete(ctx, st))(t))
				told[0] = redistest.Must(st.Peek(n))(t)
			}
			if s.why != "" && n == 1 {
				require.Equal(t, s.why, told[0].Why)
			}
			if n == 1 && s.client == "" {
				list, errs := found(ctx, sv, Query{Match: name})
				require.Empty(t, errs)
				l := list[name]
				if l.Wait() == Unknown {
					require.Greater(t, l.Count, int64(1000), "only of a large set it is not known")
				} else {
					told = append(told, Peek{Available: l.Available(), Wait: l.Wait(), Known: true})
				}
			}
			client := s.of(t, rdb)
			at := time.Now()
			want := redistest.Must(client.RateLimiter(name).Peek(ctx, n))(t)
			require.NoError(t, client.Close())
			if wait := max(want.Wait, told[0].Wait); !redistest.TTLsAreVirtual() && 0 < wait && wait < 2*time.Second {
				continue // on a server it may be over at the next call
			}
			if gap := len(s.fields) > 0 && s.fields[0] == "minGap"; s.part && (s.surplus || gap) {
				continue // what a call lifts or takes may count for the next call only
			}
			for i, got := range told {
				require.True(t, got.Known, "%d: %d permits", i, n)
				require.Equal(t, want.Granted, got.Granted(), "%d: %d permits: %+v, %+v", i, n, want, got)
				if !s.part || !want.Granted { // a call frees no more than it grants
					require.Equal(t, want.Available, got.Available, "%d: %d permits: %+v, %+v", i, n, want, got)
				}
				if redistest.TTLsAreVirtual() {
					require.Equal(t, want.Wait, got.Wait, "%d: %d permits: %+v, %+v", i, n, want, got)
				} else {
					require.InDelta(t, want.Wait.Seconds(), got.Wait.Seconds(), time.Since(at).Seconds()+1, "%d permits", n)
				}
			}
			if s.surplus {
				continue // whether a call grants what is too much depends on whether it happens to check
			}
			name = redistest.Key(t)
			s.set(t, rdb, name)
			client = s.of(t, rdb)
			got := redistest.Must(client.RateLimiter(name).Allow(ctx, n))(t)
			require.NoError(t, client.Close())
			require.Equal(t, want.Granted, got.Granted, "%d permits, which Allow takes", n)
		}
	})
}

// TestPeekOfAWrongType checks that a call which fails is not said to be granted.
func TestPeekOfAWrongType(t *testing.T) {
	rdb := redistest.Client(t)
	ctx, sv := t.Context(), New(rdb)
	for i := range KeyTypes {
		name := redistest.Key(t)
		set(t, rdb, name, "0", 10, 60_000)
		key := keysOf(name, "")[i]
		require.NoError(t, rdb.Del(ctx, key).Err())
		require.NoError(t, rdb.LPush(ctx, key, "x").Err())
		st := redistest.Must(sv.Read(ctx, name, ""))(t)
		_, err := st.Peek(1)
		require.ErrorIs(t, err, ErrWrongType)
		require.ErrorContains(t, err, fmt.Sprintf("%q is a list, not a %s", key, KeyTypes[i]))
		if i > 0 {
			list, errs := found(ctx, sv, Query{Match: name})
			require.Empty(t, errs)
			require.ErrorIs(t, list[name].Broken, ErrWrongType)
			require.EqualValues(t, Unknown, list[name].Wait())
			require.True(t, list[name].Limited())
		}
		client := clienttest.New(t, rdb)
		_, err = client.RateLimiter(name).Allow(ctx, 1)
		require.True(t, err != nil && !errors.Is(err, ratelimiter.ErrNotInitialized), err)
		require.NoError(t, client.Close())
	}
}
