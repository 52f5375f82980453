// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"bytes"
	"html"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/internal/envelope"
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
	dingTalkTextMax   = 10 * time.Minute // the most that it may make of one without a documented length
	dingTalkBanMax    = 10 * time.Minute // the most that wait may make of an address's ban
)

// The envelopes. Every rejection by oapi.dingtalk.com has status 200, and every one by api.dingtalk.com has 403. The
// documentation names neither the status nor the content type of the ban. A body with 200 may come from a user, and
// one with an error's status comes from the gateway.
var (
	dingTalkFiles     = []string{"/media/downloadfile", "/media/get"}
	dingTalkOldAnswer = envelope.Envelope{Status: envelope.Statuses(http.StatusOK), Types: envelope.JSON, Files: dingTalkFiles}
	dingTalkNewAnswer = envelope.Envelope{Status: envelope.Statuses(http.StatusForbidden), Types: envelope.JSON}
	dingTalkBanAnswer = envelope.Envelope{Files: dingTalkFiles, Types: []string{"application/json", "text/html"},
		Status: func(status int) bool { return status == http.StatusOK || status >= 400 }}

	dingTalkOldFrame = []string{"errcode", "errmsg", "sub_code", "sub_msg", "request_id", "requestId", "success"}
	dingTalkNewFrame = []string{"code", "message", "requestid", "requestId"}
	dingTalkBanFrame = []string{"status", "wait", "source", "punish", "uuid"}
	dingTalkBotFrame = slices.Concat(dingTalkOldFrame, dingTalkBanFrame)
)

// shanghai is the zone of the instants in DingTalk's texts. It has had no daylight saving since 1991,
// so a fixed zone does and no zone database is needed.
var shanghai = time.FixedZone("Asia/Shanghai", 8*60*60)

