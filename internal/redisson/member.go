package redisson

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// member returns the member that scripts/acquire.lua builds for a grant: Redisson's format Bc0I with the permits
// repeated in bytes 4..7, which Redisson 3.13.3 to 3.16.3 and 3.17.0 to 4.x both read, or Lc0I. The script
// writes members itself; this is how the rest of the library names one.
func (c *Conn) member(id permit.ID, permits uint32) []byte { return Member(c.LongLength, id, permits) }

// Member is [Conn.member] in either format: Lc0I, whose length has 8 bytes, with longLength.
func Member(longLength bool, id permit.ID, permits uint32) []byte {
	if longLength {
		b := binary.LittleEndian.AppendUint64(nil, 8)
		b = append(b, id[:8]...)
		return binary.LittleEndian.AppendUint32(b, permits)
	}
	b := append([]byte{16}, id[:3]...)
	b = binary.LittleEndian.AppendUint32(b, permits)
	b = append(b, id[7:]...)
	return binary.LittleEndian.AppendUint32(b, permits)
}

// RandomID returns an ID that is not a secret; it only does not repeat, nor begin as the members do that are
// nobody's grants.
func RandomID() (id permit.ID) {
	binary.LittleEndian.PutUint64(id[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(id[8:], rand.Uint64())
	if id[0] == '~' {
		id[0] = 0
	}
	return id
}

// NewID returns an ID whose first bytes are the tag of this process, so that others tell its grants from theirs.
func (c *Conn) NewID() permit.ID {
	id := RandomID()
	id[0] = byte(c.tag >> 8)
	if !c.LongLength {
		id[1] = byte(c.tag)
	}
	return id
}

// newTag returns a tag that does not begin with what marks and blocks begin with. In the format Lc0I, whose
// members have few random bytes, it has one byte.
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
