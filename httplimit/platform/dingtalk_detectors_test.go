// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/internal/envelope"
	"github.com/goredisson/ratelimiter/internal/test/dinggate"
	"github.com/goredisson/ratelimiter/internal/test/dinggate/dingtest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// dingTalkOldRows: bodies as call-frequency-limit, server-api-error-codes-1 and the gateway's answers have
// them; the texts with their ends are ones that were seen.
var dingTalkOldRows = []detection{
	{Name: "the code inside 88", Until: time.Second, Want: throttled(ScopeAppAPI, "90018"),
		Body: `{"errcode":88,"sub_code":"90018","sub_msg":"您的应用调用该接口次数过多","errmsg":"ding talk error[subcode=90018,submsg=您的应用调用该接口次数过多]","request_id":"5imjny7u9xwa"}`},
	{Name: "the code alone", Until: time.Second, Want: throttled(ScopeAppAPI, "90018"), Body: `{"errcode":90018,"errmsg":"too many"}`},
	{Name: "the code as a string", Until: time.Second, Want: throttled(ScopeCorpAPI, "90019"), Body: `{"errcode":"90019"}`},
	{Name: "88 and the code both otherwise typed", Until: time.Second, Want: throttled(ScopeCorpAPI, "90019"), Body: `{"errcode":"88","sub_code":90019}`},
	{Name: "all tenants, first step of the back-off", Until: time.Second, Want: throttled(ScopeAPI, "90002"), Body: `{"errcode":90002,"errmsg":"qps"}`},
	{Name: "the end in the text", Until: 3 * time.Second, Want: throttled(ScopeAPI, "90002"), Header: "Date: Sun, 09 Dec 2018 07:01:08 GMT\n",
		Body: `{"errcode":88,"sub_code":"90002","sub_msg":"您的服务器调用钉钉开放平台当前接口的所有请求都被暂时禁用了, apiPath(dingtalk.oapi.process.listbyuserid), 从 2018-12-09 15:01:10 到 2018-12-09 15:01:10 请求总次数超过了 100 次, 处罚将在 2018-12-09 15:01:11 结束."}`},
	{Name: "the newer text, in errmsg", Until: 2 * time.Second, Want: throttled(ScopeAPI, "90002"),
		Body: `{"errcode":90002,"errmsg":"ding talk error[subcode=90002,submsg=当前所有钉钉应用调用该接口次数过多，请求被暂时限制了, 从 2026-09-03 00:01:02 到 2026-09-03 00:01:02 请求总次数超过 1200 次, 限制将在 2026-09-03 00:01:04 结束.]"}`},
	{Name: "an end far away for a limit of a second", Until: time.Minute, Asked: 59*time.Minute - 2*time.Second, Want: throttled(ScopeAppAPI, "90018"), Body: `{"errcode":90018,"errmsg":"限制将在 2026-09-03 01:00:00 结束"}`},
	{Name: "an end far away", Until: 10 * time.Minute, Asked: 1*time.Hour - 2*time.Second, Want: throttled(ScopeIP, "90001"), Body: `{"errcode":90001,"errmsg":"处罚将在 2026-09-03 01:01:00 结束"}`},
	{Name: "an end in a hundred years", Until: 10 * time.Minute, Asked: 36524*24*time.Hour + 59*time.Minute - 2*time.Second, Want: throttled(ScopeIP, "90001"), Body: `{"errcode":90001,"errmsg":"处罚将在 2126-09-03 01:00:00 结束"}`},
	{Name: "an end in the past", Until: time.Second, Want: throttled(ScopeAppAPI, "90018"), Body: `{"errcode":90018,"errmsg":"处罚将在 2026-09-03 00:01:01 结束"}`},
	{Name: "an end that is no instant", Until: time.Second, Want: throttled(ScopeAppAPI, "90018"), Body: `{"errcode":90018,"errmsg":"处罚将在 2026-13-03 00:01:09 结束"}`},
	{Name: "a start, not an end", Until: time.Second, Want: throttled(ScopeAppAPI, "90018"), Body: `{"errcode":90018,"errmsg":"处罚将在 2026-09-03 00:01:09 开始"}`},
	{Name: "a text that breaks off", Until: time.Second, Want: throttled(ScopeAppAPI, "90018"), Body: `{"errcode":90018,"errmsg":"处罚将在 2026-09"}`},
	{Name: "no Date: by our clock", Until: 1500 * time.Millisecond, Want: throttled(ScopeAppAPI, "90018"), Header: "Date:", Body: `{"errcode":90018,"errmsg":"限制将在 2026-09-03 00:01:04 结束"}`},
	{Name: "the month's quota", Until: 28*24*time.Hour - 62*time.Second, Want: throttled(ScopeMonth, "90020"),
		Body: `{"errcode":90020,"errmsg":"您的企业本月api调用量已超过限制,调用量:10001次,额度:10000次,请登录开发者后台-资源管理-查看用量明细"}`},
	{Name: "the month's quota in December", Until: 4 * time.Second, Want: throttled(ScopeMonth, "90020"), Header: "Date: Thu, 31 Dec 2026 15:59:56 GMT\n", Body: `{"errcode":90020}`},
	{Name: "the month's quota when it is January in China", Until: 31*24*time.Hour - time.Second, Want: throttled(ScopeMonth, "90020"), Header: "Date: Thu, 31 Dec 2026 16:00:01 GMT\n", Body: `{"errcode":90020}`},
	{Name: "the month's quota inside 88", Until: 28*24*time.Hour - 62*time.Second, Want: throttled(ScopeMonth, "90020"),
		Body: `{"errcode":88,"sub_code":"90020","sub_msg":"x","errmsg":"x","request_id":"x","success":false}`},
	{Name: "the month's quota with another field", Until: -1, Asked: 28*24*time.Hour - 62*time.Second, Want: throttled(ScopeMonth, "90020"), Body: `{"errcode":90020,"errmsg":"x","title":"x"}`},
	{Name: "the month's quota with an object", Until: -1, Asked: 28*24*time.Hour - 62*time.Second, Want: throttled(ScopeMonth, "90020"), Body: `{"errcode":90020,"errmsg":{}}`},
	{Name: "the month's quota twice", Until: -1, Asked: 28*24*time.Hour - 62*time.Second, Want: throttled(ScopeMonth, "90020"), Body: `{"errcode":0,"errcode":90020}`},
	{Name: "the month's quota, cut", Cut: true, Until: -1, Asked: 28*24*time.Hour - 62*time.Second, Want: throttled(ScopeMonth, "90020"), Body: `{"errcode":90020,"errmsg":"x"}`},
	{Name: "the month's quota by a clock of the year 9999", Until: 31*24*time.Hour - 8*time.Hour - time.Second, Want: throttled(ScopeMonth, "90020"), Header: "Date: Wed, 01 Dec 9999 00:00:01 GMT\n", Body: `{"errcode":90020}`},
	{Name: "a code without a known end", Until: -1, Want: throttled("", "90003"), Body: `{"errcode":90003}`},
	{Name: "organisation and API", Until: -1, Want: throttled(ScopeCorpAPI, "90005"), Body: `{"errcode":90005}`},
	{Name: "cut behind the code", Cut: true, Until: time.Second, Want: throttled(ScopeAppAPI, "90018"), Body: `{"errcode":90018,"errm`},
	{Name: "cut behind the sub code", Cut: true, Until: time.Second, Want: throttled(ScopeAppAPI, "90018"), Body: `{"errcode":88,"sub_code":"90018"`},
	{Name: "BOM and space", Until: time.Second, Want: throttled(ScopeAppAPI, "90018"), Body: "\ufeff\r\n\t {\n \"errcode\" : 90018 }\n"},
	{Name: "an escaped key and value", Until: time.Second, Want: throttled(ScopeAppAPI, "90018"), Body: `{"err\u0063ode":"9001\u0038"}`},
	{Name: "the last of two", Until: time.Second, Want: throttled(ScopeAppAPI, "90018"), Body: `{"errcode":0,"errcode":90018}`},

	{Name: "a file", Ignored: "the body is a file, or a part of one", Header: "Content-Disposition: inline\n", Body: `{"errcode":90018}`},
	{Name: "a part of a file", Status: 206, Ignored: "the body is a file, or a part of one", Body: `{"errcode":90018}`},
	{Name: "a download", URL: "https://oapi.dingtalk.com/media/downloadFile?media_id=m", Ignored: "the path serves files", Body: `{"errcode":90018}`},
	{Name: "a download by way of a proxy", URL: "https://proxy.example.com/dingtalk//media/downloadFile/", Ignored: "the path serves files", Body: `{"errcode":90018}`},
	{Name: "another status", Status: 500, Ignored: "status 500", Body: `{"errcode":90018}`},
	{Name: "plain text with a code", Header: "Content-Type: text/plain\n", Ignored: `content type "text/plain"`, Body: `{"errcode":90018}`},
	{Name: "no content type", Header: "Content-Type:", Ignored: `content type ""`, Body: `{"errcode":90018}`},
	{Name: "success", Body: `{"errcode":0,"errmsg":"ok","result":{"errcode":90018,"sub_code":"90018"}}`},
	{Name: "success with a sub code", Body: `{"errcode":0,"sub_code":"90018"}`},
	{Name: "88 for authorisation", Body: `{"errcode":88,"sub_code":"60011","sub_msg":"没有调用该接口的权限","errmsg":"ding talk error[subcode=60011,submsg=没有调用该接口的权限]"}`},
	{Name: "88 for a token", Body: `{"errcode":88,"sub_code":"40014","sub_msg":"不合法的access_token"}`},
	{Name: "88 alone", Body: `{"errcode":88,"errmsg":"ding talk error[subcode=90018]"}`},
	{Name: "another error with a sub code", Body: `{"errcode":60020,"sub_code":"90018"}`},
	{Name: "addresses with too many organisations", Body: `{"errcode":90017}`},
	{Name: "a longer code", Body: `{"errcode":900180}`},
	{Name: "900001 is about encryption", Body: `{"errcode":900001}`},
	{Name: "a fraction", Body: `{"errcode":90018.0}`},
	{Name: "an exponent", Body: `{"errcode":9.0018e4}`},
	{Name: "negative", Body: `{"errcode":-90018}`},
	{Name: "huge", Body: `{"errcode":` + strings.Repeat("9", 5000) + `}`},
	{Name: "a boolean", Body: `{"errcode":true}`},
	{Name: "null", Body: `{"errcode":null}`},
	{Name: "an array", Body: `{"errcode":[90018]}`},
	{Name: "an object", Body: `{"errcode":{"errcode":90018}}`},
	{Name: "a blank in the string", Body: `{"errcode":" 90018"}`},
	{Name: "another case", Body: `{"ErrCode":90018}`},
	{Name: "the last of two is success", Body: `{"errcode":90018,"errcode":0}`},
	{Name: "the last of two is no code", Body: `{"errcode":90018,"errcode":{}}`},
	{Name: "nested", Body: `{"result":{"errcode":90018}}`},
	{Name: "in an array", Body: `[{"errcode":90018}]`},
	{Name: "a string", Body: `"{\"errcode\":90018}"`},
	{Name: "the word limit in content", Body: `{"errcode":0,"content":"rate limit 90018 exceeded, 处罚将在 2026-09-03 00:01:09 结束"}`},
	{Name: "plain text", Body: `errcode 90018`},
	{Name: "empty", Body: ``},
	{Name: "two objects", Body: `{"errcode":90018}{"errcode":0}`},
	{Name: "broken behind the code", Body: `{"errcode":90018,}`},
	{Name: "broken and cut", Cut: true, Body: `{"errcode":90018,,"a`},
	{Name: "unfinished though complete", Body: `{"errcode":90018`},
	{Name: "cut within the number", Cut: true, Body: `{"errcode":90018`},
	{Name: "cut before the sub code", Cut: true, Body: `{"errcode":88,"sub_code":"9001`},
	{Name: "cut before the code", Cut: true, Body: `{"result":{"errcode":90018,"list":[1,2,3`},
}

