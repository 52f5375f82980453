package httplimit

import (
	"bytes"
	"html"
	"net/http"
	"strings"
	"time"
)

// DingTalk's pages, under https://open.dingtalk.com/document/development/:
//
//	call-frequency-limit                                  2026-01: the dimensions, the ban page
//	how-to-process-api-throttling-on-the-dingtalk-server  2026-05: old and new codes, penalties
//	server-api-error-codes-1                              2026-05: 90001 to 90014, the new API's codes
//	custom-robots-send-group-messages                     2026-07: 410100, 20 a minute, 10 minutes

// Penalties that DingTalk documents.
const (
	dingTalkSecond    = time.Second      // of a limit per second
	dingTalkBan       = 5 * time.Minute  // of an address
	dingTalkRobotBan  = 10 * time.Minute // of a robot
	dingTalkSecondMax = time.Minute      // the most that a text may make of a penalty of a second
)

// shanghai is the zone of the instants in DingTalk's texts. It has had no daylight saving since 1991,
// so a fixed zone does and no zone database is needed.
var shanghai = time.FixedZone("Asia/Shanghai", 8*60*60)

// dingTalkLimit is what a code means: the limit, and how long its penalty lasts where a page says so.
type dingTalkLimit struct {
	scope   Scope
	penalty time.Duration // 0: not documented
}

// dingTalkOld has the codes of the old API that stand for "temporarily disabled" because of the number
// of calls. 90017 (too many organisations from one address) is none of them: waiting does not help.
// The scope is empty where the page names a limit that spans all APIs of an organisation or a suite.
var dingTalkOld = map[string]dingTalkLimit{
	"90001": {ScopeIP, 0},
	"90002": {ScopeAPI, dingTalkSecond},
	"90003": {"", 0},
	"90004": {"", 0},
	"90005": {ScopeCorpAPI, 0},
	"90006": {ScopeAppAPI, 0},
	"90007": {"", 0},
	"90008": {ScopeCorpAPI, 0},
	"90009": {"", 0},
	"90010": {ScopeAppAPI, 0},
	"90011": {"", 0},
	"90012": {ScopeAppAPI, 0},
	"90013": {"", 0},
	"90014": {ScopeCorpAPI, 0},
	"90018": {ScopeAppAPI, dingTalkSecond},
	"90019": {ScopeCorpAPI, dingTalkSecond},
	"90020": {ScopeMonth, 0},
}

var dingTalkNew = map[string]dingTalkLimit{
	"Forbidden.AccessDenied.QpsLimitForAppkeyAndApi":         {ScopeAppAPI, dingTalkSecond},
	"Forbidden.AccessDenied.QpmLimitForAppkeyAndApi":         {ScopeAppAPI, 0},
	"Forbidden.AccessDenied.QpsLimitForSuitekeyAndOrgAndApi": {ScopeCorpAPI, dingTalkSecond},
	"Forbidden.AccessDenied.QpmLimitForSuitekeyAndOrgAndApi": {ScopeCorpAPI, 0},
	"Forbidden.AccessDenied.QpsLimitForApi":                  {ScopeAPI, dingTalkSecond},
	"Forbidden.AccessDenied.ApiCountLimitForOrg":             {ScopeMonth, 0},
}

// DingTalkOldDetector knows the refusals of oapi.dingtalk.com: errcode 90018 and its like, or errcode
// 88 with such a sub_code. errcode 88 with any other sub_code is a matter of authorisation.
//
// Until is the end that the text names (处罚将在 … 结束, 限制将在 … 结束), otherwise the documented
// second, otherwise zero. For 90020 it is the end of the month in China. DingTalk asks to back off 1, 2,
// 4 s from 90002; the verdict has the first step, the growing ones are the caller's.
func DingTalkOldDetector() Detector {
	return DetectorFunc(func(r *Response) Verdict {
		o := r.json()
		code := o["errcode"]
		if code == "88" {
			code = o["sub_code"]
		}
		limit, known := dingTalkOld[code]
		if !known {
			return Verdict{}
		}
		return limit.verdict(r, code, o["sub_msg"], o["errmsg"])
	})
}

// DingTalkNewDetector knows the refusals of api.dingtalk.com: HTTP 403 with one of the codes
// Forbidden.AccessDenied.QpsLimitFor…, QpmLimitFor… or ApiCountLimitForOrg. Other codes with 403 are
// missing permissions. Until is as DingTalkOldDetector has it.
func DingTalkNewDetector() Detector {
	forbidden := func(status int, _ http.Header) bool { return status == http.StatusForbidden }
	return selective{needs: forbidden, DetectorFunc: func(r *Response) Verdict {
		if r.Status != http.StatusForbidden {
			return Verdict{}
		}
		o := r.json()
		code := o["code"]
		limit, known := dingTalkNew[code]
		if !known {
			return Verdict{}
		}
		return limit.verdict(r, code, o["message"])
	}}
}

