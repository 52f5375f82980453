// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/hex"
	"testing"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

func TestParseMemberReadsAllLayouts(t *testing.T) {
	want := []Format{FormatFI, FormatLc0I, FormatBc0I, FormatBc0I}
	lengths := []int{4, 8, 8, 16}
	for _, permits := range []uint32{0, 1, 255, 256, 65536, 1<<31 + 7, 1<<32 - 1} {
		for i, b := range redistest.JavaMembers(permits) {
			m, err := ParseMember(b)
			require.NoError(t, err)
			require.Equal(t, want[i], m.Format)
			require.Equal(t, permits, m.Permits)
			require.Len(t, m.ID, lengths[i])
		}
	}
	for _, b := range []string{"", "01", "0102030405060708090a", "09" + "000000000000000001000000"} {
		raw, _ := hex.DecodeString(b)
		m, err := ParseMember(raw)
		require.ErrorIs(t, err, permit.ErrMalformed)
		require.Equal(t, FormatUnknown, m.Format)
	}
}

func FuzzParseMember(f *testing.F) {
	for _, b := range redistest.JavaMembers(77) {
		f.Add(b)
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseMember(b)
		if err != nil {
			require.ErrorIs(t, err, permit.ErrMalformed)
			return
		}
		format := map[Format]string{FormatFI: "fI", FormatLc0I: "LcI", FormatBc0I: "BcI"}[m.Format]
		require.Equal(t, b, redistest.LuaPack(format, len(m.ID), m.ID, m.Permits))
	})
}

func TestLayoutInWords(t *testing.T) {
	require.Equal(t, "Bc0I/13", LayoutBc0IShort.String())
	require.Equal(t, "Redisson 3.17.0 to 3.20", LayoutBc0IShort.Writers())
	require.Equal(t, "Bc0I/21 Go", LayoutOurs.String())
	require.Equal(t, LayoutUnknown.String(), Layout(99).String())
	require.Equal(t, LayoutUnknown, Member{}.Layout())
}
