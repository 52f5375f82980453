// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// A Format is an encoding of the members of a permits set. Which formats a Redisson client reads and writes depends
// on its version; see docs/design/protocol.md.
type Format uint8

const (
	// FormatUnknown is the format of a member that no Redisson version writes.
	FormatUnknown Format = iota
	// FormatFI is the 8-byte layout of Redisson 3.13.3 to 3.16.3 (Lua struct "fI"): 4 random bytes and the
	// permits.
	FormatFI
	// FormatLc0I is the 20-byte layout of Redisson 3.16.4 to 3.16.8 ("Lc0I"): an 8-byte length with the value
	// 8, 8 random bytes, and the permits.
	FormatLc0I
	// FormatBc0I is the layout of Redisson 3.17.0 and later ("Bc0I"): a length byte, 8 random bytes before
	// 3.21.0 or 16 since then, and the permits.
	FormatBc0I
)

// String returns the format in the notation of Lua's struct library.
func (f Format) String() string {
	switch f {
	case FormatFI:
		return "fI"
	case FormatLc0I:
		return "Lc0I"
	case FormatBc0I:
		return "Bc0I"
	}
	return "unknown"
}

// A Member is one grant as it is stored in the permits set.
type Member struct {
	Format  Format
	ID      []byte // the random part: 4, 8 or 16 bytes
	Permits uint32
}

// ParseMember parses a member of any of the four layouts. If the bytes fit none of them, it returns an error that
// wraps ratelimiter.ErrMalformed, and a Member with the format FormatUnknown and the permits that a reader finds in
// the last four bytes.
func ParseMember(b []byte) (Member, error) {
	m := Member{}
	if len(b) >= 8 {
		m.Permits = binary.LittleEndian.Uint32(b[len(b)-4:])
	}
	switch {
	case len(b) == 8:
		m.Format, m.ID = FormatFI, b[:4:4]
	case len(b) == 13 && b[0] == 8:
		m.Format, m.ID = FormatBc0I, b[1:9:9]
	case len(b) == 20 && binary.LittleEndian.Uint64(b) == 8:
		m.Format, m.ID = FormatLc0I, b[8:16:16]
	case len(b) == 21 && b[0] == 16:
		m.Format, m.ID = FormatBc0I, b[1:17:17]
	default:
		return m, fmt.Errorf("%w: a member of %d bytes (%x) has no known layout", permit.ErrMalformed, len(b), b)
	}
	return m, nil
}
