// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/stretchr/testify/require"
)

// TestSetRules checks that new rules are obeyed by what begins after them, that a request which waits ends by the old ones,
// that bans stay, that a new rate is told of, and that wrong rules change nothing.
func TestSetRules(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sent := 0
		tr := w.transport(base(func(r *http.Request) (*http.Response, error) {
			if sent++; r.URL.Path == "/slow" {
				return respond(200, "text/plain", "slow down"), nil
			}
			return ok(r)
		}), rules(w.limit("a", 1, time.Minute)), WithDetectors(says("slow down", time.Hour, "")))
		get(t, tr, "http://x/")
		var wg sync.WaitGroup
		wg.Go(func() { get(t, tr, "http://x/") })
		time.Sleep(time.Second)

		wrong := Rule{Limits: []Limit{{Name: "{"}}}
		require.ErrorIs(t, tr.SetRules(wrong), ratelimiter.ErrInvalidArgument)
		rule := Rule{Name: "new", Match: Match{Hosts: []string{"x"}}, Limits: []Limit{w.limit("b", 5, time.Minute)}}
		require.NoError(t, tr.SetRules(rule))
		get(t, tr, "http://x/")
		require.Less(t, w.elapsed(), 2*time.Second)
		require.EqualValues(t, 4, w.available("b"))
		wg.Wait()
		require.GreaterOrEqual(t, w.elapsed(), time.Minute, "it waited for a")

		get(t, tr, "http://x/slow")
		w.taken()
		rule.Limits = []Limit{w.limit("b", 7, time.Minute)}
		closed := ratelimiter.FailClosed()
		rule.Limits[0].OutagePolicy = &closed
		require.NoError(t, tr.SetRules(rule))
		tr.cfg.maxWait = 0
		_, err := tr.RoundTrip(request(t, "GET", "http://x/", nil))
		require.ErrorContains(t, err, string(ReasonCoolDown), "the ban lasts")
		require.Contains(t, w.kinds(), EventRateDiffers)
		require.NoError(t, tr.SetRules())
		get(t, tr, "http://x/")
		require.Equal(t, 5, sent)
	})
}

// TestDryRule checks that a rule which is a dry run holds up nothing, counts, tells, and does not cool down, beside one that
// is none.
func TestDryRule(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		tr := w.transport(always("slow down"), WithRules(
			Rule{Name: "real", Match: Match{Hosts: []string{"x"}}, Limits: []Limit{w.limit("real", 100, time.Hour)}},
			Rule{Name: "dry", DryRun: true, Match: Match{Hosts: []string{"x"}}, Limits: []Limit{w.limit("dry", 2, time.Hour)}}))
		for range 3 {
			get(t, tr, "http://x/")
		}
		require.Less(t, w.elapsed(), time.Second)
		require.EqualValues(t, 97, w.available("real"))
		require.Zero(t, w.available("dry"))
		var rejected []Event
		for _, e := range w.taken() {
			if e.Kind == EventRejected {
				rejected = append(rejected, e)
			}
		}
		require.Len(t, rejected, 1)
		require.True(t, rejected[0].DryRun)
		require.Equal(t, w.key+"dry", rejected[0].Limiter)
		require.InDelta(t, time.Hour, rejected[0].Wait, float64(time.Second))
		require.ErrorIs(t, rejected[0].Err, ErrRejected)
		redistest.Must(w.client.RateLimiter(w.key + "dry").Admin().Delete(t.Context()))(t)
		get(t, tr, "http://x/")
		require.EqualValues(t, 1, w.available("dry"), "its rate is set again")
		tr.cfg.detectors = []Detector{says("slow down", time.Minute, "")}
		get(t, tr, "http://x/")
		require.Zero(t, w.until("dry"))
		require.NotZero(t, w.until("real"))
	})
}

