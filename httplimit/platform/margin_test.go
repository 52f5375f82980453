// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestWhatTheMarginCovers: requests of which one in 20 is 500 ms late exceed DingTalk's 20 a second with the default
// margin, which covers delays that differ by up to 50 ms. With a margin of Transport.Delays' Spread none does.
func TestWhatTheMarginCovers(t *testing.T) {
	redistest.NoRace(t, "it takes virtual hours")
	run := func(t *testing.T, late time.Duration, opts ...Option) (worst int, spread time.Duration) {
		inWorld(t, func(t *testing.T, w *world) {
			var mu sync.Mutex
			var sent int
			var arrived []time.Duration
			tr, err := httplimit.New(w.client, httplimit.WithProfile(DingTalk(w.key, opts...)),
				httplimit.WithBase(base(func(r *http.Request) (*http.Response, error) {
					mu.Lock()
					sent++
					delay := 10 * time.Millisecond
					if sent%40 == 7 || sent%40 == 8 {
						delay += late
					}
					mu.Unlock()
					time.Sleep(delay)
					mu.Lock()
					arrived = append(arrived, w.elapsed())
					mu.Unlock()
					return ok(r)
				})))
			require.NoError(t, err)
			var all sync.WaitGroup
			for range 171 {
				all.Go(func() {
					resp := redistest.Must(tr.RoundTrip(request(t, "GET", "https://oapi.dingtalk.com/topapi/v2/user/get", nil)))(t)
					require.NoError(t, resp.Body.Close())
				})
			}
			all.Wait()
			slices.Sort(arrived)
			for i, at := range arrived {
				end, _ := slices.BinarySearchFunc(arrived, at+time.Second, cmp.Compare[time.Duration])
				worst = max(worst, end-i)
			}
			spread = tr.Delays("oapi.dingtalk.com").Spread()
		})
		return worst, spread
	}
	worst, spread := run(t, 49*time.Millisecond)
	require.LessOrEqual(t, worst, 20)
	require.Equal(t, 49*time.Millisecond, spread)
	worst, spread = run(t, 500*time.Millisecond)
	require.Equal(t, 21, worst)
	require.Equal(t, 500*time.Millisecond, spread)
	worst, _ = run(t, 500*time.Millisecond, WithMargin(spread+time.Millisecond))
	require.LessOrEqual(t, worst, 20)
}
