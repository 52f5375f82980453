// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// Member returns the member that scripts/acquire.lua writes for a grant, in one of two layouts of little-endian numbers:
//
//	Bc0I  16 (1 byte)   ID, 16 bytes   permits (4 bytes)
//	Lc0I  8 (8 bytes)   ID, 8 bytes    permits (4 bytes)
//
// In Bc0I, bytes 3 to 6 of the ID are the permits once more: Redisson 3.13.3 to 3.16.3 reads them there, at bytes 4 to 7
// of the member, and Redisson 3.17.0 to 4.x at the end. Lc0I is for longLength, which WithRedisson316 sets:
// Redisson 3.16.4 to 3.16.8 reads no other layout.
//
// Scripts get the member as an argument: acquire derives the members of a call from it, others find a grant by it.
func Member(longLength bool, id permit.ID, permits uint32) []byte {
	if longLength {
		b := binary.LittleEndian.AppendUint64(make([]byte, 0, 20), 8)
		b = append(b, id[:8]...)
		return binary.LittleEndian.AppendUint32(b, permits)
	}
	b := append(make([]byte, 0, 21), 16)
	b = append(b, id[:3]...)
	b = binary.LittleEndian.AppendUint32(b, permits)
	b = append(b, id[7:]...)
	return binary.LittleEndian.AppendUint32(b, permits)
}

// Expired reports whether the permits of the member m have expired. Its score and due are in ms since the epoch, and due
// is the date of the newest grants that have expired. A grant whose score was ahead of the clock of Redis stands in the
// set as a mark, which has the time at which acquire first saw it; that time counts if it is earlier than the score.
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

// newTag returns a tag that does not begin like the members of marks and blocks. For Lc0I, whose members have few
// random bytes, the tag has one byte.
func newTag(longLength bool) int {
	for {
		if tag := rand.IntN(1 << 16); tag>>8 != '~' {
			if longLength {
				tag &^= 0xff
			}
			return tag
		}
	}
}
