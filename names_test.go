package ratelimiter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestNameThatIsAKeyOfAnotherLimiter checks that a limiter whose name is a key of another one, such as {alice}:value
// beside alice, gets an error that names it, and takes nothing from the other.
func TestNameThatIsAKeyOfAnotherLimiter(t *testing.T) {
	inWorld(t, overall(5, time.Minute), func(t *testing.T, w *world) {
		w.granted(1)
		for _, name := range keysOf(w.l, Overall)[1:] {
			l := w.client.RateLimiter(name)
			_, err := l.Allow(w.ctx, 1)
			rejected := []error{err, l.SetRate(w.ctx, overall(3, time.Second)), l.Acquire(w.ctx, 1), l.Release(w.ctx, 1)}
			_, err = l.TrySetRate(w.ctx, overall(3, time.Second))
			rejected = append(rejected, err)
			_, err = l.Rate(w.ctx)
			rejected = append(rejected, err)
			_, err = w.client.TryAcquireAll(w.ctx, 0, Demand{w.l, 1}, Demand{l, 1})
			rejected = append(rejected, err)
			for _, err := range rejected {
				require.ErrorContains(t, err, "WRONGTYPE")
				require.NotErrorIs(t, err, ErrUnavailable)
			}
		}
		w.available(4)
		w.settled(5)
	})
}
