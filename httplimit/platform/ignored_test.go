// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// What looks like a penalty and is none is told; what is not looked into is not, and is not read ahead.
func TestIgnoredPenaltiesAreTold(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		resp := respond(200, "text/plain", ban("5"))
		tr := w.transport(base(func(*http.Request) (*http.Response, error) { return resp, nil }),
			rules(w.limit("l", 99, time.Second)), httplimit.WithDetectors(httplimit.HTTPDetector(), DingTalkBanDetector(), DingTalkOldDetector()))
		get(t, tr, "http://x/")
		events := w.taken()
		require.Len(t, events, 2)
		e := events[1]
		require.Equal(t, httplimit.EventIgnored, e.Kind)
		require.EqualValues(t, banReason, e.Reason)
		require.EqualError(t, e.Err, `httplimit: no rejection: content type "text/plain"`)
		require.Equal(t, 200, e.Status)
		require.Equal(t, "x", e.Host)

		resp = respond(200, "application/json", ban("5"))
		resp.Header.Set("Content-Disposition", "attachment")
		body := resp.Body
		require.Equal(t, body, redistest.Must(tr.RoundTrip(request(t, "GET", "http://x/", nil)))(t).Body)
		require.Equal(t, []httplimit.EventKind{httplimit.EventAdmitted}, w.kinds())

		resp = respond(200, "application/json", `{"errcode":90020,"errmsg":"x","title":"x"}`)
		get(t, tr, "http://x/")
		events = w.taken()
		require.Equal(t, httplimit.EventThrottled, events[1].Kind)
		require.Zero(t, events[1].Until)
		require.Equal(t, 31*24*time.Hour-8*time.Hour, events[1].Asked.Sub(w.epoch))
		require.Equal(t, time.Second, w.until("l"))
	})
}

// A verdict that is not trusted so far is no ground to send a request again: it may have been executed.
func TestDoubtedAnswersAreNotRetried(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sent := 0
		tr := w.transport(base(func(*http.Request) (*http.Response, error) {
			sent++
			return respond(200, "application/json", `{"errcode":90020,"errmsg":"x","title":"x"}`), nil
		}), rules(w.limit("l", 99, time.Second)), httplimit.WithDetectors(DingTalkOldDetector()), httplimit.WithRetry(3))
		get(t, tr, "http://x/")
		require.Equal(t, 1, sent)
	})
}

// TestProfilesAreOfOnePlatform: a penalty that one host of a profile announces is for its limiters as a whole.
func TestProfilesAreOfOnePlatform(t *testing.T) {
	for _, p := range []httplimit.Profile{DingTalk("a"), DingTalkRobot(), WeCom("a"), Feishu("a"), GitHub("a")} {
		for _, r := range p.Rules {
			require.True(t, r.OnePlatform, r.Name)
		}
	}
	for _, r := range DingTalk("a", WithHosts()).Rules {
		require.Equal(t, strings.Contains(r.Name, "nothing"), r.OnePlatform)
	}
}
