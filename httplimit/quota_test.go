// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/stretchr/testify/require"
)

// TestQuotaAlone: a month's tokens are the whole limit, and are settled to what was used, alone and beside a rate.
func TestQuotaAlone(t *testing.T) {
	for _, beside := range []bool{false, true} {
		inWorld(t, func(t *testing.T, w *world) {
			month := redistest.Must(limit.NewShared(w.rdb, w.key, limit.CalendarQuota{Permits: 20, Per: limit.Month, Location: time.UTC}, limit.WithClientClock()))(t)
			left := func() int64 { return redistest.Must(month.Peek(t.Context(), 1))(t).Available }
			settled := 0
			l := Limit{Name: "tokens", Quota: month, Weight: 10, Settle: func(r *http.Response) int64 { settled++; return used(r) }}
			if beside {
				l.Name, l.Rate = w.key+"tokens", ratelimiter.Rate{Permits: 100, Interval: time.Hour}
			}
			tr := w.transport(always("used 3"), rules(l), WithMaxWait(time.Minute))
			get(t, tr, "http://x/")
			require.EqualValues(t, 17, left())
			require.Equal(t, 1, settled, "it reads the response once")
			get(t, tr, "http://x/")
			get(t, tr, "http://x/")
			require.EqualValues(t, 11, left())
			get(t, tr, "http://x/")
			e := rejected(t, tr, request(t, "GET", "http://x/", nil))
			require.Equal(t, l.Name, e.Limiter)
			require.Equal(t, ReasonWait, e.Reason)
			require.EqualValues(t, 8, left())
			if beside {
				require.EqualValues(t, 88, w.available("tokens"))
			}
		})
	}
}

// TestQuotaErrors: a quota that cannot do what its limit asks for is an error of that field.
func TestQuotaErrors(t *testing.T) {
	local := func(a limit.Algorithm) limit.Limiter { return redistest.Must(limit.NewLocal(a))(t) }
	five := ratelimiter.Rate{Permits: 5, Interval: time.Second}
	rate := ratelimiter.Rate{Permits: 1, Interval: time.Second}
	for field, l := range map[string]Limit{
		"rules[0].limits[0].settle":      {Name: "x", Quota: local(limit.LeakyQueue{Rate: five, Capacity: 5}), Settle: used},
		"rules[0].limits[0].weight":      {Name: "x", Quota: local(limit.FixedWindow{Rate: five}), Weight: 6},
		"rules[0].limits[0].quota":       {Name: "x", Quota: &limit.Local{}},
		"rules[0].limits[0].leave_free":  {Name: "x", Quota: local(limit.FixedWindow{Rate: five}), LeaveFree: 1},
		"rules[0].limits[0]":             {Name: "x", Rate: rate},
		"rules[0].limits[0].quota: it i": {Name: "x", Quota: (*limit.Shared)(nil)},
	} {
		_, err := New(nil, rules(l))
		require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument, field)
		require.ErrorContains(t, err, field)
	}
	_, err := New(nil, rules(Limit{Name: "x", Quota: deniedLate{}, Settle: used}))
	require.ErrorContains(t, err, "cannot be settled")
}

// TestWithoutRedis: limits in this process need no Client. Those that wait together are sent one after another, and a
// penalty holds them all up.
func TestWithoutRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		second := redistest.Must(limit.NewLocal(limit.GCRA{Rate: ratelimiter.Rate{Permits: 10, Interval: time.Second}, Burst: 1}))(t)
		minute := redistest.Must(limit.NewLocal(limit.FixedWindow{Rate: ratelimiter.Rate{Permits: 1000, Interval: time.Minute}}))(t)
		throttled, sent := false, atomic.Int64{}
		base := base(func(r *http.Request) (*http.Response, error) {
			resp := &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: r}
			sent.Add(1)
			if throttled {
				resp.StatusCode, resp.Header["Retry-After"] = 429, []string{"7"}
			}
			return resp, nil
		})
		tr := redistest.Must(New(nil, WithBase(base), WithDetectors(HTTPDetector()), WithRules(Rule{Name: "x",
			Match:  Match{Hosts: []string{"a.example"}},
			Limits: []Limit{{Name: "second", Quota: second}, {Name: "minute", Quota: minute}}})))(t)
		begin := time.Now()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { get(t, tr, "http://a.example/") })
		}
		all.Wait()
		require.Equal(t, 1900*time.Millisecond, time.Since(begin))
		require.EqualValues(t, 980, redistest.Must(minute.Peek(t.Context(), 1))(t).Available, "what was not sent was given back")

		throttled = true
		time.Sleep(time.Second)
		begin = time.Now()
		require.Equal(t, 429, redistest.Must(tr.RoundTrip(request(t, "GET", "http://a.example/", nil)))(t).StatusCode)
		throttled = false
		_, err := tr.RoundTrip(request(t, "GET", "http://a.example/", nil).WithContext(ContextWithMaxWait(t.Context(), time.Second)))
		var rejection *Error
		require.True(t, errors.As(err, &rejection))
		require.Equal(t, ReasonCoolDown, rejection.Reason)
		get(t, tr, "http://a.example/")
		require.Equal(t, 7*time.Second, time.Since(begin))
		require.EqualValues(t, 22, sent.Load())
	})
}