// DingTalkRobotDetector knows the refusals of a custom robot: errcode 410100, and two that robots
// answer and the page does not list: 130101 ("send too fast, exceed 20 times per minute") and 660026 ("sending
// too many messages per minute"). The robot is banned for 10 minutes.
func DingTalkRobotDetector() Detector {
	return DetectorFunc(func(r *Response) Verdict {
		code := r.json()["errcode"]
		if code != "410100" && code != "130101" && code != "660026" {
			return Verdict{}
		}
		return Verdict{Throttled: true, Banned: true, Until: r.after(dingTalkRobotBan), Scope: ScopeRobot, Reason: code}
	})
}

// DingTalkBanDetector knows the answer to an address that made more than 10,000 calls in 20 s:
// {"status":1111,"wait":5,"source":"x5","punish":"deny","uuid":"…"}, alone or within an HTML page; the
// documentation has no other example of the page. Both status and punish must be there: taking any
// other HTML page, such as a proxy's error, for a ban would silence a fleet for minutes.
//
// The ban lasts 5 minutes. wait is read as minutes, which agrees with the page, and counts when it is
// longer.
func DingTalkBanDetector() Detector {
	return DetectorFunc(func(r *Response) Verdict {
		o := r.json()
		if !isBan(o) {
			o = embeddedBan(r.Body)
		}
		if o == nil {
			return Verdict{}
		}
		ban := dingTalkBan
		if wait, ok := parseSeconds(o["wait"]); ok {
			ban = max(ban, min(wait, MaxPenalty)*60)
		}
		return Verdict{Throttled: true, Banned: true, Until: r.after(ban), Scope: ScopeIP, Reason: "status 1111, punish deny"}
	})
}

func isBan(o object) bool { return o["status"] == "1111" && o["punish"] == "deny" }

const (
	maxEmbedded     = 64      // objects of a page that are looked at
	maxEmbeddedSize = 1 << 10 // bytes of each
)

// embeddedBan is the ban's object within an HTML page, nil when there is none.
func embeddedBan(body []byte) object {
	page := bytes.TrimLeft(bytes.TrimPrefix(body, []byte("\ufeff")), " \t\r\n")
	if len(page) == 0 || page[0] != '<' {
		return nil
	}
	rest := []byte(html.UnescapeString(string(page)))
	for tries := 0; tries < maxEmbedded; {
		_, inside, found := bytes.Cut(rest, []byte("{"))
		if !found {
			return nil
		}
		start := rest[len(rest)-len(inside)-1:]
		rest = inside
		if !bytes.HasPrefix(bytes.TrimLeft(inside, " \t\r\n"), []byte(`"`)) {
			continue // a brace of a style or a script
		}
		tries++
		if o := parseObject(start[:min(len(start), maxEmbeddedSize)], false); isBan(o) {
			return o
		}
	}
	return nil
}

func (l dingTalkLimit) verdict(r *Response, code string, texts ...string) Verdict {
	v := Verdict{Throttled: true, Scope: l.scope, Reason: code}
	if l.scope == ScopeMonth {
		// The one Until that may be more than MaxPenalty away.
		now := r.serverNow().In(shanghai)
		end := time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, shanghai)
		v.Until = r.Now.Add(end.Sub(now))
		return v
	}
	if l.penalty > 0 {
		v.Until = r.after(l.penalty)
	}
	for _, text := range texts {
		end, ok := penaltyEnd(text)
		if !ok || !end.After(r.serverNow()) {
			continue
		}
		v.Until = r.at(end)
		if limit := r.after(dingTalkSecondMax); l.penalty == dingTalkSecond && v.Until.After(limit) {
			v.Until = limit
		}
		break
	}
	return v
}

// penaltyEnd reads the end from a text such as "…, 处罚将在 2018-12-09 15:01:11 结束."
func penaltyEnd(text string) (time.Time, bool) {
	for _, marker := range []string{"处罚将在", "限制将在"} {
		_, rest, found := strings.Cut(text, marker)
		rest = strings.TrimLeft(rest, " ")
		if !found || len(rest) < len(time.DateTime) {
			continue
		}
		end, err := time.ParseInLocation(time.DateTime, rest[:len(time.DateTime)], shanghai)
		if err == nil && strings.HasPrefix(strings.TrimLeft(rest[len(time.DateTime):], " "), "结束") {
			return end, true
		}
	}
	return time.Time{}, false
}
