// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/redistest"
)

// A state is what a limiter of hostileRate may be found in.
type state struct {
	name string
	make func(p redis.Pipeliner, hash, value, set string)
}

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

// states returns every hostile state: a sound limiter with one thing wrong.
func states() (list []state) {
	ctx := context.Background()
	add := func(name string, f func(p redis.Pipeliner, hash, value, set string)) {
		list = append(list, state{name, f})
	}
	field := func(field string, values ...string) {
		for _, v := range values {
			add(fmt.Sprintf("%s is %q", field, v), func(p redis.Pipeliner, hash, _, _ string) {
				if v == absent {
					p.HDel(ctx, hash, field)
				} else {
					p.HSet(ctx, hash, field, v)
				}
			})
		}
	}
	field("rate", numbers...)
	field("interval", append([]string{"9223372036854775"}, numbers...)...) // 292 years
	field("type", absent, "", "1", "2", "-1", "abc", "1e400", "01")
	field("keepAliveTime", "", "abc", "099", "-5", "2.5", "1e400", "nan", "9007199254740993", "1")
	field("minGap", "abc", "-5", "1e400", "9007199254740993", "10000")
	field("coolDown", "abc", "-5", "1e400", "nan", "1", "9007199254740993", "11000000000000")
	field("reopenUntil", "abc", "1e400", "9007199254740993", "11000000000000")
	for _, v := range append([]string{"100", "-1000000", "9007199254740992", "-9007199254740992"}, numbers...) {
		add(fmt.Sprintf("value is %q", v), func(p redis.Pipeliner, _, value, _ string) {
			if v == absent {
				p.Del(ctx, value)
			} else {
				p.Set(ctx, value, v, 0)
			}
		})
	}
	for i, what := range []string{"hash", "value", "set"} {
		for typ, put := range map[string]func(p redis.Pipeliner, key string){
			"string": func(p redis.Pipeliner, key string) { p.Set(ctx, key, "6", 0) },
			"list":   func(p redis.Pipeliner, key string) { p.RPush(ctx, key, "6") },
			"set":    func(p redis.Pipeliner, key string) { p.SAdd(ctx, key, "6") },
			"zset":   func(p redis.Pipeliner, key string) { p.ZAdd(ctx, key, redis.Z{Score: 6, Member: "6"}) },
			"hash":   func(p redis.Pipeliner, key string) { p.HSet(ctx, key, "6", "6") },
			"stream": func(p redis.Pipeliner, key string) {
				p.XAdd(ctx, &redis.XAddArgs{Stream: key, Values: []string{"6", "6"}})
			},
		} {
			if what == typ || what == "value" && typ == "string" || what == "set" && typ == "zset" {
				continue
			}
			add(fmt.Sprintf("the %s is a %s", what, typ), func(p redis.Pipeliner, hash, value, set string) {
				key := []string{hash, value, set}[i]
				p.Del(ctx, key)
				put(p, key)
			})
		}
	}
	now := func() float64 { return float64(time.Now().UnixMilli()) }
	members := func(name string, value int64, list func() []redis.Z) {
		add(name, func(p redis.Pipeliner, _, valueKey, set string) {
			p.Del(ctx, set)
			p.Set(ctx, valueKey, value, 0)
			for z := range sliced(list()) {
				p.ZAdd(ctx, set, z...)
			}
		})
	}
	grants := func(n int, permits uint32, score func() float64) func() []redis.Z {
		return func() (list []redis.Z) {
			for i := range n {
				m := []byte(member('m', permits))
				binary.BigEndian.PutUint32(m[4:], uint32(i))
				list = append(list, redis.Z{Score: score(), Member: string(m)})
			}
			return list
		}
	}
	text := func(texts ...string) func() []redis.Z {
		return func() (list []redis.Z) {
			for _, s := range texts {
				list = append(list, redis.Z{Score: now(), Member: s})
			}
			return list
		}
	}
	members("no member, value 6", 6, func() []redis.Z { return nil })
	members("no member, value 0", 0, func() []redis.Z { return nil })
	members("members of no bytes, one, many", 6, text("", "x", "\xff", string(make([]byte, 300))))
	members("a member of 2^32-1 permits", 6, text(member('a', math.MaxUint32)))
	members("a member of 0 permits", 6, text(member('a', 0)))
	members("a member cut short", 6, text(member('a', 4)[:12], member('b', 4)[:20]))
	members("what looks like a tripwire", 6, text("\x10~w~\x01\x00\x00\x00"+string(make([]byte, 9))+"\x01\x00\x00\x00"))
	members("what looks like a block", 6, text("\x10~c~\x04\x00\x00\x00"+string(make([]byte, 9))+"\x04\x00\x00\x00"))
	members("a grant an hour ahead", 6, grants(1, 4, func() float64 { return now() + 3_600_000 }))
	members("a grant 292 years ahead", 6, grants(1, 4, func() float64 { return now() + 9.2e12 }))
	members("ten grants 5 s ahead", 0, grants(10, 1, func() float64 { return now() + 5000 }))
	members("a grant at +inf", 6, grants(1, 4, func() float64 { return math.Inf(1) }))
	members("a grant at -inf", 6, grants(1, 4, func() float64 { return math.Inf(-1) }))
	members("a grant at 2^53 ms", 6, grants(1, 4, func() float64 { return 1 << 53 }))
	members("a grant at half a ms", 6, grants(1, 4, func() float64 { return now() + .5 }))
	members("ten rates in use", 0, grants(10, 10, now))
	members("ten rates in use, and the value at the rate", 10, grants(10, 10, now))
	members("2000 grants in use", 0, grants(2000, 1, now))
	members("2000 grants in use, no value", 10, grants(2000, 1, now))
	members("2000 grants expired", 0, grants(2000, 1, func() float64 { return now() - 1000 }))
	members("permits leaked", 0, grants(4, 1, now))
	members("permits twice", 10, grants(4, 1, now))
	add("no hash", func(p redis.Pipeliner, hash, _, _ string) { p.Del(ctx, hash) })
	add("no key at all", func(p redis.Pipeliner, hash, value, set string) { p.Del(ctx, hash, value, set) })
	add("neither value nor set", func(p redis.Pipeliner, _, value, set string) { p.Del(ctx, value, set) })
	for i, what := range []string{"hash", "value", "set"} {
		add("the "+what+" expires in 20 ms", func(p redis.Pipeliner, hash, value, set string) {
			p.PExpire(ctx, []string{hash, value, set}[i], 20*time.Millisecond)
		})
	}
	return list
}

