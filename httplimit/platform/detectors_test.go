// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"net/http"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/internal/detecttest"
	"github.com/goredisson/ratelimiter/httplimit/internal/envelope"
	"github.com/stretchr/testify/require"
)

// The tables of detectors.
type detection = detecttest.Row

var (
	arrival   = detecttest.Arrival
	check     = detecttest.Check
	throttled = detecttest.Throttled
	banned    = detecttest.Banned
)

// TestNeedsBody: an answer is not read ahead for detectors that can tell without its body.
func TestNeedsBody(t *testing.T) {
	text, image := http.Header{"Content-Type": {"application/json"}}, http.Header{"Content-Type": {"image/png"}}
	for _, c := range []struct {
		name            string
		d               httplimit.Detector
		ok, no, picture bool // a text with 200, one with 403, a picture with 403
	}{
		{"old", DingTalkOldDetector(), true, true, false},
		{"new", DingTalkNewDetector(), false, true, true},
		{"GitHub", GitHubDetector(), false, true, true},
		{"HTTP", httplimit.HTTPDetector(), false, false, false},
		{"none", httplimit.First(), false, false, false},
		{"first of those without", httplimit.First(httplimit.HTTPDetector(), GitHubDetector()), false, true, true},
		{"first of all", httplimit.First(httplimit.HTTPDetector(), WeComDetector()), true, true, false},
		{"adjusted", adjusted{Detector: GitHubDetector()}, false, true, true},
	} {
		require.Equal(t, c.ok, envelope.NeedsBody(c.d, 200, text), c.name)
		require.Equal(t, c.no, envelope.NeedsBody(c.d, 403, text), c.name)
		require.Equal(t, c.picture, envelope.NeedsBody(c.d, 403, image), c.name)
	}
}

// TestBodiesAreParsedOnce: several detectors look at one answer, and its body may be long.
func TestBodiesAreParsedOnce(t *testing.T) {
	r := &httplimit.Response{Body: []byte(`{"errcode":90018}`), Complete: true}
	o := answer{r}.json()
	require.Equal(t, "90018", o.Text("errcode"))
	require.Same(t, o, answer{r}.json())
}

const (
	weComURL     = "https://qyapi.weixin.qq.com/cgi-bin/user/get?access_token=t"
	weComFileURL = "https://qyapi.weixin.qq.com/cgi-bin/media/get?access_token=t&media_id=m"
	robotURL     = "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=k"
)

// weComRows: bodies that were seen, for instance at
// https://developers.weixin.qq.com/community/enterprisewechat/doc/00080a634c87b87799a1afbf468400.
var weComRows = []detection{
	{Name: "frequency", URL: weComURL, Until: time.Minute, Want: throttled(ScopeCorpAPI, "45009"),
		Body: `{"errcode":45009,"errmsg":"api freq out of limit, hint: [1717571485419203277035119], from ip: 192.0.2.126, more info at https://open.work.weixin.qq.com/devtool/query?e=45009","follow_user":[]}`},
	{Name: "a group robot", URL: robotURL, Until: time.Minute, Want: throttled(ScopeRobot, "45009"), Body: `{"errcode":45009,"errmsg":"api freq out of limit"}`},
	{Name: "without a request", Until: time.Minute, Want: throttled(ScopeCorpAPI, "45009"), Body: `{"errcode":"45009"}`},
	{Name: "concurrency", URL: weComURL, Until: -1, Want: throttled(ScopeConcurrency, "45033"),
		Body: `{"errcode":45033,"errmsg":"api concurrent out of limit, hint: [1620808383_162_662d], from ip: 192.0.2.126, more info at https://open.work.weixin.qq.com/devtool/query?e=45033"}`},
	{Name: "a download's error", URL: weComFileURL, Until: time.Minute, Want: throttled(ScopeCorpAPI, "45009"), Body: `{"errcode":45009,"errmsg":"x"}`},
	{Name: "a download of another shape", URL: weComFileURL, Ignored: "the path serves files", Body: `{"errcode":45009,"errmsg":"x","a":1}`},
	{Name: "a file", URL: weComFileURL, Header: "Content-Disposition: attachment; filename=\"MEDIA_ID.json\"\n", Ignored: "the body is a file, or a part of one", Body: `{"errcode":45009,"errmsg":"x"}`},
	{Name: "success", URL: weComURL, Body: `{"errcode":0,"errmsg":"ok"}`},
	{Name: "a message about it", URL: weComURL, Body: `{"errcode":0,"msg_list":[{"errcode":45009}]}`},
	{Name: "WeChat's minute", URL: weComURL, Body: `{"errcode":45011}`},
	{Name: "an invalid token", URL: weComURL, Body: `{"errcode":40014,"errmsg":"invalid access_token"}`},
	{Name: "a page", Status: 502, URL: weComURL, Body: `<html>45009</html>`},
	{Name: "an error's status", Status: 502, URL: weComURL, Ignored: "status 502", Body: `{"errcode":45009,"errmsg":"x"}`},
}

