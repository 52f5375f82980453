package ratelimiter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHeal heals each of the states that do not add up, without taking a permit.
func TestHeal(t *testing.T) {
	for name, c := range map[string]struct {
		value  any // nil for none
		grants []uint32
		want   int64
	}{
		"stuck":         {value: 0, want: 10},
		"lost":          {value: 2, grants: []uint32{3, 1}, want: 6},
		"surplus":       {value: 9, grants: []uint32{3, 1}, want: 9},
		"evicted":       {grants: []uint32{3, 1}, want: 6},
		"no number":     {value: "099", grants: []uint32{3}, want: 7},
		"healthy":       {value: 6, grants: []uint32{3, 1}, want: 6},
		"never used":    {want: 10},
		"far too many":  {value: 10, grants: []uint32{10, 10}, want: 10},
		"below nothing": {value: -5, grants: []uint32{3}, want: 7},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
				if c.value != nil {
					w.setValue(c.value)
				}
				for i, n := range c.grants {
					w.put(time.Duration(i)*time.Millisecond, grant(n))
				}
				w.at(time.Second)
				require.NoError(t, w.l.Heal(w.ctx))
				require.Equal(t, c.want, w.value())
				used, _ := w.used()
				require.EqualValues(t, 10, w.value()+used)
				w.granted(c.want)
			})
		})
	}
}

func TestHealOfNoLimiter(t *testing.T) {
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		require.ErrorIs(t, w.l.Heal(w.ctx), ErrNotInitialized)
		require.NoError(t, w.rdb.HSet(w.ctx, w.l.Name(), "rate", "0", "interval", 1, "type", 0).Err())
		require.ErrorIs(t, w.l.Heal(w.ctx), ErrMalformed)
	})
}
