// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/internal/detecttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// A hostile answer is one whose bytes, or whose numbers, somebody other than the platform's gateway chose. The tables of the
// detectors have more of them.
type hostile struct {
	name   string
	url    string
	status int    // 200 when 0
	header string // "Name: value" lines
	body   string
	most   time.Duration // that anybody may be made to wait; 0: nothing at all
}

// A hostilePlatform is a platform's detectors, with its profile and without.
type hostilePlatform struct {
	profile   func(key string) httplimit.Profile // nil: it has none
	detectors []httplimit.Detector
	rows      []hostile
}

const (
	jsonType   = "Content-Type: application/json\n"
	attachment = jsonType + "Content-Disposition: attachment; filename=\"a.json\"\n"
	fullBan    = `{"status":1111,"wait":1440,"source":"x5","punish":"deny","uuid":"9ff0e7e2"}`
	dingFile   = "http://oapi.dingtalk.com/media/downloadFile?media_id=m"
	dingNew    = "http://api.dingtalk.com/v1.0/robot/messageFiles/download"
	dingUser   = "http://oapi.dingtalk.com/topapi/v2/user/get"
	dingRobot  = "http://oapi.dingtalk.com/robot/send?access_token=t"
	weComFile  = "http://qyapi.weixin.qq.com/cgi-bin/media/get?media_id=m"
	weComUser  = "http://qyapi.weixin.qq.com/cgi-bin/user/get?userid=u"
	weChatFile = "http://api.weixin.qq.com/cgi-bin/media/get?media_id=m"
	weChatUser = "http://api.weixin.qq.com/cgi-bin/user/info?openid=o"
	feishuFile = "http://open.feishu.cn/open-apis/im/v1/messages/om_1/resources/file_1?type=file"
	feishuDisk = "http://open.feishu.cn/open-apis/drive/v1/files/f/download"
	feishuChat = "http://open.feishu.cn/open-apis/im/v1/chats"
	feishuBot  = "http://open.feishu.cn/open-apis/bot/v2/hook/t"
	gitHubRepo = "http://api.github.com/repos/o/r/contents/f"
)

func page(text string) string {
	return "<!DOCTYPE html><html><head><title>Minutes</title></head><body><h1>Minutes</h1><p>" + text + "</p></body></html>"
}

var escapedText = strings.NewReplacer(`"`, "&quot;", "<", "&lt;").Replace