func TestDingTalkOldDetector(t *testing.T) { check(t, DingTalkOldDetector(), dingTalkOldRows) }

// TestDingTalkCodes checks what each code of the documentation is about.
func TestDingTalkCodes(t *testing.T) {
	for scope, codes := range map[httplimit.Scope]string{
		ScopeAppAPI: "90018 90006 90010 90012", ScopeCorpAPI: "90019 90005 90008 90014", ScopeAPI: "90002", ScopeMonth: "90020", ScopeIP: "90001",
		"": "90003 90004 90007 90009 90011 90013",
	} {
		for code := range strings.FieldsSeq(codes) {
			v := DingTalkOldDetector().Detect(detection{Body: `{"errcode":` + code + `}`}.Response())
			require.Equal(t, []any{true, scope, code}, []any{v.Throttled, v.Scope, v.Reason})
		}
	}
}

// dingTalkNewRows: codes and messages of server-api-error-codes-1.
var dingTalkNewRows = []detection{
	{Name: "app and API", Status: 403, Until: time.Second, Want: throttled(ScopeAppAPI, "Forbidden.AccessDenied.QpsLimitForAppkeyAndApi"),
		Body: `{"code":"Forbidden.AccessDenied.QpsLimitForAppkeyAndApi","requestid":"B4B7","message":"您的企业应用调用钉钉开放平台当前接口的所有请求都被暂时禁用了"}`},
	{Name: "ISV, organisation and API", Status: 403, Until: time.Second, Want: throttled(ScopeCorpAPI, "Forbidden.AccessDenied.QpsLimitForSuitekeyAndOrgAndApi"),
		Body: `{"code":"Forbidden.AccessDenied.QpsLimitForSuitekeyAndOrgAndApi"}`},
	{Name: "all tenants, with an end", Status: 403, Until: 3 * time.Second, Want: throttled(ScopeAPI, "Forbidden.AccessDenied.QpsLimitForApi"),
		Body: `{"code":"Forbidden.AccessDenied.QpsLimitForApi","message":"请求过于频繁，限制将在 2026-09-03 00:01:05 结束"}`},
	{Name: "a minute's limit", Status: 403, Until: -1, Want: throttled(ScopeAppAPI, "Forbidden.AccessDenied.QpmLimitForAppkeyAndApi"),
		Body: `{"code":"Forbidden.AccessDenied.QpmLimitForAppkeyAndApi"}`},
	{Name: "an ISV's minute's limit", Status: 403, Until: -1, Want: throttled(ScopeCorpAPI, "Forbidden.AccessDenied.QpmLimitForSuitekeyAndOrgAndApi"),
		Body: `{"code":"Forbidden.AccessDenied.QpmLimitForSuitekeyAndOrgAndApi"}`},
	{Name: "the month's quota", Status: 403, Until: 28*24*time.Hour - 62*time.Second, Want: throttled(ScopeMonth, "Forbidden.AccessDenied.ApiCountLimitForOrg"),
		Body: `{"code":"Forbidden.AccessDenied.ApiCountLimitForOrg"}`},
	{Name: "the month's quota with another field", Status: 403, Until: -1, Asked: 28*24*time.Hour - 62*time.Second, Want: throttled(ScopeMonth, "Forbidden.AccessDenied.ApiCountLimitForOrg"),
		Body: `{"code":"Forbidden.AccessDenied.ApiCountLimitForOrg","title":"x"}`},
	{Name: "cut behind the code", Status: 403, Cut: true, Until: time.Second, Want: throttled(ScopeAppAPI, "Forbidden.AccessDenied.QpsLimitForAppkeyAndApi"),
		Body: `{"code":"Forbidden.AccessDenied.QpsLimitForAppkeyAndApi","message":"您的`},

	{Name: "no permission", Status: 403, Body: `{"code":"Forbidden.AccessDenied.AccessTokenPermissionDenied","message":"没有调用该接口的权限"}`},
	{Name: "the address is not on the list", Status: 403, Body: `{"code":"Forbidden.AccessDenied.IpNotInWhiteList"}`},
	{Name: "Forbidden", Status: 403, Body: `{"code":"Forbidden","message":"Forbidden"}`},
	{Name: "a size that is over its limit", Status: 403, Body: `{"code":"forbidden.document.sizeOverLimit"}`},
	{Name: "a code that begins alike", Status: 403, Body: `{"code":"Forbidden.AccessDenied.QpsLimitForAppkeyAndApiX"}`},
	{Name: "another case", Status: 403, Body: `{"code":"forbidden.accessdenied.qpslimitforapi"}`},
	{Name: "a page with the code", Status: 403, Header: "Content-Type: text/html\n", Ignored: `content type "text/html"`, Body: `{"code":"Forbidden.AccessDenied.QpsLimitForApi"}`},
	{Name: "a code that is a number", Status: 403, Body: `{"code":90018}`},
	{Name: "not 403", Status: 400, Body: `{"code":"Forbidden.AccessDenied.QpsLimitForApi"}`},
	{Name: "success that quotes it", Status: 200, Body: `{"code":"Forbidden.AccessDenied.QpsLimitForApi"}`},
	{Name: "nested", Status: 403, Body: `{"error":{"code":"Forbidden.AccessDenied.QpsLimitForApi"}}`},
	{Name: "in the message", Status: 403, Body: `{"code":"x","message":"Forbidden.AccessDenied.QpsLimitForApi"}`},
	{Name: "an array", Status: 403, Body: `["Forbidden.AccessDenied.QpsLimitForApi"]`},
	{Name: "no body", Status: 403},
}

