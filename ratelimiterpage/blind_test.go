// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestNothingIsHealthyUnseen stops a server, alone and in a cluster: the page says that it is not known whether all is healthy,
// also where it has said that it is a moment ago. How long it looks until then is up to the machine, but it ends.
func TestNothingIsHealthyUnseen(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Repeats(t)
	alone, cluster := redistest.Start(t, "--appendonly", "yes"), redistest.StartCluster(t)
	for _, on := range []struct {
		rdb  redis.UniversalClient
		stop *redistest.Server
	}{
		{alone.Client(t), alone},
		{cluster.Client(t), cluster.Nodes()[1]},
	} {
		for i := range 15 {
			require.NoError(t, on.rdb.HSet(t.Context(), fmt.Sprint("limiter", i), "rate", 5, "interval", 1000, "type", 0).Err())
		}
		verdict := func(h *Handler, target string) string {
			s := &site{T: t, Handler: h}
			p := s.get(target)
			for ; strings.Contains(p.body, "data-looking"); p = s.get("doctor") {
				time.Sleep(50 * time.Millisecond)
			}
			return p.body
		}
		open := func() *Handler {
			h := redistest.Must(New(on.rdb))(t)
			t.Cleanup(func() { _ = h.Close() })
			return h
		}
		h := open()
		require.Contains(t, verdict(h, "doctor"), "<b>Healthy</b>")
		require.Contains(t, verdict(h, "limiter?name=limiter1&check=1"), "Nothing was found.")
		on.stop.Pause()
		h.rounds.ended = time.Time{} // as after five minutes
		for _, h := range []*Handler{h, open()} {
			body := verdict(h, "doctor")
			require.NotContains(t, body, "Healthy", "%s", body)
			require.Contains(t, body, "no reply within")
		}
		on.stop.Resume()
	}
}

// TestWrongTypeIsNoLargeSet shows a limiter whose calls fail: the page says why it does not know what is left.
func TestWrongTypeIsNoLargeSet(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site, name string) {
		for _, suffix := range []string{"value", "permits"} {
			s.do("del", "{"+name+"}:"+suffix)
			s.do("rpush", "{"+name+"}:"+suffix, "x")
			body := s.get("limiter?name=" + name).body
			require.Contains(t, body, "every call fails: wrong type")
			require.NotContains(t, body, "too large")
			require.Contains(t, s.get("limiter?lang=zh&name="+name).body, "每次调用都失败")
			s.do("del", "{"+name+"}:"+suffix)
		}
	})
}
