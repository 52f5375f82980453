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
	q := local(limit.FixedWindow{Rate: five})
	a, b := Limit{Name: "a", Quota: q, Weight: 3}, Limit{Name: "b", Quota: q, Weight: 3}
	err := CheckRules([]Rule{{Limits: []Limit{a, b}}})
	require.ErrorContains(t, err, "rules[0].limits[1].weight: 3, with the others of the quota 6, is more than the 5 permits that it grants a request")
	b.Name = "b{query.x}" // which a request may do without
	require.NoError(t, CheckRules([]Rule{{Limits: []Limit{a, b}}}))
	b.Name, b.Quota = "b", local(limit.FixedWindow{Rate: five})
	require.NoError(t, CheckRules([]Rule{{Limits: []Limit{a, b}}}), "these are two quotas")
	_, err = New(nil, rules(Limit{Name: "x", Quota: deniedLate{}, Settle: used}))
	require.ErrorContains(t, err, "cannot be settled")
}

// A foreign is a quota of another package, of which nothing is known but what it replies.
type foreign struct {
	limit.Limiter
	_ []int // it cannot be compared
}

// TestQuotaOfOverlappingRules: what the limits of a request take of one quota together is more than it ever grants, so no wait helps.
func TestQuotaOfOverlappingRules(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		by := limit.FixedWindow{Rate: ratelimiter.Rate{Permits: 10, Interval: time.Hour}}
		local := redistest.Must(limit.NewLocal(by))(t)
		shared := redistest.Must(limit.NewShared(w.rdb, w.key, by))(t)
		try := func(q limit.Limiter, b int64, besides ...Limit) error {
			r := WithRules(Rule{Name: "a", Limits: append(besides, Limit{Name: "a", Quota: q, Weight: 7})}, Rule{Name: "b", Limits: []Limit{{Name: "b", Quota: q, Weight: b}}})
			resp, err := w.transport(base(ok), r, WithMaxWait(time.Minute)).RoundTrip(request(t, "GET", "http://x/", nil))
			if err == nil {
				require.NoError(t, resp.Body.Close())
			}
			return err
		}
		left := func(q limit.Limiter) int64 { return redistest.Must(q.Peek(t.Context(), 1))(t).Available }
		for _, q := range []limit.Limiter{local, shared} {
			err := try(q, 7, w.limit("rate", 100, time.Minute))
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, ReasonRule, e.Reason)
			require.Equal(t, "b", e.Limiter)
			require.Zero(t, e.Wait)
			require.ErrorIs(t, err, ratelimiter.ErrPermitsExceedRate)
			require.ErrorContains(t, err, "take 14 permits together of one quota, which grants a request at most 10")
			require.EqualValues(t, 10, left(q))
			_, err = w.client.RateLimiter(w.key+"rate").Peek(t.Context(), 1)
			require.ErrorIs(t, err, ratelimiter.ErrNotInitialized, "its permits have not been asked for")
			require.NoError(t, try(q, 3))
			require.Zero(t, left(q))
		}
		var e *Error
		require.ErrorAs(t, try(foreign{Limiter: redistest.Must(limit.NewLocal(by))(t)}, 7), &e)
		require.Equal(t, ReasonWait, e.Reason, "what a foreign quota grants is not known")
	})
}

// TestRequestThatExceedsAQuota has a WeightFunc return more than the quota can grant. The request is rejected under each policy, and
// takes none of the permits of the other limits.
func TestRequestThatExceedsAQuota(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, p := range []ratelimiter.OutagePolicy{ratelimiter.FailClosed(), ratelimiter.FailOpen()} {
			quota := redistest.Must(limit.NewShared(w.rdb, w.key, limit.FixedWindow{Rate: ratelimiter.Rate{Permits: 10, Interval: time.Hour}}))(t)
			tr := w.transport(base(ok), WithRules(Rule{Name: "a", Limits: []Limit{w.limit("rate", 100, time.Minute),
				{Name: "a", Quota: quota, OutagePolicy: &p, WeightFunc: func(*http.Request) int64 { return 11 }}}}))
			_, err := tr.RoundTrip(request(t, "GET", "http://x/", nil))
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, ReasonRule, e.Reason)
			require.ErrorIs(t, err, ratelimiter.ErrPermitsExceedRate)
			_, err = w.client.RateLimiter(w.key+"rate").Peek(t.Context(), 1)
			require.ErrorIs(t, err, ratelimiter.ErrNotInitialized, "its permits have not been asked for")
		}
	})
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
