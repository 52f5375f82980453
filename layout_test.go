package ratelimiter

import (
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/stretchr/testify/require"
)

// TestInspectTellsLayoutsApart puts one member of each writer into a set: the three that share a format have
// layouts of their own.
func TestInspectTellsLayoutsApart(t *testing.T) {
	inWorld(t, overall(100, time.Minute), func(t *testing.T, w *world) {
		for i, m := range javaMembers(5) {
			w.put(time.Duration(i)*time.Millisecond, m)
		}
		w.put(5*time.Millisecond, grant(6))
		w.put(6*time.Millisecond, redisson.Member(true, redisson.RandomID(), 7))
		w.put(7*time.Millisecond, []byte("who wrote this?"))
		s, err := w.l.Inspect(w.ctx)
		require.NoError(t, err)
		require.Equal(t, map[MemberLayout]int{LayoutFI: 1, LayoutLc0I: 2, LayoutBc0IShort: 1, LayoutBc0ILong: 1,
			LayoutOurs: 1, LayoutUnknown: 1}, s.Layouts)
		require.Equal(t, map[MemberFormat]int{MemberFI: 1, MemberLc0I: 2, MemberBc0I: 3, MemberUnknown: 1}, s.Formats)
	})
}

// TestGrantsHaveOurLayout checks the layout of what each operation of this package leaves in a set.
func TestGrantsHaveOurLayout(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		w.granted(3)
		require.NoError(t, w.l.Release(w.ctx, 1))
		require.NoError(t, w.l.CoolDown(w.ctx, time.Now().Add(time.Hour)))
		s, err := w.l.Inspect(w.ctx)
		require.NoError(t, err)
		require.Equal(t, map[MemberLayout]int{LayoutOurs: int(s.MemberCount)}, s.Layouts)
	})
}

func TestMemberLayoutInWords(t *testing.T) {
	require.Equal(t, "Bc0I/13", LayoutBc0IShort.String())
	require.Equal(t, "Redisson 3.17.0 to 3.20", LayoutBc0IShort.Writers())
	require.Equal(t, "Redisson 3.17.0 and later", LayoutBc0IShort.Readers())
	require.Equal(t, "Bc0I/21 ours", LayoutOurs.String())
	require.Equal(t, LayoutUnknown.String(), MemberLayout(99).String())
	require.Equal(t, LayoutUnknown, Member{}.Layout())
}
