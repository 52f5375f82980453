// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/stretchr/testify/require"
)

var errDown = errors.New("down")

type owner struct{ told []error }

func (o *owner) TooSlow(err error)                                { o.told = append(o.told, err) }
func (o *owner) Traffic() permit.Traffic                          { return permit.Traffic{Left: 1, Sent: 1} }
func (o *owner) Apart(context.Context, permit.Wire) permit.Prober { return nil }

// TestSilence checks when calls without a reply begin an outage: at the instant at which the second call in a row has
// waited for a second, unless a call that was sent later than they has got a reply within a second.
func TestSilence(t *testing.T) {
	const ms = time.Millisecond
	// A step is what happens at an instant: a call is begun, gets its reply, or is given up.
	type step struct {
		at   time.Duration
		what string
		call int
	}
	for name, c := range map[string]struct {
		steps []step
		down  time.Duration // 0 for never
	}{
		"one call":                            {[]step{{0, "begin", 0}}, 0},
		"two calls":                           {[]step{{0, "begin", 0}, {300 * ms, "begin", 1}}, 1500 * ms},
		"two calls, the second of them later": {[]step{{0, "begin", 0}, {900 * ms, "begin", 1}}, 1900 * ms},
		"two calls one after the other":       {[]step{{0, "begin", 0}, {1500 * ms, "reply", 0}, {9000 * ms, "begin", 1}}, 10_250 * ms},
		"a call that is given up late":        {[]step{{0, "begin", 0}, {1100 * ms, "end", 0}, {1200 * ms, "begin", 1}}, 2450 * ms},
		"a call that is given up soon":        {[]step{{0, "begin", 0}, {900 * ms, "end", 0}, {1200 * ms, "begin", 1}}, 0},
		"a reply in time between them":        {[]step{{0, "begin", 0}, {1500 * ms, "reply", 0}, {2000 * ms, "begin", 1}, {2999 * ms, "reply", 1}, {3000 * ms, "begin", 2}}, 0},
		"a later call has its reply":          {[]step{{0, "begin", 0}, {1 * ms, "begin", 1}, {500 * ms, "begin", 2}, {900 * ms, "reply", 2}}, 0},
		"an earlier call has its reply":       {[]step{{0, "begin", 0}, {100 * ms, "begin", 1}, {200 * ms, "begin", 2}, {900 * ms, "reply", 0}}, 2400 * ms},
		"replies that take 999 ms": {[]step{{0, "begin", 0}, {1 * ms, "begin", 1}, {999 * ms, "reply", 0}, {1000 * ms, "reply", 1},
			{1000 * ms, "begin", 2}, {1000 * ms, "begin", 3}, {1999 * ms, "reply", 2}, {1999 * ms, "reply", 3}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var (
					h     Health
					o     owner
					calls [4]Call
					sent  [4]time.Time
					begin = time.Now()
				)
				for _, s := range c.steps {
					time.Sleep(time.Until(begin.Add(s.at)))
					synctest.Wait()
					k := &calls[s.call]
					switch s.what {
					case "begin":
						k.Owner, sent[s.call] = &o, time.Now()
						_, _, err := h.Allow(k)
						require.NoError(t, err)
					case "reply":
						h.Replied(k, sent[s.call], Ran)
						h.End(k)
					case "end":
						h.End(k)
					}
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				since, err := h.Since()
				require.Equal(t, c.down > 0, err != nil)
				if c.down > 0 {
					require.Equal(t, c.down, since.Sub(begin))
					require.Equal(t, []error{err}, o.told)
				} else {
					require.Empty(t, o.told)
				}
				for i := range calls {
					h.End(&calls[i])
				}
				require.True(t, h.Idle(), "no timer is armed")
			})
		})
	}
}

// TestProcessThatStandsStill checks that a process that was not running while its calls waited begins no outage:
// their replies may be there.
func TestProcessThatStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Health
		var calls [2]Call
		for i := range calls {
			_, _, err := h.Allow(&calls[i])
			require.NoError(t, err)
		}
		time.Sleep(800 * time.Millisecond)
		synctest.Wait()
		h.mu.Lock()
		h.unanswered.fires = h.unanswered.fires.Add(-900 * time.Millisecond) // it fires late by that
		h.mu.Unlock()
		time.Sleep(tooLong + 100*time.Millisecond - 1)
		synctest.Wait()
		require.False(t, h.Down())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.True(t, h.Down(), "the silence lasts")
		for i := range calls {
			h.End(&calls[i])
		}
	})
}

