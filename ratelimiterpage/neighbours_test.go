// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"html"
	"net/http"
	"net/url"
	"testing"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestNeighboursAreLeftAlone shows a database of other programs: the list is empty, the page of a name that looks like a
// limiter's has no command that writes to it, and no form changes it.
func TestNeighboursAreLeftAlone(t *testing.T) {
	redistest.NeedReal(t)
	rdb := redistest.Start(t, "--appendonly", "yes", "--enable-debug-command", "local").Client(t)
	names := redistest.Neighbours(t, rdb)
	s := newSite(t, rdb, WithWrites(writeToken))
	require.Empty(t, s.get("").names())
	digest := func() string { return rdb.Do(t.Context(), "debug", "digest").Val().(string) }
	before := digest()
	for _, name := range names {
		target := "?name=" + url.QueryEscape(name)
		body := html.UnescapeString(s.get("limiter" + target + "&check=1").body)
		require.NotRegexp(t, "redis-cli|--write", body, name)
		for _, form := range [][]string{{"action", "delete", "confirm", name}, {"action", "heal"}} {
			p := s.post("change"+target, nil, append(form, "token", writeToken)...)
			require.GreaterOrEqual(t, p.Code, 400, "%s %v", name, form)
			require.Equal(t, before, digest(), name)
		}
	}
	p := s.post("change?name=tenant-1", nil, "action", "set-rate", "permits", "7", "interval", "2h", "create", "1", "token", writeToken)
	require.Equal(t, http.StatusConflict, p.Code)
	require.Contains(t, html.UnescapeString(p.body), `it looks like none of ours: nothing in "{tenant-1}:value"`)
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