// dingTalkLimit is what a code means: the limit, and how long its penalty lasts where a page says so.
type dingTalkLimit struct {
	scope   httplimit.Scope
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

// DingTalkOldDetector returns a Detector of the rejections of oapi.dingtalk.com: HTTP 200 and application/json with
// errcode 90018 or a similar one, or errcode 88 with such a sub_code. errcode 88 with any other sub_code is about
// authorization. The response of /media/downloadFile and other downloads with 200 is a file, whatever it says.
//
// Until is the end that the text names (处罚将在 … 结束, 限制将在 … 结束), otherwise the documented second, otherwise zero. A
// text can make a penalty no longer than a minute if a second is documented, and no longer than ten minutes
// otherwise. For 90020 Until is the end of the month in China, if the body has only the fields of a rejection;
// otherwise it is zero. After 90002 DingTalk asks callers to back off 1, 2, 4 s. The Verdict has the first step; the
// growing ones are up to the caller.
func DingTalkOldDetector() httplimit.Detector {
	return detector(func(r answer) httplimit.Verdict {
		o := r.json()
		code := o.Text("errcode")
		if code == "88" {
			code = o.Text("sub_code")
		}
		limit, known := dingTalkOld[code]
		if !known {
			return httplimit.Verdict{}
		}
		if why := r.outside(dingTalkOldAnswer); why != "" {
			return ignored(code, why)
		}
		if r.served(dingTalkOldAnswer) {
			return ignored(code, envelope.AtDownload)
		}
		return limit.verdict(r, code, dingTalkOldFrame, o.Text("sub_msg"), o.Text("errmsg"))
	})
}

// DingTalkNewDetector returns a Detector of the rejections of api.dingtalk.com: HTTP 403 and application/json with
// one of the codes Forbidden.AccessDenied.QpsLimitFor…, QpmLimitFor… or ApiCountLimitForOrg. Other codes with 403 are
// missing permissions. Until is determined as by DingTalkOldDetector.
func DingTalkNewDetector() httplimit.Detector {
	needs := func(status int, header http.Header) bool {
		return status == http.StatusForbidden && !envelope.IsFile(status, header)
	}
	return selective{needs: needs, DetectorFunc: detector(func(r answer) httplimit.Verdict {
		if r.Status != http.StatusForbidden {
			return httplimit.Verdict{}
		}
		o := r.json()
		code := o.Str("code")
		limit, known := dingTalkNew[code]
		if !known {
			return httplimit.Verdict{}
		}
		if why := r.outside(dingTalkNewAnswer); why != "" {
			return ignored(code, why)
		}
		return limit.verdict(r, code, dingTalkNewFrame, o.Text("message"))
	})}
}

// DingTalkRobotDetector returns a Detector of the rejections of a custom robot: HTTP 200 and application/json with
// errcode 410100, or with one of two that the documentation does not list: 130101 ("send too fast, exceed 20 times
// per minute") and 660026 ("sending too many messages per minute"). The robot is banned for 10 minutes. If the body
// has other fields than those of a rejection, or of a rejection and a ban, Until is zero.
func DingTalkRobotDetector() httplimit.Detector {
	return detector(func(r answer) httplimit.Verdict {
		code := r.json().Text("errcode")
		if code != "410100" && code != "130101" && code != "660026" {
			return httplimit.Verdict{}
		}
		if why := r.outside(dingTalkOldAnswer); why != "" {
			return ignored(code, why)
		}
		if r.served(dingTalkOldAnswer) {
			return ignored(code, envelope.AtDownload)
		}
		v := httplimit.Verdict{Throttled: true, Banned: true, Until: r.after(dingTalkRobotBan), Scope: ScopeRobot, Reason: code}
		if !r.exact(dingTalkBotFrame...) {
			return doubted(v)
		}
		return v
	})
}

// banReason is the Reason of an address's ban, which has no code.
const banReason = "status 1111, punish deny"

// DingTalkBanDetector returns a Detector of the ban of an address that made more than 10,000 calls in 20 s. The
// response is {"status":1111,"wait":5,"source":"x5","punish":"deny","uuid":"…"}, as application/json or text/html, or
// as the only content of the body element of a small HTML page; the documentation has no other example of the page.
// The status is 200 or an error's.
//
// The fields status, source, punish and uuid must be present with these types, and no other field but wait. If any
// HTML page counted as a ban, a proxy's error page or a page that quotes what a user wrote would silence a fleet for
// minutes. A response that has only some of this, or in another place, is [httplimit.Verdict.Ignored].
//
// The ban lasts 5 minutes. The field wait is read as minutes, which agrees with the page. It counts if it is longer,
// up to 10 minutes.
func DingTalkBanDetector() httplimit.Detector {
	return detector(func(r answer) httplimit.Verdict {
		o := r.json()
		like := looksLikeBan(o)
		if !like {
			if o = wholePage(r); o == nil {
				o = &envelope.Object{}
			}
			like = looksLikeBan(o)
		}
		switch why := r.outside(dingTalkBanAnswer); {
		case !like && !embedsBan(r.Body):
			return httplimit.Verdict{}
		case why != "":
			return ignored(banReason, why)
		case r.served(dingTalkBanAnswer):
			return ignored(banReason, envelope.AtDownload)
		case !like:
			return ignored(banReason, "it is part of a page")
		case !isBan(r, o):
			return ignored(banReason, "the fields are not the documented ones")
		}
		v := httplimit.Verdict{Throttled: true, Banned: true, Scope: ScopeIP, Reason: banReason}
		wait, _ := envelope.ParseSeconds(o.Number("wait"))
		return r.bounded(v, max(dingTalkBan, min(wait, envelope.MaxPenalty)*60), dingTalkBanMax)
	})
}

func looksLikeBan(o *envelope.Object) bool {
	return o.Text("status") == "1111" && o.Text("punish") == "deny"
}

// isBan reports whether the object of r's body is the documented one.
func isBan(r answer, o *envelope.Object) bool {
	waits := o.Has("wait")
	return o.Number("status") == "1111" && o.Str("punish") == "deny" && o.Str("source") != "" && o.Str("uuid") != "" &&
		(!waits || o.Number("wait") != "") && r.Complete && len(r.Body) <= envelope.MaxSize && o.Only(dingTalkBanFrame...)
}

// wholePage returns the object of an HTML page whose body element holds an object and nothing else, nil for any
// other. A page that shows what a user wrote has that among its own elements, and quotation marks escaped
// as a rule: neither is undone here.
func wholePage(r answer) *envelope.Object {
	page := bytes.TrimLeft(bytes.TrimPrefix(r.Body, []byte("\ufeff")), " \t\r\n")
	if !r.Complete || len(page) > envelope.MaxSize || len(page) == 0 || page[0] != '<' || envelope.MediaType(r.Header) != "text/html" {
		return nil
	}
	lower := asciiLower(page)
	start := bytes.Index(lower, []byte("<body"))
	end := bytes.LastIndex(lower, []byte("</body>"))
	if start < 0 || end < start {
		return nil
	}
	attributes, _, found := bytes.Cut(lower[start+len("<body"):end], []byte(">"))
	rest := bytes.Trim(bytes.TrimPrefix(bytes.TrimLeft(lower[end+len("</body>"):], " \t\r\n"), []byte("</html>")), " \t\r\n")
	if !found || len(rest) > 0 || len(attributes) > 0 && !bytes.ContainsAny(attributes[:1], " \t\r\n") {
		return nil
	}
	return envelope.ParseObject(page[start+len("<body")+len(attributes)+1:end], true)
}

// asciiLower returns b with the letters of ASCII in lower case, byte for byte, whatever its charset.
func asciiLower(b []byte) []byte {
	lower := bytes.Clone(b)
	for i, c := range lower {
		if 'A' <= c && c <= 'Z' {
			lower[i] = c | 0x20
		}
	}
	return lower
}

const (
	maxEmbedded     = 64      // objects of a page that are looked at
	maxEmbeddedSize = 1 << 10 // bytes of each
)

// embedsBan reports whether an HTML page has an object like a ban's somewhere, which is worth an event.
func embedsBan(body []byte) bool {
	page := bytes.TrimLeft(bytes.TrimPrefix(body, []byte("\ufeff")), " \t\r\n")
	if len(page) == 0 || page[0] != '<' {
		return false
	}
	rest := []byte(html.UnescapeString(string(page)))
	for tries := 0; tries < maxEmbedded; {
		_, inside, found := bytes.Cut(rest, []byte("{"))
		if !found {
			return false
		}
		start := rest[len(rest)-len(inside)-1:]
		rest = inside
		if !bytes.HasPrefix(bytes.TrimLeft(inside, " \t\r\n"), []byte(`"`)) {
			continue // a brace of a style or a script
		}
		tries++
		if looksLikeBan(envelope.ParseObject(start[:min(len(start), maxEmbeddedSize)], false)) {
			return true
		}
	}
	return false
}

// verdict returns the verdict on a refusal with the code; frame names the fields that the body of one has.
func (l dingTalkLimit) verdict(r answer, code string, frame []string, texts ...string) httplimit.Verdict {
	v := httplimit.Verdict{Throttled: true, Scope: l.scope, Reason: code}
	if l.scope == ScopeMonth {
		v.Until = r.monthEnd()
		if !r.exact(frame...) {
			return doubted(v)
		}
		return v
	}
	most := dingTalkTextMax
	if l.penalty > 0 {
		v.Until = r.after(l.penalty)
		most = dingTalkSecondMax
	}
	for _, text := range texts {
		end, ok := penaltyEnd(text)
		if !ok || !end.After(r.serverNow()) {
			continue
		}
		return r.bounded(v, r.left(end), most)
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
