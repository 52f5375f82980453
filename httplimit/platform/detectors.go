// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/internal/envelope"
)

// The envelopes of the other platforms. WeChat's gateway writes some of its JSON as text/plain.
var (
	weComAnswer  = envelope.Envelope{Status: envelope.Statuses(http.StatusOK), Types: envelope.JSON, Files: []string{"/media/get", "/media/get/jssdk"}}
	weChatAnswer = envelope.Envelope{Status: envelope.Statuses(http.StatusOK), Types: []string{"application/json", "text/plain"},
		Files: []string{"/media/get", "/media/get/jssdk", "/material/get_material"}}
	feishuAnswer    = envelope.Envelope{Status: envelope.Statuses(http.StatusTooManyRequests, http.StatusBadRequest), Types: envelope.JSON}
	feishuBotAnswer = envelope.Envelope{Status: envelope.Statuses(http.StatusOK, http.StatusTooManyRequests, http.StatusBadRequest), Types: envelope.JSON}
	// The page of the quota does not say with which status it comes.
	feishuMonthAnswer = envelope.Envelope{Status: envelope.Statuses(http.StatusTooManyRequests, http.StatusBadRequest, http.StatusForbidden), Types: envelope.JSON}
	gitHubAnswer      = envelope.Envelope{Status: envelope.Statuses(http.StatusForbidden), Types: envelope.JSON}

	weComFrame = []string{"errcode", "errmsg"}
)

// The bounds of a penalty that a platform's header announces: the windows are one minute and one hour long.
const (
	feishuMax = 2 * time.Minute
	gitHubMax = time.Hour + time.Minute
)

// isWeComError reports whether the body is an error of WeCom or WeChat and nothing else. Where the platform
// serves files its errors have status 200 as well, and a file has a Content-Disposition: a file
// of just these bytes that comes without one would be taken for an error.
func isWeComError(r answer) bool {
	o := r.json()
	return r.exact(weComFrame...) && o.Len() == len(weComFrame)
}

// WeComDetector returns a Detector of the rejections of qyapi.weixin.qq.com: HTTP 200 and application/json with
// errcode 45009 (frequency) or 45033 (too many requests at the same time). A download with status 200 is a rejection
// only if its body has the two fields errcode and errmsg, and nothing else.
//
// Exceeding a limit per minute blocks for 60 s, and one per hour for 60 minutes
// (https://developer.work.weixin.qq.com/document/path/90454). The response does not say which limit it was, so Until
// is the shorter of the two; if the block goes on, the next call says so. 45009 of a group robot, under
// /cgi-bin/webhook/, has ScopeRobot; any other has ScopeCorpAPI. For 45033 Until is zero: the calls in flight have to
// end.
func WeComDetector() httplimit.Detector {
	return detector(func(r answer) httplimit.Verdict {
		code := r.json().Text("errcode")
		if code != "45009" && code != "45033" {
			return httplimit.Verdict{}
		}
		if why := r.outside(weComAnswer); why != "" {
			return ignored(code, why)
		}
		if r.served(weComAnswer) && !isWeComError(r) {
			return ignored(code, envelope.AtDownload)
		}
		if code == "45033" {
			return httplimit.Verdict{Throttled: true, Scope: ScopeConcurrency, Reason: code}
		}
		scope := ScopeCorpAPI
		if r.Request != nil && r.Request.URL != nil && strings.HasPrefix(r.Request.URL.Path, "/cgi-bin/webhook/") {
			scope = ScopeRobot
		}
		return httplimit.Verdict{Throttled: true, Until: r.after(time.Minute), Scope: scope, Reason: code}
	})
}

// WeChatDetector returns a Detector of the rejections of api.weixin.qq.com: HTTP 200 and application/json or
// text/plain with errcode 45009 (the daily quota is used up,
// https://developers.weixin.qq.com/doc/service/en/guide/dev/api/limit.html) or 45011 ("api minute-quota reach limit,
// must slower, retry next minute"). A text/plain body is a rejection only if it has the two fields errcode and errmsg
// and nothing else; a download with status 200 must also be application/json.
//
// After 45009 Until is the end of the day in China, if the body has these two fields alone and the path is not that
// of a download; otherwise Until is zero. The page says "daily", but not when the day ends. After 45011 Until is a
// minute away. Do not combine it with WeComDetector, for which 45009 means something else.
func WeChatDetector() httplimit.Detector {
	return detector(func(r answer) httplimit.Verdict {
		code := r.json().Text("errcode")
		if code != "45009" && code != "45011" {
			return httplimit.Verdict{}
		}
		if why := r.outside(weChatAnswer); why != "" {
			return ignored(code, why)
		}
		json, download := envelope.MediaType(r.Header) == "application/json", r.served(weChatAnswer)
		if download && !(json && isWeComError(r)) {
			return ignored(code, envelope.AtDownload)
		}
		if !json && !isWeComError(r) {
			return ignored(code, "plain text with other fields than an error's")
		}
		if code == "45011" {
			return httplimit.Verdict{Throttled: true, Until: r.after(time.Minute), Scope: ScopeAppAPI, Reason: code}
		}
		now := r.serverNow().In(shanghai)
		end := time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 0, 0, shanghai)
		v := httplimit.Verdict{Throttled: true, Until: r.after(r.left(end)), Scope: ScopeDay, Reason: code}
		if download || !r.exact(weComFrame...) {
			return doubted(v)
		}
		return v
	})
}

