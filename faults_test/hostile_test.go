// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/grantlog"
	"github.com/goredisson/ratelimiter/internal/redistest"
)

// A state is what a limiter of hostileRate may be found in: a sound limiter, and commands that make one thing wrong. In these a
// key stands for that of the limiter, and a Duration for the time so long from now.
type state struct {
	name     string
	commands [][]any
}

type key int

const (
	hashKey key = iota
	valueKey
	setKey
)

var keyNames = []string{"hash", "value", "set"}

const hostilePermits, hostileInterval = 10, 150 * time.Millisecond

// member returns a grant as Redisson writes it.
func member(id byte, permits uint32) string {
	b := append([]byte{16}, make([]byte, 16)...)
	b[1], b[16] = id, id
	return string(binary.LittleEndian.AppendUint32(b, permits))
}

var absent = "\x00absent" // no field, or no key

// numbers are what may stand where a number should.
var numbers = []string{absent, "", "abc", "099", "1e400", "nan", "inf", "-5", "0", "2.5", "-0", "+7", " 7", "9007199254740993", "99999999999999999999"}

// fields are the values that the fields of the hash may have.
var fields = map[string][]string{
	"rate":          numbers,
	"interval":      append([]string{"9223372036854775"}, numbers...), // 292 years
	"type":          {absent, "", "1", "2", "-1", "abc", "1e400", "01"},
	"keepAliveTime": {"", "abc", "099", "-5", "2.5", "1e400", "nan", "9007199254740993", "1"},
	"minGap":        {"abc", "-5", "1e400", "9007199254740993", "10000"},
	"coolDown":      {"abc", "-5", "1e400", "nan", "1", "9007199254740993", "11000000000000"},
	"reopenUntil":   {"abc", "1e400", "9007199254740993", "11000000000000"},
}

// members are sets and the value beside each: scores and members in turns.
var members = []struct {
	name  string
	value int
	set   []any
}{
	{"no member, value 0", 0, nil},
	{"members of no bytes, one, many", 6, text("", "x", "\xff", string(make([]byte, 300)))},
	{"a member of 2^32-1 permits", 6, text(member('a', math.MaxUint32))},
	{"a member of 0 permits", 6, text(member('a', 0))},
	{"a member cut short", 6, text(member('a', 4)[:12], member('b', 4)[:20])},
	{"what looks like a tripwire", 6, text("\x10~w~\x01\x00\x00\x00" + string(make([]byte, 9)) + "\x01\x00\x00\x00")},
	{"what looks like a block", 6, text("\x10~c~\x04\x00\x00\x00" + string(make([]byte, 9)) + "\x04\x00\x00\x00")},
	{"a grant an hour ahead", 6, grants(1, 4, time.Hour)},
	{"a grant 292 years ahead", 6, grants(1, 4, time.Duration(math.MaxInt64))},
	{"ten grants 5 s ahead", 0, grants(10, 1, 5*time.Second)},
	{"a grant at +inf", 6, grants(1, 4, "+inf")},
	{"a grant at -inf", 6, grants(1, 4, "-inf")},
	{"a grant at 2^53 ms", 6, grants(1, 4, 1<<53)},
	{"a grant at half a ms", 6, grants(1, 4, time.Millisecond/2)},
	{"ten rates in use", 0, grants(10, 10, time.Duration(0))},
	{"ten rates in use, and the value at the rate", 10, grants(10, 10, time.Duration(0))},
	{"2000 grants in use", 0, grants(2000, 1, time.Duration(0))},
	{"2000 grants in use, no value", 10, grants(2000, 1, time.Duration(0))},
	{"2000 grants expired", 0, grants(2000, 1, -time.Second)},
	{"permits leaked", 0, grants(4, 1, time.Duration(0))},
	{"permits twice", 10, grants(4, 1, time.Duration(0))},
}

// grants returns n grants with that score.
func grants(n int, permits uint32, score any) (set []any) {
	for i := range n {
		m := []byte(member('m', permits))
		binary.BigEndian.PutUint32(m[4:], uint32(i))
		set = append(set, score, m)
	}
	return set
}

// text returns members that were added now.
func text(texts ...string) (set []any) {
	for _, s := range texts {
		set = append(set, time.Duration(0), s)
	}
	return set
}