func TestDingTalkNewDetector(t *testing.T) { check(t, DingTalkNewDetector(), dingTalkNewRows) }

var dingTalkRobotRows = []detection{
	{Name: "documented", Until: 10 * time.Minute, Want: banned(ScopeRobot, "410100"), Body: `{"errcode":410100,"errmsg":"发送速度太快而限流"}`},
	{Name: "as a string, as the page's example has it", Until: 10 * time.Minute, Want: banned(ScopeRobot, "410100"), Body: `{"errcode":"410100","errmsg":"发送速度太快而限流"}`},
	{Name: "seen", Until: 10 * time.Minute, Want: banned(ScopeRobot, "130101"), Body: `{"errcode":130101,"errmsg":"send too fast, exceed 20 times per minute"}`},
	{Name: "success", Body: `{"errcode":"0","errmsg":"ok"}`},
	{Name: "keywords", Body: `{"errcode":310000,"errmsg":"keywords not in content"}`},
	{Name: "no such token", Body: `{"errcode":300005,"errmsg":"token is not exist"}`},
	{Name: "the text alone", Body: `{"errcode":1,"errmsg":"send too fast, exceed 20 times per minute"}`},
	{Name: "seen in 2026", Until: 10 * time.Minute, Want: banned(ScopeRobot, "660026"), Body: `{"errcode":660026,"errmsg":"sending too many messages per minute"}`},
	{Name: "nested", Body: `{"body":{"errcode":410100}}`},
	{Name: "another field", Until: -1, Asked: 10 * time.Minute, Want: throttled(ScopeRobot, "410100"), Body: `{"errcode":410100,"errmsg":"x","title":"x"}`},
	{Name: "a file", Ignored: "the body is a file, or a part of one", Header: "Content-Disposition: attachment\n", Body: `{"errcode":410100}`},
}

