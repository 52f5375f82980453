// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// lastMinute is how many ms of a TTL no world sees, because TTLs run in real time: what has no more left counts as expired,
// and a world that takes as long is not compared.
const lastMinute = 60_000

// A twinState is all that Redis holds of a limiter that two clients use.
type twinState struct {
	at      int64 // when it was read, in ms by the clock of Redis, in which TTLs run
	hash    map[string]string
	hashTTL int64 // all TTLs are in ms, as PTTL returns them
	slots   [3]twinSlot
}

// A twinSlot is the permits left and in use. Slot 0 is that of OVERALL, slots 1 and 2 are the clients' own.
type twinSlot struct {
	has                  bool
	value                int64
	members              twinMembers // in the order of the set
	valueTTL, permitsTTL int64
}

type twinMember struct {
	score, permits int64
	raw            string
}

type twinMembers []twinMember

const noTTL, noKey = -1, -2 // as PTTL returns them

// twinKeys returns the keys of a limiter in the order of a twinState.
func twinKeys(name string, ids [2]string) []string {
	keys := []string{name, "{" + name + "}:value", "{" + name + "}:permits"}
	for _, id := range ids {
		keys = append(keys, "{"+name+"}:value:"+id, "{"+name+"}:permits:"+id)
	}
	return keys
}

// twinLook reads a limiter at one instant.
var twinLook = redis.NewScript(`
local out = {redis.call('HGETALL', KEYS[1]), redis.call('PTTL', KEYS[1])}
for i = 2, #KEYS, 2 do
  out[#out + 1] = {redis.call('GET', KEYS[i]), redis.call('ZRANGE', KEYS[i + 1], 0, -1, 'WITHSCORES'),
    redis.call('PTTL', KEYS[i]), redis.call('PTTL', KEYS[i + 1])}
end
local time = redis.call('TIME')
out[#out + 1] = time[1] * 1000 + math.floor(time[2] / 1000)
return out`)

func parseState(cmd *redis.Cmd) (s twinState, err error) {
	out, err := cmd.Slice()
	if err != nil {
		return s, err
	}
	s.hash = map[string]string{}
	fields := out[0].([]any)
	for i := 0; i < len(fields); i += 2 {
		s.hash[fields[i].(string)] = fields[i+1].(string)
	}
	s.hashTTL = out[1].(int64)
	for i := range s.slots {
		part, slot := out[2+i].([]any), &s.slots[i]
		if text, ok := part[0].(string); ok {
			slot.has = true
			if slot.value, err = strconv.ParseInt(text, 10, 64); err != nil {
				return s, err
			}
		}
		members := part[1].([]any)
		for j := 0; j < len(members); j += 2 {
			raw := members[j].(string)
			score, err := strconv.ParseInt(members[j+1].(string), 10, 64)
			if err != nil || len(raw) < 8 {
				return s, fmt.Errorf("member %q with score %v: %w", raw, members[j+1], err)
			}
			permits := int64(binary.LittleEndian.Uint32([]byte(raw[len(raw)-4:])))
			slot.members = append(slot.members, twinMember{score, permits, raw})
		}
		slot.valueTTL, slot.permitsTTL = part[2].(int64), part[3].(int64)
	}
	s.at = out[2+len(s.slots)].(int64)
	return s, nil
}

// place writes the state s to the keys of a limiter.
func (s twinState) place(ctx context.Context, pipe redis.Pipeliner, keys []string) {
	expire := func(key string, ttl int64) {
		if ttl > 0 {
			pipe.Do(ctx, "pexpire", key, ttl)
		}
	}
	pipe.Del(ctx, keys...)
	if len(s.hash) > 0 {
		pipe.HSet(ctx, keys[0], s.hash)
		expire(keys[0], s.hashTTL)
	}
	for i, slot := range s.slots {
		value, permits := keys[1+2*i], keys[2+2*i]
		if slot.has {
			pipe.Set(ctx, value, slot.value, 0)
			expire(value, slot.valueTTL)
		}
		var zs []redis.Z
		for _, m := range slot.members {
			zs = append(zs, redis.Z{Score: float64(m.score), Member: m.raw})
		}
		if len(zs) > 0 {
			pipe.ZAdd(ctx, permits, zs...)
			expire(permits, slot.permitsTTL)
		}
	}
}

func (s twinState) clone() twinState {
	s.hash = maps.Clone(s.hash)
	for i := range s.slots {
		s.slots[i].members = slices.Clone(s.slots[i].members)
	}
	return s
}

// inFormatOf returns s with its members in the format of version v.
func (s twinState) inFormatOf(v version) twinState {
	s = s.clone()
	for i := range s.slots {
		for j, m := range s.slots[i].members {
			s.slots[i].members[j].raw = memberOf(v, m.permits)
		}
	}
	return s
}

// memberOf returns a member in the format of v. It covers the versions of the differential run: 8 bytes up to 3.16.3,
// 21 from 3.21.0 on.
func memberOf(v version, permits int64) string {
	random := binary.LittleEndian.AppendUint64(nil, rand.Uint64())
	if v.since("3.21.0") {
		random = binary.LittleEndian.AppendUint64(append([]byte{16}, random...), rand.Uint64())
	} else {
		random = random[:4]
	}
	return string(binary.LittleEndian.AppendUint32(random, uint32(permits)))
}