// TestRuleOfALowerClass checks that the requests of a rule with LeaveFree are sent only while other rules find permits, until
// they have waited for LeaveFreeFor, and that one which both rules match is of the lower class.
func TestRuleOfALowerClass(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		users, batch := w.limit("app", 10, time.Second), w.limit("app", 10, time.Second)
		batch.LeaveFree, batch.LeaveFreeFor = 3, 2500*time.Millisecond
		other := w.limit("other", 10, time.Second) // so that one script decides both
		tr := w.transport(base(ok), WithRules(
			Rule{Match: Match{Hosts: []string{"users", "both"}}, Limits: []Limit{users}},
			Rule{Match: Match{Hosts: []string{"batch", "both"}}, Limits: []Limit{batch, other}}))
		var all sync.WaitGroup
		send := func(host string, n int, want time.Duration) {
			for range n {
				all.Go(func() {
					get(t, tr, "http://"+host+"/")
					require.Equal(t, want, w.elapsed(), host)
				})
			}
			time.Sleep(time.Millisecond)
		}
		w.epoch = time.Now()
		send("batch", 7, 0)
		send("batch", 1, 1010*time.Millisecond) // after what users take at 1000 ms
		send("users", 3, 2*time.Millisecond)
		send("users", 6, time.Second)
		all.Wait()
		send("both", 1, 2010*time.Millisecond) // 3 are free
		all.Wait()
	})
}

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
		require.Equal(t, Error{Limiter: w.key + "a", Wait: time.Until(midnight), MaxWait: time.Minute, boundBy: boundTransport, Reason: ReasonWait}, *e)
		require.EqualValues(t, 98, w.available("a"), "and took nothing")

		time.Sleep(time.Until(midnight) - 20*time.Second)
		get(t, tr, "http://x/")
		require.Equal(t, midnight, time.Now().UTC())
		require.EqualValues(t, 1, redistest.Must(shared.Peek(t.Context(), 1))(t).Available)
	})
}

// A brokenQuota fails, or panics.
type brokenQuota struct{ err error }

func (q brokenQuota) Allow(context.Context, int64) (ratelimiter.Result, error) {
	if q.err == nil {
		panic("broken")
	}
	return ratelimiter.Result{}, q.err
}
func (q brokenQuota) Peek(ctx context.Context, n int64) (ratelimiter.Result, error) {
	return q.Allow(ctx, n)
}

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
		l := w.limit("a", 100, time.Minute)
		open := ratelimiter.FailOpen()
		l.Quota, l.OutagePolicy = brokenQuota{ratelimiter.ErrOverloaded}, &open
		rejected(t, w.transport(base(ok), rules(l)), request(t, "GET", "http://x/", nil)) // Redis is not to blame
	})
}

// TestContextLeavesFree: the requests of a context give way under the rules that all have.
func TestContextLeavesFree(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		tr := w.transport(base(ok), rules(w.limit("a", 5, time.Minute)), WithMaxWait(0))
		low := func(permits int64) *http.Request {
			return request(t, "GET", "http://x/", nil).WithContext(ContextWithLeaveFree(t.Context(), permits, time.Hour))
		}
		for range 2 {
			require.Equal(t, 200, redistest.Must(tr.RoundTrip(low(3)))(t).StatusCode)
		}
		require.Equal(t, ReasonWait, rejected(t, tr, low(3)).Reason)
		require.Equal(t, ReasonRule, rejected(t, tr, low(5)).Reason, "it could never be sent")
		for range 3 {
			get(t, tr, "http://x/")
		}
		rejected(t, tr, request(t, "GET", "http://x/", nil))
	})
}

// TestReloadsPinNoOldRules: once SetRules has returned, and the requests that had begun have ended, nothing holds the rules
// of before, although the Transport still knows the limiters that they named, and one of them is banned.
func TestReloadsPinNoOldRules(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var old []weak.Pointer[ruleSet]
		tr := w.transport(base(ok))
		for reload := range 20 {
			host := fmt.Sprint("host", reload)
			limit := w.limit(host, 5, time.Minute)
			require.NoError(t, tr.SetRules(Rule{Match: Match{Hosts: []string{host}}, Limits: []Limit{limit}, Detectors: []Detector{says("", 0, "")}}))
			get(t, tr, "http://"+host+"/")
			if reload == 0 {
				tr.limiters.keep(tr.limiters.young[limit.Name])
			}
			old = append(old, weak.Make(tr.set.Load()))
		}
		runtime.GC()
		pinned := 0
		for _, set := range old[:len(old)-1] {
			if set.Value() != nil {
				pinned++
			}
		}
		require.Zero(t, pinned, "of %d old sets", len(old)-1)
		require.Len(t, tr.limiters.young, len(old))
	})
}