func TestDingTalkRobotDetector(t *testing.T) { check(t, DingTalkRobotDetector(), dingTalkRobotRows) }

var dingTalkBanRows = []detection{
	{Name: "documented", Until: 5 * time.Minute, Want: banned(ScopeIP, banReason),
		Body: "{\n   \"status\":1111,\n   \"wait\":5,\n   \"source\":\"x5\",\n   \"punish\":\"deny\",\n   \"uuid\":\"xxx\"\n}"},
	{Name: "as a page", Header: "Content-Type: text/html\n", Until: 5 * time.Minute, Want: banned(ScopeIP, banReason), Body: ban("5")},
	{Name: "an error", Status: 403, Until: 5 * time.Minute, Want: banned(ScopeIP, banReason), Body: ban("5")},
	{Name: "without a wait", Until: 5 * time.Minute, Want: banned(ScopeIP, banReason), Body: `{"status":1111,"source":"x5","punish":"deny","uuid":"u"}`},
	{Name: "a longer wait", Until: 9 * time.Minute, Want: banned(ScopeIP, banReason), Body: ban("9")},
	{Name: "a wait that is too long", Until: 10 * time.Minute, Asked: 30 * time.Minute, Want: banned(ScopeIP, banReason), Body: ban("30")},
	{Name: "a shorter wait", Until: 5 * time.Minute, Want: banned(ScopeIP, banReason), Body: ban("1")},
	{Name: "a negative wait", Until: 5 * time.Minute, Want: banned(ScopeIP, banReason), Body: ban("-9")},
	{Name: "a fraction", Until: 5 * time.Minute, Want: banned(ScopeIP, banReason), Body: ban("9.5")},
	{Name: "a huge wait", Until: 10 * time.Minute, Asked: 60 * envelope.MaxPenalty, Want: banned(ScopeIP, banReason), Body: ban("2000000000")},
	{Name: "a wait beyond all numbers", Until: 10 * time.Minute, Asked: 60 * envelope.MaxPenalty, Want: banned(ScopeIP, banReason), Body: ban("99999999999999999999")},
	{Name: "all of a page", Until: 5 * time.Minute, Want: banned(ScopeIP, banReason),
		Body: "<!DOCTYPE html>\n<html>\n<head><meta charset=\"utf-8\"><title>deny</title><style>body{margin:0}</style></head>\n<BODY class=\"x\">\n" + ban("5") + "\n</BODY>\n</html>\n"},
	{Name: "all of a page in GBK", Until: 5 * time.Minute, Want: banned(ScopeIP, banReason), Body: "<html><title>\xbd\xfb\xd6\xb9</title><body>" + ban("5") + "</body>"},

	{Name: "a wait that is no number", Ignored: "the fields are not the documented ones", Body: ban("{}")},
	{Name: "a wait that is a text", Ignored: "the fields are not the documented ones", Body: ban(`"5"`)},
	{Name: "a status that is a text", Ignored: "the fields are not the documented ones", Body: `{"status":"1111","source":"x5","punish":"deny","uuid":"u"}`},
	{Name: "no source", Ignored: "the fields are not the documented ones", Body: `{"status":1111,"punish":"deny","uuid":"u"}`},
	{Name: "no uuid", Ignored: "the fields are not the documented ones", Body: `{"status":1111,"source":"x5","punish":"deny"}`},
	{Name: "a robot's", Ignored: "the fields are not the documented ones", Body: `{"status":1111,"source":"x5","punish":"deny","uuid":"u","errcode":130101}`},
	{Name: "twice", Ignored: "the fields are not the documented ones", Body: `{"status":0,"status":1111,"source":"x5","punish":"deny","uuid":"u"}`},
	{Name: "cut", Cut: true, Ignored: "the fields are not the documented ones", Body: `{"status":1111,"wait":5,"source":"x5","punish":"deny","uu`},
	{Name: "large", Ignored: "the fields are not the documented ones", Body: ban("5") + strings.Repeat(" ", envelope.MaxSize)},
	{Name: "a redirect", Status: 302, Ignored: "status 302", Body: ban("5")},
	{Name: "a file", Ignored: "the body is a file, or a part of one", Header: "Content-Disposition: attachment\n", Body: ban("5")},
	{Name: "a download", URL: "https://api.dingtalk.com/v1.0/robot/messageFiles/download", Ignored: "the path serves files", Body: ban("5")},
	{Name: "an error at a download", URL: "https://oapi.dingtalk.com/media/downloadFile", Status: 403, Until: 5 * time.Minute, Want: banned(ScopeIP, banReason), Body: ban("5")},
	{Name: "plain text", Header: "Content-Type: text/plain\n", Ignored: `content type "text/plain"`, Body: ban("5")},
	{Name: "a page that is called JSON", Header: "Content-Type: application/json\n", Ignored: "it is part of a page", Body: "<html><body>" + ban("5") + "</body></html>"},
	{Name: "within a page's script", Ignored: "it is part of a page",
		Body: "<!DOCTYPE html><html><head><style>body{margin:0}</style></head><body><script>var x = {\"a\":{}};\nwindow.p=" + ban("5") + ";</script></body></html>"},
	{Name: "behind styles", Ignored: "it is part of a page", Body: "<style>" + strings.Repeat("a{b:c}", 5000) + "</style>" + ban("5")},
	{Name: "escaped within a page", Ignored: "it is part of a page", Body: " \n<html><body>" + escapedText(ban("5")) + "</body>"},
	{Name: "beside a text", Ignored: "it is part of a page", Body: "<html><body>x" + ban("5") + "</body>"},
	{Name: "before a text", Ignored: "it is part of a page", Body: "<html><body>" + ban("5") + "</body>x"},
	{Name: "two bodies", Ignored: "it is part of a page", Body: "<html><body>" + ban("5") + "</body><body></body>"},
	{Name: "another element", Ignored: "it is part of a page", Body: "<html><bodyx>" + ban("5") + "</body>"},
	{Name: "in an attribute", Ignored: "it is part of a page", Body: "<html><body title='>" + ban("5") + "</body>'></body>"},
	{Name: "a body that does not end", Ignored: "it is part of a page", Body: "<html><body>" + ban("5")},

	{Name: "the status alone", Body: `{"status":1111}`},
	{Name: "the punishment alone", Body: `{"status":0,"punish":"deny"}`},
	{Name: "another punishment", Body: `{"status":1111,"punish":"captcha"}`},
	{Name: "nested", Body: `{"result":` + ban("5") + `}`},
	{Name: "in two objects", Body: `<p>{"status":1111} {"punish":"deny"}</p>`},
	{Name: "the words on a page", Body: `<html><body><h1>status 1111</h1> punish deny "status":1111,"punish":"deny"</body></html>`},
	{Name: "a proxy's error", Status: 502, Body: "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>"},
	{Name: "a page of styles", Body: "<style>" + strings.Repeat("a{b:c}", 5000) + "</style>"},
	{Name: "a page of objects", Body: "<script>" + strings.Repeat(`{"a":`, 5000) + ban("5")},
	{Name: "text", Body: `status 1111 ` + ban("5")},
	{Name: "an array", Body: `[` + ban("5") + `]`},
	{Name: "empty"},
	{Name: "BOM alone", Body: "\ufeff"},
}

