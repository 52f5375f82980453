// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
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
	"keptUntil":     {"abc", "-5", "1e400", "nan", "9007199254740993"},
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
	for _, v := range append([]string{"100", "-1000000", "9007199254740992", "-9007199254740992", "9007199254740993", "-9007199254740993"}, numbers[1:]...) {
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