var hostilePlatforms = map[string]hostilePlatform{
	"DingTalk": {
		profile: func(key string) httplimit.Profile { return DingTalk(key, WithEgress(key)) },
		detectors: []httplimit.Detector{DingTalkRobotDetector(), DingTalkBanDetector(), DingTalkOldDetector(),
			DingTalkNewDetector()},
		rows: []hostile{
			{name: "a ban in an attachment", url: dingFile, header: attachment, body: `{"status":1111,"punish":"deny","wait":1440}`},
			{name: "the documented ban in an attachment of any API", url: dingUser, header: attachment, body: fullBan},
			{name: "a disposition without a value", url: dingUser, header: jsonType + "Content-Disposition: \n", body: fullBan},
			{name: "a part of a file", url: dingUser, status: 206, header: jsonType + "Content-Range: bytes 0-74/99\n", body: fullBan},
			{name: "a part of a file with 200", url: dingUser, header: jsonType + "Content-Range: bytes 0-74/99\n", body: fullBan},
			{name: "a ban as XML", url: dingUser, header: "Content-Type: text/xml\n", body: fullBan},
			{name: "a ban as another JSON", url: dingUser, header: "Content-Type: application/geo+json\n", body: fullBan},
			{name: "two content types", url: dingUser, header: jsonType + "Content-Type: text/html\n", body: fullBan},
			{name: "a large ban", url: dingUser, header: jsonType, body: fullBan + strings.Repeat(" ", 5000)},
			{name: "text in a page", url: dingUser, header: "Content-Type: text/html\n", body: page(fullBan)},
			{name: "text in a page's title", url: dingUser, header: "Content-Type: text/html\n", body: `<html><head><title>` + fullBan + `</title></head><body></body></html>`},
			{name: "a page that is a file", url: dingFile, header: "Content-Type: text/html\n", body: "<html><body>" + fullBan + "</body></html>"},
			{name: "a page in an attachment", url: dingUser, header: "Content-Type: text/html\nContent-Disposition: attachment\n", body: "<html><body>" + fullBan + "</body></html>"},
			{name: "a picture", url: dingUser, header: "Content-Type: image/png\n", body: fullBan},
			{name: "the month's quota in an attachment", url: dingFile, header: attachment, body: `{"errcode":90020,"errmsg":"x"}`},
			{name: "the month's quota in a file", url: dingFile, header: jsonType, body: `{"errcode":90020,"errmsg":"x"}`},
			{name: "the month's quota in an answer of another shape", url: dingUser, header: jsonType, body: `{"errcode":90020,"errmsg":"x","media":{}}`, most: time.Minute},
			{name: "the new API's month in an attachment", url: dingNew, status: 403, header: attachment, body: `{"code":"Forbidden.AccessDenied.ApiCountLimitForOrg","message":"x"}`},
			{name: "the new API's month with 200", url: dingNew, header: jsonType, body: `{"code":"Forbidden.AccessDenied.ApiCountLimitForOrg","message":"x"}`},
			{name: "a robot in a file", url: dingFile, header: jsonType, body: `{"errcode":410100,"errmsg":"x"}`},

			{name: "a ban of a day", url: dingUser, header: jsonType, body: fullBan, most: 10 * time.Minute},
			{name: "a ban of 1e999", url: dingUser, header: jsonType, body: strings.Replace(fullBan, "1440", "1e999", 1), most: 10 * time.Minute},
			{name: "a ban of NaN", url: dingUser, header: jsonType, body: strings.Replace(fullBan, "1440", "NaN", 1)},
			{name: "a second that ends in a thousand years", url: dingUser, header: jsonType, body: `{"errcode":90018,"errmsg":"处罚将在 3026-09-03 01:00:00 结束"}`, most: time.Minute},
			{name: "a platform's clock that is wrong", url: dingUser, header: jsonType + "Date: Thu, 01 Jan 1970 00:00:00 GMT\n", body: `{"errcode":90018,"errmsg":"处罚将在 2026-09-03 01:00:00 结束"}`, most: time.Minute},
		},
	},
	"WeCom": {
		profile:   func(key string) httplimit.Profile { return WeCom(key) },
		detectors: []httplimit.Detector{WeComDetector(), httplimit.HTTPDetector()},
		rows: []hostile{
			{name: "an attachment", url: weComFile, header: attachment, body: `{"errcode":45009,"errmsg":"x"}`},
			{name: "an attachment of a user's name", url: weComUser, header: attachment, body: `{"errcode":45009,"errmsg":"x"}`},
			{name: "a file of more members", url: weComFile, header: jsonType, body: `{"errcode":45009,"errmsg":"x","title":"minutes"}`},
			{name: "a file of fewer members", url: weComFile, header: jsonType, body: `{"errcode":45009}`},
			{name: "a large file", url: weComFile, header: jsonType, body: `{"errcode":45009,"errmsg":"` + strings.Repeat("x", 5000) + `"}`},
			{name: "a voice", url: "http://qyapi.weixin.qq.com/cgi-bin/media/get/jssdk?media_id=m", header: "Content-Type: text/plain\n", body: `{"errcode":45033,"errmsg":"x"}`},
			{name: "a file that is the platform's error to the letter", url: weComFile, header: jsonType, body: `{"errcode":45009,"errmsg":"x"}`, most: time.Minute},
			{name: "a gateway's Retry-After", url: weComUser, status: 429, header: "Retry-After: 99999999\n", most: time.Hour},
		},
	},
	"WeChat": {
		detectors: []httplimit.Detector{WeChatDetector()},
		rows: []hostile{
			{name: "an attachment", url: weChatFile, header: attachment, body: `{"errcode":45009,"errmsg":"x"}`},
			{name: "a file", url: weChatFile, header: "Content-Type: text/plain\n", body: `{"errcode":45009,"errmsg":"x"}`},
			{name: "another shape", url: weChatUser, header: jsonType, body: `{"errcode":45009,"errmsg":"x","nickname":"n"}`, most: time.Minute},
			{name: "a day to the letter in a file", url: weChatFile, header: jsonType, body: `{"errcode":45009,"errmsg":"x"}`, most: time.Minute},
		},
	},
	"Feishu": {
		profile:   func(key string) httplimit.Profile { return Feishu(key) },
		detectors: []httplimit.Detector{FeishuDetector(), httplimit.HTTPDetector()},
		rows: []hostile{
			{name: "an attachment", url: feishuFile, header: attachment + "X-Ogw-Ratelimit-Reset: 86400\n", body: `{"code":99991400,"msg":"x"}`},
			{name: "a file of the drive", url: feishuDisk, header: jsonType, body: `{"code":11232,"msg":"x"}`},
			{name: "a message", url: feishuChat, header: jsonType, body: `{"code":0,"msg":"ok","data":{"code":99991400,"text":"{\"code\":99991400}"}}`},
			{name: "a page", url: feishuChat, status: 400, header: "Content-Type: text/html\n", body: `{"code":99991400,"msg":"x"}`},
			{name: "a reset of a day", url: feishuChat, status: 429, header: jsonType + "X-Ogw-Ratelimit-Reset: 86400\n", body: `{"code":99991400,"msg":"x"}`, most: 2 * time.Minute},
			{name: "a busy bot", url: feishuBot, header: jsonType, body: `{"code":11232,"msg":"x"}`, most: time.Minute},
		},
	},
	"GitHub": {
		profile:   func(key string) httplimit.Profile { return GitHub(key) },
		detectors: []httplimit.Detector{GitHubDetector(), httplimit.HTTPDetector()},
		rows: []hostile{
			{name: "an attachment with 403", url: gitHubRepo, status: 403, header: attachment, body: `{"documentation_url":"https://docs.github.com/x#secondary-rate-limits"}`},
			{name: "a page with 403", url: gitHubRepo, status: 403, header: "Content-Type: text/html\n", body: `{"documentation_url":"https://docs.github.com/x#secondary-rate-limits"}`},
			{name: "a reset in the year 2106", url: gitHubRepo, status: 403, header: "X-Ratelimit-Remaining: 0\nX-Ratelimit-Reset: 4294967295\n", most: 61 * time.Minute},
			{name: "a Retry-After of years", url: gitHubRepo, status: 403, header: "Retry-After: 99999999\n", most: 61 * time.Minute},
		},
	},
	"HTTP": {
		detectors: []httplimit.Detector{httplimit.HTTPDetector()},
		rows: []hostile{
			{name: "years", url: "http://hooks.example.com/a", status: 429, header: "Retry-After: 99999999\n", most: time.Hour},
			{name: "an exponent", url: "http://hooks.example.com/a", status: 503, header: "Retry-After: 1e999\n"},
			{name: "the year 9999", url: "http://hooks.example.com/a", status: 503, header: "Retry-After: Fri, 31 Dec 9999 23:59:59 GMT\n", most: time.Hour},
			{name: "a clock that is wrong", url: "http://hooks.example.com/a", status: 503, header: "Date: Thu, 01 Jan 1970 00:00:00 GMT\nRetry-After: Fri, 31 Dec 1999 23:59:59 GMT\n", most: time.Hour},
			{name: "RateLimit forever", url: "http://hooks.example.com/a", status: 429, header: "RateLimit: \"a\";r=0;t=999999999999999\n", most: time.Hour},
			{name: "a window forever", url: "http://hooks.example.com/a", status: 429, header: "RateLimit: \"a\";r=0\nRateLimit-Policy: \"a\";q=1;w=999999999999999\n", most: time.Hour},
			{name: "served", url: "http://hooks.example.com/a", header: "Retry-After: 99999999\nRateLimit: \"a\";r=0;t=999999999\n"},
			{name: "not modified", url: "http://hooks.example.com/a", status: 304, header: "Retry-After: 99999999\n"},
		},
	},
}

