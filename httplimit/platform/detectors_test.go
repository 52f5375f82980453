// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/httplimit/internal/envelope"
)

const (
	weComURL     = "https://qyapi.weixin.qq.com/cgi-bin/user/get?access_token=t"
	weComFileURL = "https://qyapi.weixin.qq.com/cgi-bin/media/get?access_token=t&media_id=m"
	robotURL     = "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=k"
)

// weComRows: bodies that were seen, for instance at
// https://developers.weixin.qq.com/community/enterprisewechat/doc/00080a634c87b87799a1afbf468400.
var weComRows = []detection{
	{name: "frequency", url: weComURL, until: time.Minute, want: throttled(ScopeCorpAPI, "45009"),
		body: `{"errcode":45009,"errmsg":"api freq out of limit, hint: [1717571485419203277035119], from ip: 192.0.2.126, more info at https://open.work.weixin.qq.com/devtool/query?e=45009","follow_user":[]}`},
	{name: "a group robot", url: robotURL, until: time.Minute, want: throttled(ScopeRobot, "45009"), body: `{"errcode":45009,"errmsg":"api freq out of limit"}`},
	{name: "without a request", until: time.Minute, want: throttled(ScopeCorpAPI, "45009"), body: `{"errcode":"45009"}`},
	{name: "concurrency", url: weComURL, until: -1, want: throttled(ScopeConcurrency, "45033"),
		body: `{"errcode":45033,"errmsg":"api concurrent out of limit, hint: [1620808383_162_662d], from ip: 192.0.2.126, more info at https://open.work.weixin.qq.com/devtool/query?e=45033"}`},
	{name: "a download's error", url: weComFileURL, until: time.Minute, want: throttled(ScopeCorpAPI, "45009"), body: `{"errcode":45009,"errmsg":"x"}`},
	{name: "a download of another shape", url: weComFileURL, ignored: "the path serves files", body: `{"errcode":45009,"errmsg":"x","a":1}`},
	{name: "a file", url: weComFileURL, header: "Content-Disposition: attachment; filename=\"MEDIA_ID.json\"\n", ignored: "the body is a file, or a part of one", body: `{"errcode":45009,"errmsg":"x"}`},
	{name: "success", url: weComURL, body: `{"errcode":0,"errmsg":"ok"}`},
	{name: "a message about it", url: weComURL, body: `{"errcode":0,"msg_list":[{"errcode":45009}]}`},
	{name: "WeChat's minute", url: weComURL, body: `{"errcode":45011}`},
	{name: "an invalid token", url: weComURL, body: `{"errcode":40014,"errmsg":"invalid access_token"}`},
	{name: "a page", status: 502, url: weComURL, body: `<html>45009</html>`},
	{name: "an error's status", status: 502, url: weComURL, ignored: "status 502", body: `{"errcode":45009,"errmsg":"x"}`},
}

func TestWeComDetector(t *testing.T) { check(t, WeComDetector(), weComRows) }

var weChatRows = []detection{
	{name: "the day's quota", until: 24*time.Hour - 62*time.Second, want: throttled(ScopeDay, "45009"),
		body: `{"errcode":45009,"errmsg":"reach max api daily quota limit rid: 647ed01a-6e0a6ea1-26ef8485"}`},
	{name: "the day's quota as text", header: "Content-Type: text/plain\n", until: 24*time.Hour - 62*time.Second, want: throttled(ScopeDay, "45009"), body: `{"errcode":45009,"errmsg":"x"}`},
	{name: "text of another shape", header: "Content-Type: text/plain\n", ignored: "plain text with other fields than an error's", body: `{"errcode":45009,"errmsg":"x","a":1}`},
	{name: "the day's quota with another field", until: -1, asked: 24*time.Hour - 62*time.Second, want: throttled(ScopeDay, "45009"), body: `{"errcode":45009,"errmsg":"x","a":1}`},
	{name: "the day's quota of a download", url: "https://api.weixin.qq.com/cgi-bin/media/get", until: -1, asked: 24*time.Hour - 62*time.Second, want: throttled(ScopeDay, "45009"), body: `{"errcode":45009,"errmsg":"x"}`},
	{name: "a download as text", url: "https://api.weixin.qq.com/cgi-bin/media/get", header: "Content-Type: text/plain\n", ignored: "the path serves files", body: `{"errcode":45009,"errmsg":"x"}`},
	{name: "the day's quota at noon", until: 12 * time.Hour, want: throttled(ScopeDay, "45009"), header: "Date: Thu, 03 Sep 2026 04:00:00 GMT\n", body: `{"errcode":45009}`},
	{name: "the minute's quota", until: time.Minute, want: throttled(ScopeAppAPI, "45011"),
		body: `{"errcode":45011,"errmsg":"api minute-quota reach limit, must slower, retry next minute rid: 62905cee-034a9c7a-4155cf70"}`},
	{name: "no more clearing", body: `{"errcode":48006,"errmsg":"forbid to clear quota because of reaching the limit"}`},
	{name: "success without a code", body: `{"session_key":"45009","openid":"x"}`},
}