// ban is the documented object, with a wait.
func ban(wait string) string {
	return `{"status":1111,"wait":` + wait + `,"source":"x5","punish":"deny","uuid":"xxx"}`
}

func TestDingTalkBanDetector(t *testing.T) {
	check(t, DingTalkBanDetector(), dingTalkBanRows)
}

// TestRobotsPunishPage: a robot that goes on is shown the page of an address's ban with its own code in it
// (seen at https://blog.csdn.net/jialiuyang/article/details/118615052). It is the robot that is banned.
func TestRobotsPunishPage(t *testing.T) {
	r := detection{Body: `{"status":1111,"wait":5,"source":"x5","punish":"deny","uuid":"9ff0e7e2","errcode": 130101,"errmsg": "send too fast, exceed 20 times per minute"}`}.Response()
	v := httplimit.First(DingTalkRobotDetector(), DingTalkBanDetector(), DingTalkOldDetector()).Detect(r)
	require.Equal(t, ScopeRobot, v.Scope)
	require.Equal(t, arrival.Add(10*time.Minute), v.Until)
}

// TestShanghai holds the fixed zone to the zone database, where there is one.
func TestShanghai(t *testing.T) {
	if _, err := os.Stat("/usr/share/zoneinfo/Asia/Shanghai"); err != nil {
		t.Skip("no zone database")
	}
	zone := redistest.Must(time.LoadLocation("Asia/Shanghai"))(t)
	for month := time.January; month <= time.December; month++ {
		a := time.Date(2026, month, 1, 0, 0, 0, 0, shanghai)
		require.True(t, a.Equal(time.Date(2026, month, 1, 0, 0, 0, 0, zone)))
	}
}

