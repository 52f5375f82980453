// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"bytes"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

var writeToken = strings.Repeat("write", 4)

// post sends a form as the page itself does.
func (s *site) post(target string, header http.Header, pairs ...string) page {
	s.Helper()
	f := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		f.Set(pairs[i], pairs[i+1])
	}
	r := httptest.NewRequest(http.MethodPost, "http://page.example/limiters/"+target, strings.NewReader(f.Encode()))
	r.RequestURI = "/limiters/" + target
	r.Header = header.Clone()
	if r.Header == nil {
		r.Header = http.Header{"Sec-Fetch-Site": {"same-origin"}, "Origin": {"http://page.example"}}
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return s.ask(r)
}

// TestWritesAreRefused checks each reason for which nothing is changed.
func TestWritesAreRefused(t *testing.T) {
	rdb := redistest.Client(t)
	name := redistest.Key(t)
	limiter(t, rdb, name, tenAMinute, 2)
	target := "change?name=" + url.QueryEscape(name)
	var log bytes.Buffer
	logger := WithLogger(slog.New(slog.NewTextHandler(&log, nil)))
	reads, writes := newSite(t, rdb, logger), newSite(t, rdb, WithWrites(writeToken), logger)
	const others = "of another program"
	reads.do("set", "{"+name+others+"}:value", "hello")
	before := hold(t, rdb, "*"+name+"*")
	release := []string{"action", "release", "permits", "1", "token", writeToken}
	for _, c := range []struct {
		why    string
		site   *site
		header http.Header
		form   []string
		status int
		text   string
	}{
		{"without the option", reads, nil, release, 403, "<p>This page only reads.</p>"},
		{"without a token", writes, nil, []string{"action", "release", "permits", "1"}, 403, "The token is missing or wrong."},
		{"with another token", writes, nil, []string{"action", "release", "permits", "1", "token", writeToken + "x"}, 403, "The token is missing or wrong."},
		{"from another site", writes, http.Header{"Sec-Fetch-Site": {"cross-site"}}, release, 403, "from the page of another site"},
		{"from another port", writes, http.Header{"Sec-Fetch-Site": {"same-site"}}, release, 403, "from the page of another site"},
		{"from another origin, by an old browser", writes, http.Header{"Origin": {"https://evil.example"}}, release, 403, "from the page of another site"},
		{"from no origin", writes, http.Header{"Origin": {"null"}}, release, 403, "from the page of another site"},
		{"no action", writes, nil, []string{"action", "flushall", "token", writeToken}, 400, "there is no action"},
		{"no number", writes, nil, []string{"action", "release", "permits", "-1", "token", writeToken}, 400, "is no number of permits"},
		{"no duration", writes, nil, []string{"action", "cool-down", "for", "soon", "token", writeToken}, 400, "is no duration"},
		{"no cool-down", writes, nil, []string{"action", "lift", "token", writeToken}, 400, "there was no cool-down"},
		{"not confirmed", writes, nil, []string{"action", "delete", "token", writeToken}, 400, "the name was not typed"},
	} {
		p := c.site.post(target, c.header, c.form...)
		require.Equal(t, c.status, p.Code, c.why)
		require.Contains(t, html.UnescapeString(p.body), c.text, c.why)
		require.Equal(t, before, hold(t, rdb, "*"+name+"*"), c.why)
	}
	p := writes.get(target + "&action=release&permits=1&token=" + writeToken)
	require.Equal(t, http.StatusMethodNotAllowed, p.Code)
	require.Equal(t, "POST", p.Header().Get("Allow"))
	p = writes.post(target, nil, append(release, "padding", strings.Repeat("x", formLimit))...)
	require.Equal(t, http.StatusBadRequest, p.Code)
	p = writes.post("change?token="+writeToken+"&name="+url.QueryEscape(name), nil, "action", "release", "permits", "1")
	require.Equal(t, http.StatusForbidden, p.Code, "a token in the address does not count")
	for _, form := range [][]string{{"action", "delete", "confirm", name + others}, {"action", "set-rate", "permits", "7", "interval", "2h", "create", "1"}} {
		p = writes.post(target+url.QueryEscape(others), nil, append(form, "token", writeToken)...)
		require.Equal(t, http.StatusConflict, p.Code)
		require.Contains(t, html.UnescapeString(p.body), "it looks like none of ours: nothing in ")
	}
	require.Equal(t, before, hold(t, rdb, "*"+name+"*"))
	require.NotContains(t, log.String(), writeToken)
	require.Equal(t, 17, strings.Count(log.String(), "a change was rejected"))
}