// states returns every hostile state.
func states() (list []state) {
	add := func(name string, commands ...[]any) { list = append(list, state{name, commands}) }
	for field, values := range fields {
		for _, v := range values {
			if name := fmt.Sprintf("%s is %q", field, v); v == absent {
				add(name, []any{"HDEL", hashKey, field})
			} else {
				add(name, []any{"HSET", hashKey, field, v})
			}
		}
	}
	for _, v := range append([]string{"100", "-1000000", "9007199254740992", "-9007199254740992"}, numbers[1:]...) {
		add(fmt.Sprintf("value is %q", v), []any{"SET", valueKey, v})
	}
	for k, right := range []string{"hash", "string", "zset"} {
		for typ, put := range map[string][]any{
			"string": {"SET", key(k), "6"}, "list": {"RPUSH", key(k), "6"}, "set": {"SADD", key(k), "6"}, "zset": {"ZADD", key(k), 6, "6"},
			"hash": {"HSET", key(k), "6", "6"}, "stream": {"XADD", key(k), "*", "6", "6"},
		} {
			if typ != right {
				add(fmt.Sprintf("the %s is a %s", keyNames[k], typ), []any{"DEL", key(k)}, put)
			}
		}
		add("no "+keyNames[k], []any{"DEL", key(k)})
		add("the "+keyNames[k]+" expires in 20 ms", []any{"PEXPIRE", key(k), 20})
	}
	for _, m := range members {
		commands := [][]any{{"DEL", setKey}, {"SET", valueKey, m.value}}
		if m.set != nil {
			commands = append(commands, append([]any{"ZADD", setKey}, m.set...))
		}
		add(m.name, commands...)
	}
	add("no key at all", []any{"DEL", hashKey, valueKey, setKey})
	add("neither value nor set", []any{"DEL", valueKey, setKey})
	return list
}

// make makes the state of a limiter that is sound, whose keys these are.
func (st state) make(ctx context.Context, p redis.Pipeliner, keys []string) {
	for _, command := range st.commands {
		args := slices.Clone(command)
		for i, arg := range args {
			switch arg := arg.(type) {
			case key:
				args[i] = keys[arg]
			case time.Duration:
				args[i] = float64(time.Now().UnixMilli()) + float64(arg)/float64(time.Millisecond)
			}
		}
		p.Do(ctx, args...)
	}
}

// hostile runs every operation on every state, several hundred pairs at a time, through a few Clients.
func hostile(f *fault) {
	const abreast, patience = 48, 500 * time.Millisecond
	s, ctx := redistest.Start(f), context.Background()
	a := newFleet(f, at(s.Addr(), func(o *redis.Options) { o.PoolSize = 200 }))
	rdb := s.Client(f)
	a.set(beside, rate(ample, time.Second))
	var (
		mu      sync.Mutex
		errs    = map[string]int{}
		wrong   []string
		most    float64 // of a window, of the rate
		longest time.Duration
		running sync.WaitGroup
		room    = make(chan struct{}, abreast)
		pairs   int
	)
	begin, list := time.Now(), states()
	for i, st := range list {
		for j, op := range operations {
			pairs++
			room <- struct{}{}
			running.Go(func() {
				defer func() { <-room }()
				name := fmt.Sprintf("hostile.%d.%d", i, j)
				p := &pair{c: a.clients[(i+j)%fleetSize], rdb: rdb, name: name, state: st, op: op}
				took, err := p.operate(ctx, patience)
				fullest, bad := p.afterwards(ctx)
				mu.Lock()
				defer mu.Unlock()
				longest, most = max(longest, took), max(most, fullest)
				if err != nil {
					if k := kind(err); strings.Contains(err.Error(), "WRONGTYPE") {
						errs["WRONGTYPE"]++
					} else {
						errs[k]++
					}
					if strange(err) && !(op.hurries() && errors.Is(err, ratelimiter.ErrUnavailable)) {
						bad = append(bad, err.Error())
					}
				}
				for _, b := range bad {
					wrong = append(wrong, fmt.Sprintf("%s, then %s: %s", st.name, op.name, b))
				}
			})
		}
	}
	running.Wait()
	f.measured("%d states × %d operations: %d sound answers, %s; longest call %v, of which up to %v its own context; fullest window an interval later %.2f of the rate; %d outages; %d findings",
		len(list), len(operations), pairs-sum(errs), counted(errs), round(longest), patience, most, a.began.Load(), len(wrong))
	for _, w := range wrong[:min(30, len(wrong))] {
		f.Error(w)
	}
	require.Empty(f, wrong[min(30, len(wrong)):])
	require.Zero(f, a.began.Load(), "outages")
	f.within("a call", begin, longest, patience+2*time.Second)
}