// sliced yields the list in parts that a command takes.
func sliced(list []redis.Z) func(yield func([]redis.Z) bool) {
	return func(yield func([]redis.Z) bool) {
		for len(list) > 0 {
			n := min(500, len(list))
			if !yield(list[:n]) {
				return
			}
			list = list[n:]
		}
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
		p.state.make(tx, hash, value, set)
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
	burst := func(b *ledger, permits int64) {
		for range 2 * permits {
			begin := time.Now()
			r, err := l.Allow(ctx, 1)
			b.note(begin, 1, r.Granted, r.Degraded, err)
			if err != nil || !r.Granted {
				if err != nil && strange(err) {
					bad = append(bad, "afterwards "+err.Error())
				}
				return
			}
		}
	}
	if r, err := l.Rate(ctx); err == nil && r.Permits <= 100 && r.Interval <= time.Second {
		burst(&ledger{}, r.Permits)
		time.Sleep(r.Interval + 20*time.Millisecond)
		b := &ledger{}
		for begin := time.Now(); time.Since(begin) < 2*r.Interval; time.Sleep(r.Interval / 4) {
			burst(b, r.Permits)
		}
		most = float64(fullest(b.all(), r.Interval)) / float64(r.Permits)
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
	b := &ledger{}
	burst(b, hostilePermits)
	if n := b.total(); n != hostilePermits && !p.late {
		state, err := l.Inspect(ctx)
		bad = append(bad, fmt.Sprintf("after Delete and TrySetRate %d granted of %d: %s %s, and Redis has %+v, %v", n, hostilePermits, counted(b.wrong), counted(b.away), state, err))
	}
	_, _ = l.Delete(ctx)
	return most, bad
}
