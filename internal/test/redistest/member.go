// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"math/rand/v2"
)

// LuaPack is an oracle that knows nothing of the codec: Lua's struct.pack for the formats in use, little
// endian, byte by byte.
func LuaPack(format string, length int, id []byte, permits uint32) []byte {
	var b []byte
	for _, f := range format {
		switch f {
		case 'f':
			b = append(b, id[:4]...) // any four bytes are a float
		case 'B':
			b = append(b, byte(length))
		case 'L':
			b = append(b, byte(length), 0, 0, 0, 0, 0, 0, 0)
		case 'c':
			b = append(b, id[:length]...)
		case 'I':
			b = append(b, byte(permits), byte(permits>>8), byte(permits>>16), byte(permits>>24))
		}
	}
	return b
}

// JavaMembers has one member of each layout, as the versions of Redisson write them.
func JavaMembers(permits uint32) [][]byte {
	id := make([]byte, 16)
	for i := range id {
		id[i] = byte(rand.Uint32())
	}
	return [][]byte{
		LuaPack("fI", 0, id, permits),
		LuaPack("LcI", 8, id, permits),
		LuaPack("BcI", 8, id, permits),
		LuaPack("BcI", 16, id, permits),
	}
}