func TestWeComDetector(t *testing.T) { check(t, WeComDetector(), weComRows) }

var weChatRows = []detection{
	{Name: "the day's quota", Until: 24*time.Hour - 62*time.Second, Want: throttled(ScopeDay, "45009"),
		Body: `{"errcode":45009,"errmsg":"reach max api daily quota limit rid: 647ed01a-6e0a6ea1-26ef8485"}`},
	{Name: "the day's quota as text", Header: "Content-Type: text/plain\n", Until: 24*time.Hour - 62*time.Second, Want: throttled(ScopeDay, "45009"), Body: `{"errcode":45009,"errmsg":"x"}`},
	{Name: "text of another shape", Header: "Content-Type: text/plain\n", Ignored: "plain text with other fields than an error's", Body: `{"errcode":45009,"errmsg":"x","a":1}`},
	{Name: "the day's quota with another field", Until: -1, Asked: 24*time.Hour - 62*time.Second, Want: throttled(ScopeDay, "45009"), Body: `{"errcode":45009,"errmsg":"x","a":1}`},
	{Name: "the day's quota of a download", URL: "https://api.weixin.qq.com/cgi-bin/media/get", Until: -1, Asked: 24*time.Hour - 62*time.Second, Want: throttled(ScopeDay, "45009"), Body: `{"errcode":45009,"errmsg":"x"}`},
	{Name: "a download as text", URL: "https://api.weixin.qq.com/cgi-bin/media/get", Header: "Content-Type: text/plain\n", Ignored: "the path serves files", Body: `{"errcode":45009,"errmsg":"x"}`},
	{Name: "the day's quota at noon", Until: 12 * time.Hour, Want: throttled(ScopeDay, "45009"), Header: "Date: Thu, 03 Sep 2026 04:00:00 GMT\n", Body: `{"errcode":45009}`},
	{Name: "the minute's quota", Until: time.Minute, Want: throttled(ScopeAppAPI, "45011"),
		Body: `{"errcode":45011,"errmsg":"api minute-quota reach limit, must slower, retry next minute rid: 62905cee-034a9c7a-4155cf70"}`},
	{Name: "no more clearing", Body: `{"errcode":48006,"errmsg":"forbid to clear quota because of reaching the limit"}`},
	{Name: "success without a code", Body: `{"session_key":"45009","openid":"x"}`},
}

func TestWeChatDetector(t *testing.T) { check(t, WeChatDetector(), weChatRows) }

