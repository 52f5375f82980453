// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
)

// The parties: two processes of this package, and Redisson.
const (
	parties = 3
	java    = 2
)

// A state is what Redis holds at an instant, what the processes know, and what has been granted.
type state struct {
	now     int64 // in ms
	keys    []key
	procs   [java]process
	grants  []grant // in use
	lowered uint    // bit set of books that may have more in use than the rate, since it was lowered, and are granted nothing
	over    uint    // bit set of books that hold more than the rate, as documented: see [world.forgive]
	blind   bool    // permits of a reservation, of a lost call or of a process that ended may be in use, and nobody knows whose they are
	sick    bool    // something was lost, so that value and the members may not add up to the rate before the next check
	did     string  // the last step, with what came of it
}

// A process is what one process of this package knows.
type process struct {
	dead, acted bool
	last        call
	reserved    []reservation // by limiter
}

// A call is the last acquire call of a process. Its seq is 0 if there is none.
type call struct {
	limiter int
	seq     byte
	permits int64
	lost    bool // the process has no reply to it
}

// A reservation is what a process knows of its reservation of one limiter. Its seq is 0 if there is none.
type reservation struct {
	seq        byte
	want, held int64
	unsure     bool
	whole      bool // all permits are there
}

// A grant is a number of permits that somebody was granted. A grant whose reply was lost is not told. The member of one
// that is veiled may have become a block of a cool-down, and the permits that a caller gave back then are in use still.
type grant struct {
	limiter, owner int
	seq            byte
	permits, at    int64
	veils          int64 // permits that were given back after the member was veiled
	told, veiled   bool
}

func (s *state) clone() *state {
	c := *s
	c.grants = slices.Clone(s.grants)
	for i := range c.procs {
		c.procs[i].reserved = slices.Clone(s.procs[i].reserved)
	}
	return &c
}

// id returns the id of a call. Its first byte tells whose it is.
func id(owner int, seq byte) permit.ID { return permit.ID{0: 'A' + byte(owner), 15: seq} }

// freeSeq returns the smallest number that no call of a party has that anybody still knows.
func (s *state) freeSeq(owner int) byte {
	used := [256]bool{true}
	for _, g := range s.grants {
		used[g.seq] = used[g.seq] || g.owner == owner
	}
	if owner < java {
		used[s.procs[owner].last.seq] = true
		for _, v := range s.procs[owner].reserved {
			used[v.seq] = true
		}
	}
	for _, k := range s.keys {
		for _, m := range k.set {
			if len(m.raw) == 21 && m.raw[1] == 'A'+byte(owner) {
				used[m.raw[16]] = true
			}
		}
		for _, e := range entries(k) {
			if raw, err := hex.DecodeString(e.name); err == nil && len(raw) == 16 && raw[0] == 'A'+byte(owner) {
				used[raw[15]] = true
			}
		}
	}
	return byte(slices.Index(used[:], false))
}

// key returns a key of Redis, or one that holds nothing.
func (s *state) key(name string) key {
	if i := slices.IndexFunc(s.keys, func(k key) bool { return k.name == name }); i >= 0 {
		return s.keys[i]
	}
	return key{name: name}
}

// An entry is that of a caller which takes permits ahead of their return.
type entry struct {
	name        string
	till, since int64
}

func isAhead(name string) bool { return strings.Contains(name, ":ahead") }

// entries returns what a key of those who take permits ahead holds.
func entries(k key) (list []entry) {
	if !isAhead(k.name) {
		return nil
	}
	f := strings.Fields(k.text)
	for ; len(f) >= 3; f = f[3:] {
		till, _ := strconv.ParseInt(f[1], 10, 64)
		since, _ := strconv.ParseInt(f[2], 10, 64)
		list = append(list, entry{f[0], till, since})
	}
	return list
}

func (k key) used() (n int64) {
	for _, m := range k.set {
		n += permitsOf(m.raw)
	}
	return n
}

// memberOf returns the member of a call in k, whatever it holds.
func (k key) memberOf(id permit.ID) (found member, ok bool) {
	for _, m := range k.set {
		if len(m.raw) == 21 && string(redisson.Member(false, id, uint32(permitsOf(m.raw)))) == m.raw {
			return m, true
		}
	}
	return member{}, false
}

// instantFields are the fields of the hash that hold an instant.
var instantFields = []string{"coolDown", "reopenUntil", "keptUntil"}

// encodeKeys appends what Redis holds, with instants relative to now, so that states are the same that differ in their
// instant alone. What known returns takes the place of an id.
func (s *state) encodeKeys(b []byte, known func(id string) string) []byte {
	instant := func(b []byte, t int64) []byte { return binary.AppendVarint(b, t-s.now) }
	for _, k := range s.keys {
		b = binary.AppendVarint(append(append(b, k.name...), 0), k.ttl)
		switch {
		case isAhead(k.name):
			for _, e := range entries(k) {
				name := e.name
				if id, err := hex.DecodeString(name); err == nil && len(id) == 16 {
					name = known(string(id))
				}
				b = instant(append(b, name...), e.till)
				if e.since != 0 {
					b = instant(b, e.since)
				}
				b = append(b, 0)
			}
		case k.hash != nil:
			for _, f := range slices.Sorted(maps.Keys(k.hash)) {
				b = append(append(b, f...), 0)
				if slices.Contains(instantFields, f) {
					t, _ := strconv.ParseInt(k.hash[f], 10, 64)
					b = instant(b, t)
				} else {
					b = append(append(b, k.hash[f]...), 0)
				}
			}
		case k.set != nil:
			for _, m := range k.set {
				b = binary.AppendVarint(instant(b, m.score), permitsOf(m.raw))
				if m.raw[1] == '~' {
					t := int64(binary.BigEndian.Uint64([]byte("\x00\x00"+m.raw[8:14])) &^ (1 << 47))
					b = append(append(instant(b, t), m.raw[:4]...), m.raw[8]&0x80, m.raw[14])
				} else {
					b = append(append(b, known(m.raw[1:4]+"\x00\x00\x00\x00"+m.raw[8:17])...), 0)
				}
			}
		default:
			b = append(append(b, k.text...), 0)
		}
	}
	return b
}

// encodeRedis appends what Redis holds, and which of it the reservations of processes are.
func (s *state) encodeRedis(b []byte) []byte {
	reserved := map[string]string{}
	for p := range s.procs {
		b = fmt.Append(b, s.procs[p].dead)
		for l, v := range s.procs[p].reserved {
			b = fmt.Append(b, v.seq > 0, v.want, v.held, v.unsure)
			id := id(p, v.seq)
			reserved[string(id[:])] = fmt.Sprint("p", p, l)
		}
	}
	return s.encodeKeys(b, func(id string) string { return reserved[id] })
}

// encode appends the whole state except for the way to it.
func (s *state) encode(b []byte) []byte {
	b = s.encodeKeys(b, func(id string) string { return id })
	for i := range s.procs {
		p := &s.procs[i]
		b = fmt.Append(b, p.dead, p.acted, p.last, p.reserved)
	}
	slices.SortFunc(s.grants, func(a, b grant) int {
		return cmp.Or(a.limiter-b.limiter, a.owner-b.owner, int(a.seq)-int(b.seq), int(a.permits-b.permits))
	})
	for _, g := range s.grants {
		g.at -= s.now
		b = fmt.Append(b, g)
	}
	return fmt.Append(b, s.over, s.lowered, s.blind, s.sick)
}
