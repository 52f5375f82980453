package httplimit

import (
	"net/http"
	"net/url"
	"strings"
	"time"
)

// WeComDetector knows the refusals of qyapi.weixin.qq.com: errcode 45009 (frequency) and 45033 (too many
// requests at the same time).
//
// Exceeding a limit per minute blocks for 60 s, one per hour for 60 minutes
// (https://developer.work.weixin.qq.com/document/path/90454). The answer does not say which it was, so
// Until is the shorter of the two: if the block goes on the next call says so. 45009 of a group robot,
// under /cgi-bin/webhook/, has ScopeRobot, any other ScopeCorpAPI. For 45033 Until is zero: the
// calls in flight have to end.
func WeComDetector() Detector {
	return DetectorFunc(func(r *Response) Verdict {
		switch r.json()["errcode"] {
		case "45009":
			scope := ScopeCorpAPI
			if r.Request != nil && r.Request.URL != nil && strings.HasPrefix(r.Request.URL.Path, "/cgi-bin/webhook/") {
				scope = ScopeRobot
			}
			return Verdict{Throttled: true, Until: r.after(time.Minute), Scope: scope, Reason: "45009"}
		case "45033":
			return Verdict{Throttled: true, Scope: ScopeConcurrency, Reason: "45033"}
		}
		return Verdict{}
	})
}

// WeChatDetector knows the refusals of api.weixin.qq.com: errcode 45009 (the quota of the day is used
// up, https://developers.weixin.qq.com/doc/service/en/guide/dev/api/limit.html) and 45011 ("api
// minute-quota reach limit, must slower, retry next minute").
//
// After 45009 Until is the end of the day in China; the page says "daily" and not when the day ends.
// After 45011 it is a minute away. Do not put it beside WeComDetector: 45009 means another thing there.
func WeChatDetector() Detector {
	return DetectorFunc(func(r *Response) Verdict {
		switch r.json()["errcode"] {
		case "45009":
			now := r.serverNow().In(shanghai)
			end := time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 0, 0, shanghai)
			return Verdict{Throttled: true, Until: r.at(end), Scope: ScopeDay, Reason: "45009"}
		case "45011":
			return Verdict{Throttled: true, Until: r.after(time.Minute), Scope: ScopeAppAPI, Reason: "45011"}
		}
		return Verdict{}
	})
}

// FeishuDetector knows the refusals of open.feishu.cn and open.larksuite.com: code 99991400, with HTTP
// 429, or 400 from older APIs, and the seconds to wait in x-ogw-ratelimit-reset; and 11232, which a
// custom bot gets when the platform is busy
// (https://open.feishu.cn/document/server-docs/api-call-guide/frequency-control). Without the header
// Until is zero.
func FeishuDetector() Detector {
	return DetectorFunc(func(r *Response) Verdict {
		v := Verdict{Throttled: true, Reason: r.json()["code"]}
		switch v.Reason {
		case "99991400":
			v.Scope = ScopeAppAPI
			if wait, ok := parseSeconds(r.Header.Get("X-Ogw-Ratelimit-Reset")); ok {
				v.Until = r.after(wait)
			}
		case "11232":
			v.Scope = ScopeRobot
		default:
			return Verdict{}
		}
		return v
	})
}

// GitHubDetector knows the refusals of api.github.com: HTTP 403 or 429 with a Retry-After
// (ScopeSecondary), with x-ratelimit-remaining 0 (ScopeAccount, until x-ratelimit-reset), or with a
// documentation_url that leads to the section on secondary limits. A 403 with none of them is a missing
// permission. Where GitHub names no time it asks for a minute at least, and to wait exponentially longer
// if that does not help; the minute is the verdict's
// (https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api).
//
// That a refusal may come without headers, and then only the documentation_url tells, is from
// https://github.com/hub4j/github-api/issues/1805 and from go-github's CheckResponse.
func GitHubDetector() Detector {
	forbidden := func(status int, _ http.Header) bool { return status == http.StatusForbidden }
	return selective{needs: forbidden, DetectorFunc: func(r *Response) Verdict {
		if r.Status != http.StatusForbidden && r.Status != http.StatusTooManyRequests {
			return Verdict{}
		}
		v := Verdict{Throttled: true, Until: r.after(time.Minute), Scope: ScopeSecondary}
		if until, ok := r.retryAfter(); ok {
			v.Until, v.Reason = until, "retry-after"
			return v
		}
		if r.Header.Get("X-Ratelimit-Remaining") == "0" {
			v.Scope, v.Reason = ScopeAccount, "x-ratelimit-remaining 0"
			if epoch, ok := parseSeconds(r.Header.Get("X-Ratelimit-Reset")); ok {
				v.Until = r.at(time.Unix(int64(epoch/time.Second), 0))
			}
			return v
		}
		if r.Status == http.StatusTooManyRequests {
			v.Reason = "status 429"
			return v
		}
		if isSecondaryLimit(r.json()["documentation_url"]) {
			v.Reason = "secondary rate limit"
			return v
		}
		return Verdict{}
	}}
}

// isSecondaryLimit compares the URL's fragment, whose page has moved more than once.
func isSecondaryLimit(documentation string) bool {
	u, err := url.Parse(documentation)
	if err != nil {
		return false
	}
	switch u.Fragment {
	case "about-secondary-rate-limits", "secondary-rate-limits", "abuse-rate-limits":
		return true
	}
	return false
}
