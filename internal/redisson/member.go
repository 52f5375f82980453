// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/google/uuid"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// Member returns the member that scripts/acquire.lua writes for a grant, for those who look for it. docs/design/protocol.md explains
// the layouts; struct.pack of Redis names them Bc0I and Lc0I:
//
//	byte 0   1..3    4..7      8..16   17..20      Bc0I: Redisson from 3.17.0 on, which reads the permits at the end;
//	16       random  permits   random  permits     3.13.3 to 3.16.3 read them in bytes 4 to 7
//
//	byte 0..7   8..15    16..19                    Lc0I, with longLength: Redisson 3.16.4 to 3.16.8
//	8           random   permits
func Member(longLength bool, id permit.ID, permits uint32) []byte {
	return appendMember(nil, longLength, id, permits)
}

// appendMember is Member in the memory of b, which is empty.
func appendMember(b []byte, longLength bool, id permit.ID, permits uint32) []byte {
	if longLength {
		b = binary.LittleEndian.AppendUint64(b, 8)
		b = append(b, id[:8]...)
		return binary.LittleEndian.AppendUint32(b, permits)
	}
	b = append(b, 16)
	b = append(b, id[:3]...)
	b = binary.LittleEndian.AppendUint32(b, permits)
	b = append(b, id[7:]...)
	return binary.LittleEndian.AppendUint32(b, permits)
}

// IsGrant reports whether m, with that score, is a member as limiters write it. The name of the key does not show that: other
// programs have keys that end in :permits, too. Three of the four layouts begin with bytes that no text begins with. Any eight
// bytes fit the fourth, so its permits and its date have to be plausible: the last four bytes of a text, or of a hash, are a
// large number.
func IsGrant(m []byte, score float64) bool {
	const earliest, latest = 1e11, 1e14 // ms: 1973 and 5138
	if len(m) < 8 {
		return false
	}
	permits := binary.LittleEndian.Uint32(m[len(m)-4:])
	switch {
	case permits == 0:
		return false
	case len(m) == 8:
		return permits < 1<<24 && score >= earliest && score <= latest
	case len(m) == 20:
		return binary.LittleEndian.Uint64(m) == 8
	}
	return len(m) == 13 && m[0] == 8 || len(m) == 21 && m[0] == 16
}

// Expired reports whether the permits of the member m no longer count: it was granted at due or before. Both score, which says when
// that was, and due are in ms since the epoch.
//
// A member whose score was ahead of the clock of acquire carries a mark with the time at which acquire first saw it, in
// bytes 8 to 13. That time counts, too, since nobody knows when it was granted.
func Expired(m []byte, score float64, due int64) bool {
	if score <= float64(due) {
		return true
	}
	if len(m) != 21 || string(m[:4]) != "\x10~t~" {
		return false
	}
	seen := binary.BigEndian.Uint64(append([]byte{0, 0}, m[8:14]...))
	return int64(seen) <= due
}

// RandomID returns an ID that is not secret but does not repeat. It does not begin like the special members that are
// not grants.
func RandomID() (id permit.ID) {
	binary.LittleEndian.PutUint64(id[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(id[8:], rand.Uint64())
	if id[0] == '~' {
		id[0] = 0
	}
	return id
}

// Process returns the tag in the form in which tools show it: four hexadecimal digits.
func (c *Conn) Process() string { return fmt.Sprintf("%04x", c.tag) }

// NewID returns an ID that begins with the tag of this process. By the tag other processes distinguish its grants
// from their own.
func (c *Conn) NewID() permit.ID {
	id := RandomID()
	id[0] = byte(c.tag >> 8)
	if !c.LongLength {
		id[1] = byte(c.tag)
	}
	return id
}

// tagOf returns the tag that the id of a client begins with, and whether it is one: it does not begin like the members of marks and
// blocks.
func tagOf(id uuid.UUID) (tag int, ok bool) {
	return int(id[0])<<8 | int(id[1]), id[0] != '~' && (id[0] != 0 || id[1] != 0)
}

// NewClientID returns a random UUID that begins with a tag, as nearly all do.
func NewClientID() uuid.UUID {
	for {
		id := uuid.New()
		if _, ok := tagOf(id); ok {
			return id
		}
	}
}

// newTag returns the tag of a client: that of its id, if that is a UUID with one, and otherwise a random one. For Lc0I, whose
// members have few random bytes, it has one byte.
func newTag(clientID string, longLength bool) int {
	id, err := uuid.Parse(clientID)
	tag, ok := tagOf(id)
	if !ok || err != nil || len(clientID) != len(id.String()) {
		tag, _ = tagOf(NewClientID())
	}
	if longLength {
		tag &^= 0xff
	}
	return tag
}
