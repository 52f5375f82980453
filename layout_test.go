package ratelimiter

import (
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/wire"
	"github.com/stretchr/testify/require"
)

// TestInspectTellsLayoutsApart puts one member of each writer into a set: the three that share a format have
// layouts of their own.
func TestInspectTellsLayoutsApart(t *testing.T) {
	inWorld(t, overall(100, time.Minute), func(t *testing.T, w *world) {
		for i, m := range redistest.JavaMembers(5) {
			w.put(time.Duration(i)*time.Millisecond, m)
		}
		w.put(5*time.Millisecond, grant(6))
		w.put(6*time.Millisecond, redisson.Member(true, redisson.RandomID(), 7))
		w.put(7*time.Millisecond, []byte("who wrote this?"))
		s, err := w.l.Inspect(w.ctx)
		require.NoError(t, err)
		require.Equal(t, map[wire.Layout]int{wire.LayoutFI: 1, wire.LayoutLc0I: 2, wire.LayoutBc0IShort: 1, wire.LayoutBc0ILong: 1,
			wire.LayoutOurs: 1, wire.LayoutUnknown: 1}, s.Layouts)
		require.Equal(t, map[wire.Format]int{wire.FormatFI: 1, wire.FormatLc0I: 2, wire.FormatBc0I: 3, wire.FormatUnknown: 1}, s.Formats)
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
		require.Equal(t, map[wire.Layout]int{wire.LayoutOurs: int(s.MemberCount)}, s.Layouts)
	})
}