// feishuRows: the examples of https://open.feishu.cn/document/server-docs/api-call-guide/frequency-control.
var feishuRows = []detection{
	{Name: "documented", Status: 429, Until: 52 * time.Second, Want: throttled(ScopeAppAPI, "99991400"), Header: "x-ogw-ratelimit-limit: 100\nx-ogw-ratelimit-reset: 52\n",
		Body: "{\n    \"code\": 99991400,\n    \"msg\": \"request trigger frequency limit\"\n}"},
	{Name: "an older API", Status: 400, Until: 52 * time.Second, Want: throttled(ScopeAppAPI, "99991400"), Header: "x-ogw-ratelimit-reset: 52\n", Body: `{"code":99991400,"msg":"request trigger frequency limit"}`},
	{Name: "no header", Status: 429, Until: -1, Want: throttled(ScopeAppAPI, "99991400"), Body: `{"code":99991400}`},
	// Seen at https://github.com/openclaw/openclaw, whose Feishu channel retries it.
	{Name: "messages to one chat", Status: 400, Until: -1, Want: throttled(ScopeAppAPI, "230020"), Body: `{"code":230020,"msg":"This operation triggers the frequency limit.","error":{"log_id":"2026"}}`},
	{Name: "a custom bot, too fast", Status: 400, URL: "https://open.feishu.cn/open-apis/bot/v2/hook/t", Until: -1, Want: throttled(ScopeRobot, "9499"), Body: `{"code":9499,"msg":"too many request","data":{}}`},
	{Name: "the same from elsewhere", URL: "https://open.feishu.cn/open-apis/im/v1/messages", Ignored: "status 200", Body: `{"code":9499,"msg":"too many request","data":{}}`},
	{Name: "the month's quota", Status: 400, Until: 28*24*time.Hour - 62*time.Second, Want: throttled(ScopeMonth, "99991403"),
		Body: `{"code":99991403,"msg":"This month's API call quota has been exceeded","error":{"log_id":"2026"}}`},
	{Name: "the month's quota in a message", Ignored: "status 200", Body: `{"code":99991403,"msg":"This month's API call quota has been exceeded"}`},
	{Name: "a header that is no number", Status: 429, Until: -1, Want: throttled(ScopeAppAPI, "99991400"), Header: "x-ogw-ratelimit-reset: soon\n", Body: `{"code":99991400}`},
	{Name: "a negative header", Status: 429, Until: -1, Want: throttled(ScopeAppAPI, "99991400"), Header: "x-ogw-ratelimit-reset: -1\n", Body: `{"code":99991400}`},
	{Name: "at once", Status: 429, Until: 0, Want: throttled(ScopeAppAPI, "99991400"), Header: "x-ogw-ratelimit-reset: 0\n", Body: `{"code":99991400}`},
	{Name: "a huge header", Status: 429, Until: 2 * time.Minute, Asked: envelope.MaxSeconds * time.Second, Want: throttled(ScopeAppAPI, "99991400"), Header: "x-ogw-ratelimit-reset: 99999999999999999999999\n", Body: `{"code":99991400}`},
	{Name: "a busy custom bot", URL: "https://open.feishu.cn/open-apis/bot/v2/hook/t", Until: -1, Want: throttled(ScopeRobot, "11232"), Body: `{"code":11232,"msg":"frequency limited"}`},
	{Name: "success", Header: "x-ogw-ratelimit-reset: 52\n", Body: `{"code":0,"msg":"success","data":{"code":99991400}}`},
	{Name: "a busy message service", Status: 400, Until: -1, Want: throttled(ScopeRobot, "11232"), Body: `{"code":11232,"msg":"frequency limited"}`},
	{Name: "a file that says so", URL: "https://open.feishu.cn/open-apis/im/v1/files/f", Ignored: "status 200", Body: `{"code":99991400}`},
	{Name: "a file like a bot's", URL: "https://open.feishu.cn/open-apis/im/v1/files/f", Ignored: "status 200", Body: `{"code":11232}`},
	{Name: "a code that is a text", Status: 429, Body: `{"code":"99991400"}`},
	{Name: "an invalid parameter", Status: 400, Body: `{"code":99992402,"msg":"field validation failed"}`},
	{Name: "an invalid token", Status: 400, Body: `{"code":99991663,"msg":"Invalid access token"}`},
}