func (h hostile) answer(*http.Request) (*http.Response, error) {
	resp := respond(cmp.Or(h.status, http.StatusOK), "", h.body)
	resp.Header = http.Header{}
	for _, line := range detecttest.HeaderLines(h.header) {
		resp.Header.Add(line[0], line[1])
	}
	return resp, nil
}

// TestHostileAnswers checks that what users of a platform, or third parties, make it answer cools nothing down, or for no longer
// than the platform documents: with the profile and with the detectors alone.
func TestHostileAnswers(t *testing.T) {
	for platform, p := range hostilePlatforms {
		for _, row := range p.rows {
			for _, with := range []string{"profile", "detectors"} {
				if with == "profile" && p.profile == nil {
					continue
				}
				t.Run(platform+"/"+row.name+"/"+with, func(t *testing.T) {
					inWorld(t, func(t *testing.T, w *world) {
						rule := httplimit.Rule{Match: httplimit.Match{Hosts: []string{redistest.Must(url.Parse(row.url))(t).Host}}, Detectors: p.detectors}
						for _, scope := range []httplimit.Scope{ScopeAppAPI, ScopeIP, ScopeRobot} {
							l := w.limit(string(scope), 99, time.Second)
							l.Scope = scope
							rule.Limits = append(rule.Limits, l)
						}
						rules := []httplimit.Rule{rule}
						if with == "profile" {
							rules = p.profile(w.key).Rules
						}
						get(t, w.transport(base(row.answer), httplimit.WithRules(rules...)), row.url)
						var waits []time.Duration
						for _, e := range w.taken() {
							require.NotEqual(t, httplimit.EventHostCoolDown, e.Kind)
							if e.Kind == httplimit.EventCoolDown {
								waits = append(waits, e.Until.Sub(w.epoch))
							}
						}
						require.Equal(t, row.most > 0, len(waits) > 0, "%v", waits)
						for _, wait := range waits {
							require.Positive(t, wait)
							require.LessOrEqual(t, wait, row.most)
						}
					})
				})
			}
		}
	}
}