// strange reports whether err is none that a state justifies. A reply of Redis is justified by a key of another type
// only: any other one would be that of a script that has failed half way.
func strange(err error) bool {
	var reply redis.Error
	return !named(err) || errors.As(err, &reply) && !strings.Contains(err.Error(), "WRONGTYPE") && kind(err) == "an error of Redis"
}

func sum(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

// A pair is an operation on a state.
type pair struct {
	c     *ratelimiter.Client
	rdb   *redis.Client
	name  string
	state state
	op    operation
	late  bool // the operation may yet be executed, since its caller has left it
}

// operate makes the state and calls the operation.
func (p *pair) operate(ctx context.Context, patience time.Duration) (took time.Duration, err error) {
	hash, value, set := keysOf(p.name)
	_, err = p.rdb.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		tx.HSet(ctx, hash, "rate", hostilePermits, "interval", hostileInterval.Milliseconds(), "keepAliveTime", 0, "type", 0)
		tx.Set(ctx, value, hostilePermits-4, 0)
		tx.ZAdd(ctx, set, redis.Z{Score: float64(time.Now().UnixMilli()), Member: member('g', 4)})
		p.state.make(ctx, tx, []string{hash, value, set})
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("the state cannot be made: %w", errors.New(err.Error()))
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	begin := time.Now()
	_, err = safely(func() (int64, error) { return p.op.call(ctx, p.c, p.name) })
	p.late = err != nil && ctx.Err() != nil && !p.op.grants
	return time.Since(begin), err
}

// afterwards uses the limiter, and returns the fullest window from an interval later on as a part of the rate. Then it
// deletes the limiter, sets it anew and finds it sound.
func (p *pair) afterwards(ctx context.Context) (most float64, bad []string) {
	l := p.c.RateLimiter(p.name)
	burst := func(b *grantlog.Ledger, permits int64) {
		for range 2 * permits {
			begin := time.Now()
			r, err := l.Allow(ctx, 1)
			b.Note(begin, 1, r.Granted, r.Degraded, err)
			if err != nil || !r.Granted {
				if err != nil && strange(err) {
					bad = append(bad, "afterwards "+err.Error())
				}
				return
			}
		}
	}
	if r, err := l.Rate(ctx); err == nil && r.Permits <= 100 && r.Interval <= time.Second {
		burst(&grantlog.Ledger{}, r.Permits)
		time.Sleep(r.Interval + 20*time.Millisecond)
		b := &grantlog.Ledger{}
		for begin := time.Now(); time.Since(begin) < 2*r.Interval; time.Sleep(r.Interval / 4) {
			burst(b, r.Permits)
		}
		most = float64(fullest(b.Told().Grants, r.Interval)) / float64(r.Permits)
		if most > 1 {
			bad = append(bad, fmt.Sprintf("%.2f of the rate %v in a window", most, r))
		}
	}
	if _, err := l.Delete(ctx); err != nil {
		return most, append(bad, "Delete: "+err.Error())
	}
	if ok, err := l.TrySetRate(ctx, rate(hostilePermits, time.Hour)); err != nil || !ok {
		return most, append(bad, fmt.Sprintf("TrySetRate: %v, %v", ok, err))
	}
	b := &grantlog.Ledger{}
	burst(b, hostilePermits)
	if n := b.Told().Permits(); n != hostilePermits && !p.late {
		state, err := l.Inspect(ctx)
		bad = append(bad, fmt.Sprintf("after Delete and TrySetRate %d granted of %d: %s %s, and Redis has %+v, %v", n, hostilePermits, counted(b.Told().Errors), counted(b.Told().Unavailable), state, err))
	}
	_, _ = l.Delete(ctx)
	return most, bad
}
