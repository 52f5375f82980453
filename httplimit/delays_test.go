// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestDelays: the figure has the delays of the last minute or two, by host.
func TestDelays(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		n := 0
		tr := w.transport(base(func(r *http.Request) (*http.Response, error) {
			d := 20 * time.Millisecond
			if n++; n%100 == 51 {
				d += 500 * time.Millisecond
			}
			time.Sleep(d)
			return ok(r)
		}), rules(w.limit("a", 999, time.Second)))
		for range 200 {
			get(t, tr, "http://X:80/")
			get(t, tr, "http://y/") // no rule is for it
		}
		d := tr.Delays("x")
		require.EqualValues(t, 200, d.Requests)
		require.Equal(t, 20*time.Millisecond, d.Least)
		require.Equal(t, 520*time.Millisecond, d.Most)
		require.Equal(t, 500*time.Millisecond, d.Spread())
		require.GreaterOrEqual(t, d.P99, 20*time.Millisecond)
		require.LessOrEqual(t, d.P99, 520*time.Millisecond)
		require.Equal(t, Delays{}, tr.Delays("y"))

		time.Sleep(time.Minute)
		n = 0
		get(t, tr, "http://x/")
		require.EqualValues(t, 201, tr.Delays("x").Requests)
		require.Equal(t, 500*time.Millisecond, tr.Delays("x").Spread())
		time.Sleep(time.Minute)
		require.Equal(t, Delays{1, 20 * time.Millisecond, 20 * time.Millisecond, 20 * time.Millisecond}, tr.Delays("x"))
		time.Sleep(2 * time.Minute)
		require.Equal(t, Delays{}, tr.Delays("x"))

		s := &delays{}
		for i := range 3 * maxMeasured {
			s.note(fmt.Sprint(i), 1, time.Now())
		}
		require.Len(t, s.young, maxMeasured)
	})
}

// TestDelayBuckets: each delay is within its bucket, which is an eighth wide at most.
func TestDelayBuckets(t *testing.T) {
	for d := time.Duration(0); d < 1<<62; d = d + d/7 + 1 {
		b := delayBucket(d)
		require.Less(t, d, delayBound(b))
		require.LessOrEqual(t, delayBound(b)-d, d/8+time.Microsecond, "%v", d)
	}
	require.Less(t, delayBucket(1<<63-1), 64*8)
}