// What the documentation says that DingTalk answers is detected.
func TestGatesAnswersAreDetected(t *testing.T) {
	one := &dinggate.Limit{Calls: 1, Window: time.Hour, Penalty: time.Hour}
	few := dinggate.Limits{dinggate.DimAppAPI: one, dinggate.DimCorpAPI: one, dinggate.DimRobot: one}
	ip, month := dinggate.Limits{dinggate.DimIP: one}, dinggate.Limits{dinggate.DimMonth: one}
	for _, c := range []struct {
		name  string
		limit dinggate.Limits
		url   string
		want  httplimit.Scope
		until time.Duration
	}{
		{"a page", ip, "oapi.dingtalk.com/user/list?access_token=app-a", ScopeIP, 5 * time.Minute},
		{"plain", few, "oapi.dingtalk.com/user/list?access_token=app-a", ScopeAppAPI, time.Minute},
		{"top", few, "oapi.dingtalk.com/topapi/v2/user/get?access_token=app-a", ScopeAppAPI, time.Minute},
		{"new", few, "api.dingtalk.com/v1.0/contact/users/me", ScopeAppAPI, time.Second},
		{"a third party's", few, "oapi.dingtalk.com/user/list?access_token=isv-s@c", ScopeAppAPI, time.Minute},
		{"month", month, "oapi.dingtalk.com/user/list?access_token=app-a", ScopeAppAPI, 31*24*time.Hour - 8*time.Hour},
		{"month, new", month, "api.dingtalk.com/v1.0/contact/users/me", ScopeAppAPI, 31*24*time.Hour - 8*time.Hour},
		{"robot", few, "oapi.dingtalk.com/robot/send?access_token=KEY", ScopeRobot, 10 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				gate := dinggate.New(c.limit)
				tr := w.transport(dingtest.Direct(gate), httplimit.WithProfile(DingTalk(w.key, WithEgress(w.key), WithRate(ScopeRobot, 99, time.Minute))))
				for range 2 {
					r := request(t, http.MethodGet, strings.ReplaceAll("https://"+c.url, "KEY", w.key), nil)
					r.Header.Set("X-Acs-Dingtalk-Access-Token", "app-a")
					require.NoError(t, redistest.Must(tr.RoundTrip(r))(t).Body.Close())
				}
				var throttled, cooled []httplimit.Event
				for _, e := range w.taken() {
					switch e.Kind {
					case httplimit.EventThrottled:
						throttled = append(throttled, e)
					case httplimit.EventCoolDown:
						cooled = append(cooled, e)
					}
				}
				require.Len(t, throttled, 1)
				require.Equal(t, c.want, throttled[0].Scope)
				require.Len(t, cooled, 1)
				require.Equal(t, c.until, throttled[0].Until.Sub(w.epoch).Round(time.Second))
			})
		})
	}
}
