// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestMonthBeginsAnewInChina: what is used up comes back on the first of the month in China, for all processes, and at once when more was bought.
func TestMonthBeginsAnewInChina(t *testing.T) {
	if !redistest.TTLsAreVirtual() {
		t.Skip("the server's month is another")
	}
	const user = "https://oapi.dingtalk.com/topapi/v2/user/get"
	inWorld(t, func(t *testing.T, w *world) {
		transport := func(calls int64) *httplimit.Transport {
			return w.transport(base(ok), httplimit.WithMaxWait(0),
				httplimit.WithProfile(DingTalk(w.key, WithMonthlyQuota(w.rdb, "org", calls, httplimit.Match{}))))
		}
		rejected := func(tr *httplimit.Transport) time.Duration {
			_, err := tr.RoundTrip(request(t, "GET", user, nil))
			var e *httplimit.Error
			require.ErrorAs(t, err, &e)
			return e.Wait
		}
		old, bought := transport(2), transport(4)
		get(t, old, user)
		time.Sleep(20 * 24 * time.Hour) // the bubble begins on January 1, 08:00 in China
		get(t, old, user)
		require.Equal(t, 11*24*time.Hour-8*time.Hour, rejected(old))
		time.Sleep(time.Second)
		get(t, bought, user)

		quota := redistest.Must(DingTalkMonth(w.rdb, 2))(t)
		require.NoError(t, quota.For("org").Reset(t.Context()))
		time.Sleep(time.Second)
		get(t, old, user)
		time.Sleep(time.Second)
		get(t, old, user)
		time.Sleep(rejected(old))
		get(t, old, user)
	})
}