// TestWhatEndsAnOutage checks which replies end an outage, or have the next call find out, by what began it.
func TestWhatEndsAnOutage(t *testing.T) {
	begin := map[string]func(h *Health){
		"failed":   func(h *Health) { h.MarkDown(time.Now(), errDown, false) },
		"rejected": func(h *Health) { h.MarkDown(time.Now(), errDown, true) },
		"failed, then rejected": func(h *Health) {
			h.MarkDown(time.Now(), errDown, false)
			h.MarkDown(time.Now(), errDown, true)
			h.MarkDown(time.Now(), errDown, false)
		},
		"slow": func(h *Health) {
			var calls [2]Call
			for i := range calls {
				_, _, _ = h.Allow(&calls[i])
			}
			time.Sleep(tooLong)
			synctest.Wait()
		},
		"failed, then slow": func(h *Health) {
			h.MarkDown(time.Now(), errDown, false)
			sent := time.Now()
			time.Sleep(tooSlow)
			h.Replied(nil, sent, Ran)
		},
	}
	for _, c := range []struct {
		what  Reply
		took  time.Duration
		early bool // it was sent before the outage was known
		ends  []string
		soon  []string // the next call is a probe
	}{
		{NotYet, 0, false, nil, nil},
		{Ran, 0, false, []string{"failed", "slow", "failed, then slow"}, []string{"rejected", "failed, then rejected"}},
		{Wrote, 0, false, []string{"failed", "rejected", "failed, then rejected", "slow", "failed, then slow"}, nil},
		{Wrote, prompt - 1, false, []string{"failed", "rejected", "failed, then rejected", "slow", "failed, then slow"}, nil},
		{Wrote, prompt, false, []string{"failed", "rejected", "failed, then rejected"}, nil},
		{Wrote, tooSlow - 1, false, []string{"failed", "rejected", "failed, then rejected"}, nil},
		{Wrote, tooSlow, false, nil, nil},
		{Ran, 100 * time.Millisecond, true, []string{"failed"}, []string{"rejected", "failed, then rejected"}},
	} {
		var ends, soon []string
		for _, name := range []string{"failed", "rejected", "failed, then rejected", "slow", "failed, then slow"} {
			synctest.Test(t, func(t *testing.T) {
				var h Health
				begin[name](&h)
				require.True(t, h.Down(), name)
				sent := time.Now()
				if c.early {
					since, _ := h.Since()
					sent = since.Add(-c.took)
				} else {
					time.Sleep(c.took)
				}
				next, _, _ := h.Next()
				if ended, _, _ := h.Replied(nil, sent, c.what); ended {
					ends = append(ends, name)
				} else if time.Now().Before(next) && h.TryProbe(&Call{}) {
					soon = append(soon, name)
				}
			})
		}
		require.Equal(t, c.ends, ends, "%+v", c)
		require.Equal(t, c.soon, soon, "%+v", c)
	}
}

// TestOneProbe checks that there is one probe at a time, that a probe that takes long is followed by the next at once,
// and that one that does not come back holds up the others for ten seconds.
func TestOneProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Health
		h.MarkDown(time.Now(), errDown, false)
		var c, other Call
		until := func(c *Call) time.Duration {
			begin := time.Now()
			for !h.TryProbe(c) {
				time.Sleep(10 * time.Millisecond)
			}
			return time.Since(begin)
		}
		first := until(&c)
		require.True(t, probeEvery <= first && first <= probeEvery*5/4+10*time.Millisecond, first)
		begin := time.Now()
		time.Sleep(3 * time.Second)
		require.False(t, h.TryProbe(&other))
		until(&other)
		took := time.Since(begin)
		require.True(t, maxProbe <= took && took <= maxProbe+probeEvery*5/2, took)
		h.End(&c)
		h.End(&other)
	})
}