func TestFeishuDetector(t *testing.T) { check(t, FeishuDetector(), feishuRows) }

// gitHubRows: https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api.
var gitHubRows = []detection{
	{Name: "primary", Status: 403, Until: 10 * time.Minute, Want: throttled(ScopeAccount, "x-ratelimit-remaining 0"), Header: "x-ratelimit-limit: 5000\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 1788365462\n",
		Body: `{"message":"API rate limit exceeded for user ID 1.","documentation_url":"https://docs.github.com/rest/overview/rate-limits-for-the-rest-api"}`},
	{Name: "primary, 429", Status: 429, Until: 10 * time.Minute, Want: throttled(ScopeAccount, "x-ratelimit-remaining 0"), Header: "x-ratelimit-remaining: 0\nx-ratelimit-reset: 1788365462\n"},
	{Name: "primary, reset over", Status: 403, Until: 0, Want: throttled(ScopeAccount, "x-ratelimit-remaining 0"), Header: "x-ratelimit-remaining: 0\nx-ratelimit-reset: 1\n"},
	{Name: "primary, reset far away", Status: 403, Until: 61 * time.Minute, Asked: time.Unix(envelope.MaxSeconds, 0).Sub(arrival.Truncate(time.Second)), Want: throttled(ScopeAccount, "x-ratelimit-remaining 0"), Header: "x-ratelimit-remaining: 0\nx-ratelimit-reset: 99999999999999999999\n"},
	{Name: "primary, no reset", Status: 403, Until: time.Minute, Want: throttled(ScopeAccount, "x-ratelimit-remaining 0"), Header: "x-ratelimit-remaining: 0\n"},
	{Name: "secondary", Status: 403, Until: 30 * time.Second, Want: throttled(ScopeSecondary, "retry-after"), Header: "retry-after: 30\nx-ratelimit-remaining: 4990\nx-ratelimit-reset: 1788365462\n"},
	{Name: "retry-after wins", Status: 429, Until: 30 * time.Second, Want: throttled(ScopeSecondary, "retry-after"), Header: "retry-after: 30\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 1788365462\n"},
	{Name: "secondary without headers", Status: 403, Until: time.Minute, Want: throttled(ScopeSecondary, "secondary rate limit"), Header: "x-ratelimit-remaining: 4990\n",
		Body: `{"documentation_url":"https://docs.github.com/free-pro-team@latest/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits","message":"You have exceeded a secondary rate limit."}`},
	{Name: "429 alone", Status: 429, Until: time.Minute, Want: throttled(ScopeSecondary, "status 429")},
	{Name: "no permission", Status: 403, Header: "x-ratelimit-remaining: 4990\nx-ratelimit-reset: 1788365462\n", Body: `{"message":"Resource not accessible by integration","documentation_url":"https://docs.github.com/rest/issues#create"}`},
	{Name: "a message about limits", Status: 403, Header: "x-ratelimit-remaining: 10\n", Body: `{"message":"You have exceeded a secondary rate limit","documentation_url":"https://docs.github.com/rest"}`},
	{Name: "another's documentation", Status: 403, Body: `{"documentation_url":"https://example.com/#secondary-rate-limits"}`},
	{Name: "a file", Status: 403, Header: "Content-Disposition: attachment\n", Ignored: "the body is a file, or a part of one", Body: `{"documentation_url":"https://docs.github.com/x#secondary-rate-limits"}`},
	{Name: "a URL that is none", Status: 403, Body: `{"documentation_url":":#secondary-rate-limits"}`},
	{Name: "the last request that was served", Status: 200, Header: "x-ratelimit-remaining: 0\nx-ratelimit-reset: 1788365462\n", Body: `{"id":1}`},
	{Name: "not found", Status: 404, Header: "retry-after: 30\n"},
	{Name: "another zero", Status: 403, Header: "x-ratelimit-remaining: 00\n"},
}

func TestGitHubDetector(t *testing.T) { check(t, GitHubDetector(), gitHubRows) }