// TestWrites checks that each change is done, is shown before and after, and is logged.
func TestWrites(t *testing.T) {
	rdb := redistest.Client(t)
	name := redistest.Key(t) + "<b>"
	limiter(t, rdb, name, ratelimiter.Rate{Permits: 10, Interval: time.Hour}, 2, 2)
	var log bytes.Buffer
	s := newSite(t, rdb, WithWrites(writeToken), WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	target := "?name=" + url.QueryEscape(name)
	require.Contains(t, s.get("limiter"+target).body, `<form method="post" action="change?name=`)
	for _, c := range []struct {
		form  []string
		after string
	}{
		{[]string{"action", "release", "permits", "2"}, "8 of 10 left"},
		{[]string{"action", "set-rate", "permits", "7", "interval", "2h"}, "OVERALL 7/2h, 5 of 7 left"},
		{[]string{"action", "cool-down", "for", "1h"}, "cool-down for "},
		{[]string{"action", "lift"}, "5 of 7 left"},
		{[]string{"action", "heal"}, "5 of 7 left"},
		{[]string{"action", "set-rate", "permits", "7", "interval", "2h", "forget", "1"}, "7 of 7 left"},
		{[]string{"action", "delete", "confirm", name}, "no limiter"},
		{[]string{"action", "set-rate", "permits", "3", "interval", "5s", "create", "1"}, "OVERALL 3/5s"},
	} {
		log.Reset()
		p := s.post("change"+target, nil, append(c.form, "token", writeToken)...)
		require.Equal(t, http.StatusSeeOther, p.Code, "%v %s", c.form, p.body)
		require.True(t, strings.HasPrefix(p.Header().Get("Location"), "/limiters/limiter?done="), p.Header().Get("Location"))
		shown := s.get(strings.TrimPrefix(p.Header().Get("Location"), "/limiters/"))
		require.Regexp(t, `<dt>after</dt><dd class="long">[^<]*`+c.after, shown.body, "%v", c.form)
		require.Contains(t, log.String(), "a limiter was changed")
		require.Contains(t, log.String(), "action="+c.form[1])
		require.Contains(t, log.String(), c.after)
	}
	p := s.post("change"+target+"x", nil, "action", "set-rate", "permits", "3", "interval", "5s", "token", writeToken)
	require.Equal(t, http.StatusBadRequest, p.Code, "it makes no limiter of a name that is misspelled")
	require.Contains(t, p.body, "there is no limiter of this name")
	p = s.post("change"+target+"x", nil, "action", "delete", "confirm", name+"x", "token", writeToken)
	require.Equal(t, http.StatusBadRequest, p.Code)
	require.Contains(t, p.body, "there was nothing to delete")
	require.Contains(t, s.get("limiter"+target+"x").body, `name="create"`)
	require.NotContains(t, s.get("limiter"+target).body, `name="create"`)

	limiter(t, rdb, name, ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 6, Interval: time.Hour}, 6)
	for _, form := range [][]string{{"action", "set-rate", "permits", "6", "interval", "2h"}, {"action", "cool-down", "for", "1h"}, {"action", "lift"}} {
		require.Equal(t, http.StatusSeeOther, s.post("change"+target, nil, append(form, "token", writeToken)...).Code)
		keys := redistest.Must(rdb.Keys(t.Context(), "{"+name+"}:*:*").Result())(t)
		require.ElementsMatch(t, []string{"{" + name + "}:value:client-1", "{" + name + "}:permits:client-1"}, keys, "no keys of nobody")
	}
	p = s.post("change"+target, nil, "action", "release", "permits", "1", "token", writeToken)
	require.Equal(t, http.StatusBadRequest, p.Code)
	require.Contains(t, p.body, "open the page of one of them")
	p = s.post("change"+target+"&client=client-1", nil, "action", "release", "permits", "1", "token", writeToken)
	require.Equal(t, http.StatusSeeOther, p.Code, p.body)
	require.Contains(t, s.get("limiter"+target+"&client=client-1").body, `id="left">1<`)
}
