package ratelimiter

import (
	"fmt"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/stretchr/testify/require"
)

// TestProbeLeavesNoTrace checks that the probe of an outage, which is a write, changes nothing: not in a limiter that
// is in use, nor in one without a rate.
func TestProbeLeavesNoTrace(t *testing.T) {
	for _, typ := range []RateType{Overall, PerClient} {
		inWorld(t, Rate{}, func(t *testing.T, w *world) {
			state := func() map[string]string {
				dumps := map[string]string{}
				for _, key := range keysAll(w.l, typ) {
					if w.rdb.Exists(w.ctx, key).Val() == 1 {
						dumps[key] = fmt.Sprint(w.rdb.Dump(w.ctx, key).Val(), w.rdb.PTTL(w.ctx, key).Val() > 0) // what is left of it goes by
					}
				}
				return dumps
			}
			probe := func() {
				require.NoError(t, w.l.redis.Probe(w.ctx, permit.Type(typ)))
			}
			probe()
			require.Empty(t, state())
			require.NoError(t, w.l.SetRate(w.ctx, Rate{Type: typ, Permits: 10, Interval: time.Minute}))
			before := state()
			probe()
			require.Equal(t, before, state(), "nobody has used it")
			w.granted(3)
			before = state()
			require.Len(t, before, 3)
			probe()
			require.Equal(t, before, state())
		})
	}
}
