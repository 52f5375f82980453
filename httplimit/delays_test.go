// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestDelaySpread: the figures are of the delays of the last minute or two, by host.
func TestDelaySpread(t *testing.T) {
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
		spread := func(host string, want time.Duration, requests int64) {
			t.Helper()
			got, n := tr.DelaySpread(host)
			require.Equal(t, want, got)
			require.Equal(t, requests, n)
		}
		spread("x", 500*time.Millisecond, 200)
		spread("y", 0, 0)

		time.Sleep(time.Minute)
		n = 0
		get(t, tr, "http://x/")
		spread("x", 500*time.Millisecond, 201)
		time.Sleep(time.Minute)
		spread("x", 0, 1)
		time.Sleep(2 * time.Minute)
		spread("x", 0, 0)

		s := &delays{}
		for i := range 3 * maxMeasured {
			s.note(fmt.Sprint(i), 1, time.Now())
		}
		require.Len(t, s.young, maxMeasured)
	})
}
