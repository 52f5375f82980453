// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/stretchr/testify/require"
)

// TestQuota: a request takes permits of the quota, too, is rejected at once where the next day is too far away, and waits for it where
// it is not.
func TestQuota(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		shared := redistest.Must(limit.NewShared(w.rdb, w.key, limit.CalendarQuota{Permits: 3, Per: limit.Day, Location: time.UTC}, limit.WithClientClock()))(t)
		l := w.limit("a", 100, time.Minute)
		l.Quota, l.Weight = shared, 2
		begin := time.Now().UTC()
		midnight := begin.Truncate(24 * time.Hour).Add(24 * time.Hour)
		tr := w.transport(base(ok), rules(l), WithMaxWait(time.Minute))
		get(t, tr, "http://x/")
		e := rejected(t, tr, request(t, "GET", "http://x/", nil))
		require.Equal(t, Error{Limiter: w.key + "a", Wait: time.Until(midnight), MaxWait: time.Minute, BoundBy: BoundTransport, Reason: ReasonWait}, *e)
		require.EqualValues(t, 98, w.available("a"), "and took nothing")

		time.Sleep(time.Until(midnight) - 20*time.Second)
		get(t, tr, "http://x/")
		require.Equal(t, midnight, time.Now().UTC())
		require.EqualValues(t, 1, redistest.Must(shared.Peek(t.Context(), 1))(t).Available)
	})
}

// A brokenQuota fails, or panics.
type brokenQuota struct{ err error }

func (q brokenQuota) Allow(context.Context, int64) (limit.Result, error) {
	if q.err == nil {
		panic("broken")
	}
	return limit.Result{}, q.err
}
func (q brokenQuota) Peek(ctx context.Context, n int64) (limit.Result, error) { return q.Allow(ctx, n) }

func TestBrokenQuota(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, q := range []brokenQuota{{}, {errors.New("broken")}, {ratelimiter.ErrUnavailable}} {
			l := w.limit("a", 100, time.Minute)
			l.Quota = q
			require.Equal(t, ReasonUnavailable, rejected(t, w.transport(base(ok), rules(l)), request(t, "GET", "http://x/", nil)).Reason)
			open := ratelimiter.FailOpen()
			l.OutagePolicy = &open
			get(t, w.transport(base(ok), rules(l)), "http://x/")
		}
	})
}
