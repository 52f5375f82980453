// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/internal/view"
	"github.com/stretchr/testify/require"
)

// TestTheLastHour draws what was read of a limiter that somebody watched: one sample in five seconds, for an hour.
func TestTheLastHour(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site, name string) {
		require.NotContains(t, s.get("limiter?name="+name).body, "History", "there is one sample")
		if !redistest.TTLsAreVirtual() {
			return // the clock of a server does not follow that of the bubble
		}
		v := s.watch("events?name=" + name)
		time.Sleep(20*time.Second + time.Millisecond)
		v.leave()
		p := s.get("limiter?name=" + name)
		require.Contains(t, p.body, "at most 0 callers waited, and a new caller up to 0.")
		require.Contains(t, p.body, `<polyline class="past-used" points="480.0,`, "twenty seconds are a third of the least that is drawn")
		require.Len(t, s.history.of[feedKey{name, ""}].samples, 5)
		time.Sleep(time.Hour + 20*time.Second)
		s.get("limiter?name=" + name)
		require.Len(t, s.history.of[feedKey{name, ""}].samples, 1, "the others are older than an hour")
	})
}

// TestHistoryIsBounded keeps the limiters that were read last.
func TestHistoryIsBounded(t *testing.T) {
	h, begin := &history{}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	row := func(i int, at time.Time, waiting int64) *view.Row {
		return &view.Row{Name: fmt.Sprint(i), At: at.UnixMilli(), Rate: permit.Rate{Permits: 10, Interval: time.Second}, Used: 10, Waiting: waiting, Queued: time.Minute}
	}
	for i := range historyMost + 1 {
		h.add(row(i, begin.Add(time.Duration(i)*time.Second), 0))
	}
	require.Len(t, h.of, historyMost)
	require.NotContains(t, h.of, feedKey{"0", ""})
	at := begin.Add(10 * time.Minute)
	for i := range 3000 {
		at = at.Add(5 * time.Second)
		h.add(row(7, at, int64(i%200)))
		h.add(row(7, at.Add(time.Second), 1000)) // too soon
	}
	require.Len(t, h.of[feedKey{"7", ""}].samples, 721)
	o := h.view(&pageView{Lang: "en"}, feedKey{"7", ""}, at)
	require.Equal(t, "199", o.Most)
	require.Equal(t, "1h00m", o.Span)
	require.True(t, strings.HasSuffix(o.Used, "720.0,0.0 "), o.Used[len(o.Used)-40:])
	require.Contains(t, o.Text, "at most 199 callers waited, and a new caller up to 1m00s")
}