// differs names what differs between s and o. Members are compared by score and permits, whatever their bytes. TTLs that mean
// the same may differ by as much as has passed since the given instant, by the clock of Redis, before which both had the same.
func (s twinState) differs(o twinState, since int64) (what []string) {
	slack := max(s.at, o.at) - since + 1 // both are rounded
	sameTTL := func(a, b int64) bool { return a == b || a >= 0 && b >= 0 && max(a-b, b-a) <= slack }
	note := func(equal bool, format string, args ...any) {
		if !equal {
			what = append(what, fmt.Sprintf(format, args...))
		}
	}
	theirs := func(hash map[string]string) map[string]string { // without what set_rate writes for heal
		hash = maps.Clone(hash)
		delete(hash, "keptUntil")
		return hash
	}
	note(maps.Equal(theirs(s.hash), theirs(o.hash)), "hash %v, %v", s.hash, o.hash)
	note(sameTTL(s.hashTTL, o.hashTTL), "ttl of the hash %d, %d", s.hashTTL, o.hashTTL)
	for i, a := range s.slots {
		b := o.slots[i]
		note(a.has == b.has && a.value == b.value, "value[%d] %s, %s", i, a.left(), b.left())
		note(sameTTL(a.valueTTL, b.valueTTL), "ttl of value[%d] %d, %d", i, a.valueTTL, b.valueTTL)
		note(slices.EqualFunc(a.inOrder(), b.inOrder(), func(m, n twinMember) bool {
			return m.score == n.score && m.permits == n.permits
		}), "permits[%d] %v, %v", i, a.inOrder(), b.inOrder())
		note(sameTTL(a.permitsTTL, b.permitsTTL), "ttl of permits[%d] %d, %d", i, a.permitsTTL, b.permitsTTL)
	}
	return what
}

// inOrder returns the members ordered by score and permits. In Redis members of one score are ordered by their random
// bytes.
func (s twinSlot) inOrder() twinMembers {
	return slices.SortedFunc(slices.Values(s.members), func(m, n twinMember) int {
		return slices.Compare([]int64{m.score, m.permits}, []int64{n.score, n.permits})
	})
}

func (s twinSlot) left() string {
	if !s.has {
		return absent
	}
	return strconv.FormatInt(s.value, 10)
}

func (m twinMember) String() string { return fmt.Sprintf("%d@%d", m.permits, m.score) }

func (s twinState) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v ttl %d", s.hash, s.hashTTL)
	for i, slot := range s.slots {
		if slot.has || len(slot.members) > 0 {
			fmt.Fprintf(&b, " [%d] value %s ttl %d permits %v ttl %d", i, slot.left(), slot.valueTTL, slot.members, slot.permitsTTL)
		}
	}
	return b.String()
}

// number returns a field of the hash.
func (s twinState) number(field string) int64 {
	n, _ := strconv.ParseInt(s.hash[field], 10, 64)
	return n
}

func (s twinState) initialized() bool {
	return s.hash["rate"] != "" && s.hash["interval"] != "" && s.hash["type"] != ""
}

// byName returns the state as snapshots has it, with or without that of the second client.
func (s twinState) byName(both bool) map[string]string {
	out := map[string]string{}
	ttl := func(what string, ms int64) {
		if out[what+" ttl"] = strconv.FormatInt(ms, 10); ms == noTTL {
			out[what+" ttl"] = "none"
		} else if ms == noKey {
			delete(out, what+" ttl")
		}
	}
	for field, value := range s.hash {
		out["hash "+field] = value
	}
	ttl("hash", s.hashTTL)
	for i, of := range []string{"", " of client", " of newest"} {
		slot := s.slots[i]
		if i == 2 && !both {
			break
		}
		if slot.has {
			out["value"+of] = strconv.FormatInt(slot.value, 10)
		}
		if len(slot.members) > 0 {
			out["permits"+of+" used"] = strconv.FormatInt(slot.members.total(), 10)
			out["permits"+of+" members"] = strconv.Itoa(len(slot.members))
		}
		ttl("value"+of, slot.valueTTL)
		ttl("permits"+of, slot.permitsTTL)
	}
	return out
}

// slotOf returns the index of the slot with a client's permits of a type.
func slotOf(typ string, client int) int {
	if typ == "1" {
		return 1 + client
	}
	return 0
}

// split returns the expired members and the others.
func (s twinSlot) split(now, interval int64) (expired, live twinMembers) {
	i := 0
	for i < len(s.members) && s.members[i].score <= now-interval {
		i++
	}
	return s.members[:i], s.members[i:]
}

func (l twinMembers) total() (n int64) {
	for _, m := range l {
		n += m.permits
	}
	return n
}

// oldest returns the oldest n permits of l.
func (l twinMembers) oldest(n int64) (out twinMembers) {
	for _, m := range l {
		if m.permits = min(m.permits, n); m.permits > 0 {
			out = append(out, m)
		}
		n -= m.permits
	}
	return out
}