func TestWeChatDetector(t *testing.T) { check(t, WeChatDetector(), weChatRows) }

// feishuRows: the examples of https://open.feishu.cn/document/server-docs/api-call-guide/frequency-control.
var feishuRows = []detection{
	{name: "documented", status: 429, until: 52 * time.Second, want: throttled(ScopeAppAPI, "99991400"), header: "x-ogw-ratelimit-limit: 100\nx-ogw-ratelimit-reset: 52\n",
		body: "{\n    \"code\": 99991400,\n    \"msg\": \"request trigger frequency limit\"\n}"},
	{name: "an older API", status: 400, until: 52 * time.Second, want: throttled(ScopeAppAPI, "99991400"), header: "x-ogw-ratelimit-reset: 52\n", body: `{"code":99991400,"msg":"request trigger frequency limit"}`},
	{name: "no header", status: 429, until: -1, want: throttled(ScopeAppAPI, "99991400"), body: `{"code":99991400}`},
	// Seen at https://github.com/openclaw/openclaw, whose Feishu channel retries it.
	{name: "messages to one chat", status: 400, until: -1, want: throttled(ScopeAppAPI, "230020"), body: `{"code":230020,"msg":"This operation triggers the frequency limit.","error":{"log_id":"2026"}}`},
	{name: "a custom bot, too fast", status: 400, url: "https://open.feishu.cn/open-apis/bot/v2/hook/t", until: -1, want: throttled(ScopeRobot, "9499"), body: `{"code":9499,"msg":"too many request","data":{}}`},
	{name: "the same from elsewhere", url: "https://open.feishu.cn/open-apis/im/v1/messages", ignored: "status 200", body: `{"code":9499,"msg":"too many request","data":{}}`},
	{name: "the month's quota", status: 400, until: 28*24*time.Hour - 62*time.Second, want: throttled(ScopeMonth, "99991403"),
		body: `{"code":99991403,"msg":"This month's API call quota has been exceeded","error":{"log_id":"2026"}}`},
	{name: "the month's quota in a message", ignored: "status 200", body: `{"code":99991403,"msg":"This month's API call quota has been exceeded"}`},
	{name: "a header that is no number", status: 429, until: -1, want: throttled(ScopeAppAPI, "99991400"), header: "x-ogw-ratelimit-reset: soon\n", body: `{"code":99991400}`},
	{name: "a negative header", status: 429, until: -1, want: throttled(ScopeAppAPI, "99991400"), header: "x-ogw-ratelimit-reset: -1\n", body: `{"code":99991400}`},
	{name: "at once", status: 429, until: 0, want: throttled(ScopeAppAPI, "99991400"), header: "x-ogw-ratelimit-reset: 0\n", body: `{"code":99991400}`},
	{name: "a huge header", status: 429, until: 2 * time.Minute, asked: envelope.MaxSeconds * time.Second, want: throttled(ScopeAppAPI, "99991400"), header: "x-ogw-ratelimit-reset: 99999999999999999999999\n", body: `{"code":99991400}`},
	{name: "a busy custom bot", url: "https://open.feishu.cn/open-apis/bot/v2/hook/t", until: -1, want: throttled(ScopeRobot, "11232"), body: `{"code":11232,"msg":"frequency limited"}`},
	{name: "success", header: "x-ogw-ratelimit-reset: 52\n", body: `{"code":0,"msg":"success","data":{"code":99991400}}`},
	{name: "a busy message service", status: 400, until: -1, want: throttled(ScopeRobot, "11232"), body: `{"code":11232,"msg":"frequency limited"}`},
	{name: "a file that says so", url: "https://open.feishu.cn/open-apis/im/v1/files/f", ignored: "status 200", body: `{"code":99991400}`},
	{name: "a file like a bot's", url: "https://open.feishu.cn/open-apis/im/v1/files/f", ignored: "status 200", body: `{"code":11232}`},
	{name: "a code that is a text", status: 429, body: `{"code":"99991400"}`},
	{name: "an invalid parameter", status: 400, body: `{"code":99992402,"msg":"field validation failed"}`},
	{name: "an invalid token", status: 400, body: `{"code":99991663,"msg":"Invalid access token"}`},
}

