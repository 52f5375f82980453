// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A penalty cools down the limits of its scope, all of the request's when none has it, and no other's.
func TestCoolDownFindsItsLimits(t *testing.T) {
	type times = map[string]time.Duration
	cases := []struct {
		scope Scope
		want  times
	}{
		{"robot", times{"robot": time.Minute}},
		{"ip", times{"ip": time.Minute, "ip2": time.Minute}},
		{"month", times{"robot": time.Minute, "ip": time.Minute, "ip2": time.Minute, "plain": time.Minute}},
		{"", times{"robot": time.Minute, "ip": time.Minute, "ip2": time.Minute, "plain": time.Minute}},
	}
	for _, c := range cases {
		inWorld(t, func(t *testing.T, w *world) {
			scoped := func(name string, s Scope) Limit {
				l := w.limit(name, 9, time.Second)
				l.Scope = s
				return l
			}
			x := Match{Hosts: []string{"x"}}
			tr := w.transport(always("slow down"),
				WithRules(
					Rule{Match: x, Limits: []Limit{scoped("robot", "robot"), scoped("plain", "")}, Detectors: []Detector{says("slow down", time.Minute, c.scope)}},
					Rule{Match: x, Limits: []Limit{scoped("ip", "ip"), scoped("ip2", "ip")}},
					Rule{Match: Match{Hosts: []string{"other"}}, Limits: []Limit{scoped("other", c.scope)}},
				))
			_, text := get(t, tr, "http://x/")
			require.Equal(t, "slow down", text)
			got := times{}
			for _, name := range []string{"robot", "plain", "ip", "ip2", "other"} {
				if d := w.until(name); d > 0 {
					got[name] = d
				}
			}
			require.Equal(t, c.want, got)
			events := w.taken()
			require.Len(t, events, 2+len(c.want))
			require.Equal(t, EventThrottled, events[1].Kind)
			require.EqualValues(t, "said slow down", events[1].Reason)
			require.Equal(t, 200, events[1].Status)
			require.Equal(t, time.Minute, events[1].Until.Sub(w.epoch))
			for _, e := range events[2:] {
				require.Equal(t, EventCoolDown, e.Kind)
				require.NoError(t, e.Err)
			}
		})
	}
}

// The first detector that says throttled counts: those of the rules first.
func TestFirstDetectorCounts(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		tr := w.transport(base(ok), WithDetectors(says("ok", 5*time.Second, "")),
			WithRules(Rule{Match: Match{Hosts: []string{"x"}}, Limits: []Limit{w.limit("a", 9, time.Second)},
				Detectors: []Detector{says("no", time.Hour, ""), says("ok", 3*time.Second, ""), says("ok", time.Hour, "")}}))
		get(t, tr, "http://x/")
		require.Equal(t, 3*time.Second, w.until("a"))
	})
}

// Where the platform names no end, cool-downs double as long as it throttles again soon after; requests
// that were on their way already change nothing.
func TestBackOff(t *testing.T) {
	l := &limiter{limiterState: &limiterState{}}
	cfg := config{backOff: time.Second, maxBackOff: 5 * time.Second}
	epoch := time.Unix(1000, 0)
	for i, s := range []struct{ sent, now, want time.Duration }{
		{0, 0, time.Second},
		{0, 100 * time.Millisecond, time.Second}, // on its way
		{50 * time.Millisecond, 500 * time.Millisecond, 2500 * time.Millisecond}, // went out all the same
		{2500 * time.Millisecond, 2600 * time.Millisecond, 6600 * time.Millisecond},
		{0, 3 * time.Second, 6600 * time.Millisecond},
		{7 * time.Second, 7 * time.Second, 12 * time.Second},   // 5 s is the most
		{12 * time.Second, 16 * time.Second, 21 * time.Second}, // soon after, still the most
		{27 * time.Second, 27 * time.Second, 28 * time.Second}, // long after: from the beginning
	} {
		got := l.backOff(epoch.Add(s.sent), epoch.Add(s.now), cfg)
		require.Equal(t, s.want, got.Sub(epoch), "step %d", i)
	}

	inWorld(t, func(t *testing.T, w *world) {
		tr := w.transport(base(ok), WithDetectors(says("ok", 0, "")), WithBackOff(3*time.Second, time.Minute), rules(w.limit("a", 9, time.Second)))
		get(t, tr, "http://x/")
		require.Equal(t, 3*time.Second, w.until("a"))
		events := w.taken()
		require.True(t, events[1].Until.IsZero(), "the platform did not say")
		require.Equal(t, 3*time.Second, events[2].Until.Sub(w.epoch))
	})
}

// An end that is over is none, and one that is years away is cut.
func TestOddEnds(t *testing.T) {
	for _, c := range []struct{ says, want time.Duration }{
		{-time.Hour, time.Second}, {10 * 365 * 24 * time.Hour, 48 * time.Hour}, {time.Hour, time.Hour},
	} {
		inWorld(t, func(t *testing.T, w *world) {
			odd := DetectorFunc(func(r *Response) Verdict { return Verdict{Throttled: true, Until: r.Now.Add(c.says)} })
			tr := w.transport(base(ok), WithDetectors(odd), WithMaxCoolDown(48*time.Hour), rules(w.limit("a", 9, time.Second)))
			get(t, tr, "http://x/")
			require.Equal(t, c.want, w.until("a"))
		})
	}
}

// When Redis cannot be told of a ban, this process keeps silent on its own, and tells it when it is back.
func TestCoolDownThatRedisMissed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		away := w.away()
		sent := 0
		tr := w.transport(base(func(r *http.Request) (*http.Response, error) {
			if sent++; sent > 1 {
				return ok(r)
			}
			away.Store(true)
			return respond(200, "text/plain", "slow down"), nil
		}), rules(w.limit("a", 99, time.Second)), WithDetectors(says("slow down", time.Minute, "")), WithMaxWait(5*time.Second))
		get(t, tr, "http://x/")
		events := w.taken()
		require.Equal(t, EventCoolDown, events[2].Kind)
		require.Error(t, events[2].Err)

		e := rejected(t, tr, request(t, "GET", "http://x/", nil))
		require.Equal(t, ReasonCoolDown, e.Reason)
		require.Equal(t, w.key+"a", e.Limiter)
		require.InDelta(t, 54*time.Second, e.Wait, float64(2*time.Second))
		require.Equal(t, 1, sent)
		away.Store(false)
		require.Zero(t, w.until("a"))
		time.Sleep(2 * time.Second)
		tr.cfg.maxWait = 0
		require.Equal(t, ReasonCoolDown, rejected(t, tr, request(t, "GET", "http://x/", nil)).Reason, "by Redis")
		require.Equal(t, 1, sent)
		require.Equal(t, time.Minute, w.until("a").Round(time.Second), "told as soon as Redis is back")

		tr.cfg.maxWait = time.Minute
		get(t, tr, "http://x/")
		require.Equal(t, 2, sent)
		require.Equal(t, time.Minute, w.elapsed().Round(time.Second))
	})
}
