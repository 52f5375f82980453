package ratelimiter

import (
	"encoding/binary"
	"fmt"
)

// MemberFormat is a layout of the members of a permits set. Which one a Redisson reads and writes
// depends on its version; see docs/protocol.md.
type MemberFormat uint8

const (
	// MemberUnknown is a member that no Redisson writes.
	MemberUnknown MemberFormat = iota
	// MemberFI is the 8-byte layout of Redisson 3.13.3 to 3.16.3 (Lua struct "fI"): 4 random bytes,
	// permits.
	MemberFI
	// MemberLc0I is the 20-byte layout of Redisson 3.16.4 to 3.16.8 ("Lc0I"): an 8-byte length of 8,
	// 8 random bytes, permits.
	MemberLc0I
	// MemberBc0I is the layout of Redisson 3.17.0 and later ("Bc0I"): a length byte, 8 (before 3.21.0)
	// or 16 random bytes, permits.
	MemberBc0I
)

// String is the format as Lua's struct library writes it.
func (f MemberFormat) String() string {
	switch f {
	case MemberFI:
		return "fI"
	case MemberLc0I:
		return "Lc0I"
	case MemberBc0I:
		return "Bc0I"
	}
	return "unknown"
}

// Member is one grant as it lies in the permits set.
type Member struct {
	Format  MemberFormat
	ID      []byte // the random part: 4, 8 or 16 bytes
	Permits uint32
}

// ParseMember reads a member of any of the four layouts. Bytes that are none of them come back as
// MemberUnknown with the permits that a reader finds in the last four bytes, and an error that wraps
// ErrMalformed.
func ParseMember(b []byte) (Member, error) {
	m := Member{}
	if len(b) >= 8 {
		m.Permits = binary.LittleEndian.Uint32(b[len(b)-4:])
	}
	switch {
	case len(b) == 8:
		m.Format, m.ID = MemberFI, b[:4:4]
	case len(b) == 13 && b[0] == 8:
		m.Format, m.ID = MemberBc0I, b[1:9:9]
	case len(b) == 20 && binary.LittleEndian.Uint64(b) == 8:
		m.Format, m.ID = MemberLc0I, b[8:16:16]
	case len(b) == 21 && b[0] == 16:
		m.Format, m.ID = MemberBc0I, b[1:17:17]
	default:
		return m, fmt.Errorf("%w: a member of %d bytes (%x) has no known layout", ErrMalformed, len(b), b)
	}
	return m, nil
}