// FeishuDetector returns a Detector of the rejections of open.feishu.cn and open.larksuite.com. They are
// application/json with one of these codes:
//
//   - 99991400, with HTTP 429, or 400 from older APIs. Until is that of x-ogw-ratelimit-reset, in seconds.
//   - 230020, for messages to one chat.
//   - 99991403, the monthly quota of calls. Until is the end of the month in China.
//   - For custom bots, 11232 when the platform is busy and 9499, with HTTP 200 under /bot/ or with 429 or 400.
//
// Any other response with 200 has been written by users. Except for the monthly quota, Until is at most two minutes
// away, because the limits are per second and per minute, and zero without the header.
// (https://open.feishu.cn/document/server-docs/api-call-guide/frequency-control,
// https://open.feishu.cn/document/client-docs/bot-v3/add-custom-bot,
// https://open.feishu.cn/document/platform-notices/platform-updates-/custom-app-api-call-limit)
func FeishuDetector() httplimit.Detector {
	return detector(func(r answer) httplimit.Verdict {
		code := r.json().Number("code")
		v, answer := httplimit.Verdict{Throttled: true, Reason: code}, feishuAnswer
		switch code {
		case "99991400":
			v.Scope = ScopeAppAPI
			if wait, ok := envelope.Wait(r.Header, r.Now, "X-Ogw-Ratelimit-Reset"); ok {
				v = r.bounded(v, wait, feishuMax)
			}
		case "230020":
			v.Scope = ScopeAppAPI
		case "99991403":
			v.Scope, v.Until = ScopeMonth, r.monthEnd()
			answer = feishuMonthAnswer
		case "11232", "9499":
			v.Scope = ScopeRobot
			if r.Request != nil && r.Request.URL != nil && strings.Contains(r.Request.URL.Path, "/bot/") {
				answer = feishuBotAnswer
			}
		default:
			return httplimit.Verdict{}
		}
		if why := r.outside(answer); why != "" {
			return ignored(code, why)
		}
		return v
	})
}

// GitHubDetector returns a Detector of the rejections of api.github.com: HTTP 403 or 429 with a Retry-After
// (ScopeSecondary), with x-ratelimit-remaining 0 (ScopeAccount, until x-ratelimit-reset), or with a documentation_url
// that leads to the section on secondary limits. A 403 with none of them is a missing permission.
//
// Until is at most an hour and a minute away, because the longest window is an hour. If GitHub names no time, it asks
// callers to wait at least a minute, and exponentially longer if that does not help; the Verdict has the minute
// (https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api).
//
// The sources for a rejection without headers, which only the documentation_url reveals, are
// https://github.com/hub4j/github-api/issues/1805 and go-github's CheckResponse.
func GitHubDetector() httplimit.Detector {
	needs := func(status int, header http.Header) bool {
		return status == http.StatusForbidden && !envelope.IsFile(status, header)
	}
	return selective{needs: needs, DetectorFunc: detector(func(r answer) httplimit.Verdict {
		if r.Status != http.StatusForbidden && r.Status != http.StatusTooManyRequests {
			return httplimit.Verdict{}
		}
		v := httplimit.Verdict{Throttled: true, Until: r.after(time.Minute), Scope: ScopeSecondary}
		if wait, ok := envelope.RetryAfter(r.Header, r.Now); ok {
			v.Reason = "retry-after"
			return r.bounded(v, wait, gitHubMax)
		}
		if r.Header.Get("X-Ratelimit-Remaining") == "0" {
			v.Scope, v.Reason = ScopeAccount, "x-ratelimit-remaining 0"
			if epoch, ok := envelope.ParseSeconds(r.Header.Get("X-Ratelimit-Reset")); ok { // always an instant, however small
				v = r.bounded(v, r.left(time.Unix(int64(epoch/time.Second), 0)), gitHubMax)
			}
			return v
		}
		if r.Status == http.StatusTooManyRequests {
			v.Reason = "status 429"
			return v
		}
		if !isSecondaryLimit(r.json().Str("documentation_url")) {
			return httplimit.Verdict{}
		}
		v.Reason = "secondary rate limit"
		if why := r.outside(gitHubAnswer); why != "" {
			return ignored(v.Reason, why)
		}
		return v
	})}
}

// isSecondaryLimit compares the URL's fragment, whose page has moved more than once within
// docs.github.com.
func isSecondaryLimit(documentation string) bool {
	u, err := url.Parse(documentation)
	if err != nil || u.Host != "docs.github.com" && u.Host != "developer.github.com" {
		return false
	}
	switch u.Fragment {
	case "about-secondary-rate-limits", "secondary-rate-limits", "abuse-rate-limits":
		return true
	}
	return false
}
