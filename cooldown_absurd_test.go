package ratelimiter

import (
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestCoolDownThatIsNoInstant checks what the operations make of a coolDown and a reopenUntil that no cool-down
// writes: a number beyond 2^53 is an instant far ahead, whatever is no number is none, and no script fails on them,
// least of all after it has written something.
func TestCoolDownThatIsNoInstant(t *testing.T) {
	for _, field := range []string{"coolDown", "reopenUntil"} {
		for v, far := range map[string]bool{"9007199254740994": true, "99999999999999999999": true, "1e400": true, "inf": true,
			"-inf": false, "nan": false, "-5": false, "abc": false, "": false} {
			if redistest.TTLsAreVirtual() && (strings.ContainsAny(v, "en") || len(v) > 18) {
				continue // the Lua of miniredis does not parse these
			}
			far = far && field == "coolDown"
			for _, typ := range []RateType{Overall, PerClient} {
				inWorld(t, Rate{Type: typ, Permits: 3, Interval: time.Second, KeepAlive: time.Minute}, func(t *testing.T, w *world) {
					t.Helper()
					set := func() { require.NoError(t, w.rdb.HSet(w.ctx, w.l.redis.Keys.Hash, field, v).Err()) }
					why := []any{"%s is %q, %v", field, v, typ}
					for range 2 {
						set()
						r, err := w.l.Allow(w.ctx, 1)
						require.NoError(t, err, why...)
						require.Equal(t, far, !r.Granted, why...)
						require.Equal(t, far, r.Wait > 200*365*24*time.Hour, why...)
						_, err = w.l.AvailablePermits(w.ctx)
						require.NoError(t, err, why...)
						until, err := w.l.CoolDownUntil(w.ctx)
						require.NoError(t, err, why...)
						require.Equal(t, far, until.After(time.Now()), why...)
						require.Equal(t, far, !until.IsZero(), why...)
						for _, opts := range [][]RateOption{nil, {KeepState()}} {
							set()
							require.NoError(t, w.l.SetRate(w.ctx, Rate{Type: typ, Permits: 3, Interval: time.Second, KeepAlive: time.Minute}, opts...), why...)
						}
						set()
						require.NoError(t, w.l.Release(w.ctx, 1), why...)
						set()
						require.NoError(t, w.l.CoolDown(w.ctx, time.Now().Add(time.Hour)), why...)
						set()
						_, err = w.l.LiftCoolDown(w.ctx)
						require.NoError(t, err, why...)
						w.granted(1)
						require.NoError(t, w.l.SetRate(w.ctx, Rate{Type: typ, Permits: 3, Interval: time.Second, KeepAlive: time.Minute}))
					}
				})
			}
		}
	}
}