func TestFeishuDetector(t *testing.T) { check(t, FeishuDetector(), feishuRows) }

// gitHubRows: https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api.
var gitHubRows = []detection{
	{name: "primary", status: 403, until: 10 * time.Minute, want: throttled(ScopeAccount, "x-ratelimit-remaining 0"), header: "x-ratelimit-limit: 5000\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 1788365462\n",
		body: `{"message":"API rate limit exceeded for user ID 1.","documentation_url":"https://docs.github.com/rest/overview/rate-limits-for-the-rest-api"}`},
	{name: "primary, 429", status: 429, until: 10 * time.Minute, want: throttled(ScopeAccount, "x-ratelimit-remaining 0"), header: "x-ratelimit-remaining: 0\nx-ratelimit-reset: 1788365462\n"},
	{name: "primary, reset over", status: 403, until: 0, want: throttled(ScopeAccount, "x-ratelimit-remaining 0"), header: "x-ratelimit-remaining: 0\nx-ratelimit-reset: 1\n"},
	{name: "primary, reset far away", status: 403, until: 61 * time.Minute, asked: time.Unix(envelope.MaxSeconds, 0).Sub(arrival.Truncate(time.Second)), want: throttled(ScopeAccount, "x-ratelimit-remaining 0"), header: "x-ratelimit-remaining: 0\nx-ratelimit-reset: 99999999999999999999\n"},
	{name: "primary, no reset", status: 403, until: time.Minute, want: throttled(ScopeAccount, "x-ratelimit-remaining 0"), header: "x-ratelimit-remaining: 0\n"},
	{name: "secondary", status: 403, until: 30 * time.Second, want: throttled(ScopeSecondary, "retry-after"), header: "retry-after: 30\nx-ratelimit-remaining: 4990\nx-ratelimit-reset: 1788365462\n"},
	{name: "retry-after wins", status: 429, until: 30 * time.Second, want: throttled(ScopeSecondary, "retry-after"), header: "retry-after: 30\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 1788365462\n"},
	{name: "secondary without headers", status: 403, until: time.Minute, want: throttled(ScopeSecondary, "secondary rate limit"), header: "x-ratelimit-remaining: 4990\n",
		body: `{"documentation_url":"https://docs.github.com/free-pro-team@latest/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits","message":"You have exceeded a secondary rate limit."}`},
	{name: "429 alone", status: 429, until: time.Minute, want: throttled(ScopeSecondary, "status 429")},
	{name: "no permission", status: 403, header: "x-ratelimit-remaining: 4990\nx-ratelimit-reset: 1788365462\n", body: `{"message":"Resource not accessible by integration","documentation_url":"https://docs.github.com/rest/issues#create"}`},
	{name: "a message about limits", status: 403, header: "x-ratelimit-remaining: 10\n", body: `{"message":"You have exceeded a secondary rate limit","documentation_url":"https://docs.github.com/rest"}`},
	{name: "another's documentation", status: 403, body: `{"documentation_url":"https://example.com/#secondary-rate-limits"}`},
	{name: "a file", status: 403, header: "Content-Disposition: attachment\n", ignored: "the body is a file, or a part of one", body: `{"documentation_url":"https://docs.github.com/x#secondary-rate-limits"}`},
	{name: "a URL that is none", status: 403, body: `{"documentation_url":":#secondary-rate-limits"}`},
	{name: "the last request that was served", status: 200, header: "x-ratelimit-remaining: 0\nx-ratelimit-reset: 1788365462\n", body: `{"id":1}`},
	{name: "not found", status: 404, header: "retry-after: 30\n"},
	{name: "another zero", status: 403, header: "x-ratelimit-remaining: 00\n"},
}

func TestGitHubDetector(t *testing.T) { check(t, GitHubDetector(), gitHubRows) }
