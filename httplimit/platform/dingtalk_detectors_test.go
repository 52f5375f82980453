// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/internal/envelope"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// dingTalkOldRows: bodies as call-frequency-limit, server-api-error-codes-1 and the gateway's answers have
// them; the texts with their ends are ones that were seen.
var dingTalkOldRows = []detection{
	{name: "the code inside 88", until: time.Second, want: throttled(ScopeAppAPI, "90018"),
		body: `{"errcode":88,"sub_code":"90018","sub_msg":"您的应用调用该接口次数过多","errmsg":"ding talk error[subcode=90018,submsg=您的应用调用该接口次数过多]","request_id":"5imjny7u9xwa"}`},
	{name: "the code alone", until: time.Second, want: throttled(ScopeAppAPI, "90018"), body: `{"errcode":90018,"errmsg":"too many"}`},
	{name: "the code as a string", until: time.Second, want: throttled(ScopeCorpAPI, "90019"), body: `{"errcode":"90019"}`},
	{name: "88 and the code both otherwise typed", until: time.Second, want: throttled(ScopeCorpAPI, "90019"), body: `{"errcode":"88","sub_code":90019}`},
	{name: "all tenants, first step of the back-off", until: time.Second, want: throttled(ScopeAPI, "90002"), body: `{"errcode":90002,"errmsg":"qps"}`},
	{name: "the end in the text", until: 3 * time.Second, want: throttled(ScopeAPI, "90002"), header: "Date: Sun, 09 Dec 2018 07:01:08 GMT\n",
		body: `{"errcode":88,"sub_code":"90002","sub_msg":"您的服务器调用钉钉开放平台当前接口的所有请求都被暂时禁用了, apiPath(dingtalk.oapi.process.listbyuserid), 从 2018-12-09 15:01:10 到 2018-12-09 15:01:10 请求总次数超过了 100 次, 处罚将在 2018-12-09 15:01:11 结束."}`},
	{name: "the newer text, in errmsg", until: 2 * time.Second, want: throttled(ScopeAPI, "90002"),
		body: `{"errcode":90002,"errmsg":"ding talk error[subcode=90002,submsg=当前所有钉钉应用调用该接口次数过多，请求被暂时限制了, 从 2026-09-03 00:01:02 到 2026-09-03 00:01:02 请求总次数超过 1200 次, 限制将在 2026-09-03 00:01:04 结束.]"}`},
	{name: "an end far away for a limit of a second", until: time.Minute, asked: 59*time.Minute - 2*time.Second, want: throttled(ScopeAppAPI, "90018"), body: `{"errcode":90018,"errmsg":"限制将在 2026-09-03 01:00:00 结束"}`},
	{name: "an end far away", until: 10 * time.Minute, asked: 1*time.Hour - 2*time.Second, want: throttled(ScopeIP, "90001"), body: `{"errcode":90001,"errmsg":"处罚将在 2026-09-03 01:01:00 结束"}`},
	{name: "an end in a hundred years", until: 10 * time.Minute, asked: 36524*24*time.Hour + 59*time.Minute - 2*time.Second, want: throttled(ScopeIP, "90001"), body: `{"errcode":90001,"errmsg":"处罚将在 2126-09-03 01:00:00 结束"}`},
	{name: "an end in the past", until: time.Second, want: throttled(ScopeAppAPI, "90018"), body: `{"errcode":90018,"errmsg":"处罚将在 2026-09-03 00:01:01 结束"}`},
	{name: "an end that is no instant", until: time.Second, want: throttled(ScopeAppAPI, "90018"), body: `{"errcode":90018,"errmsg":"处罚将在 2026-13-03 00:01:09 结束"}`},
	{name: "a start, not an end", until: time.Second, want: throttled(ScopeAppAPI, "90018"), body: `{"errcode":90018,"errmsg":"处罚将在 2026-09-03 00:01:09 开始"}`},
	{name: "a text that breaks off", until: time.Second, want: throttled(ScopeAppAPI, "90018"), body: `{"errcode":90018,"errmsg":"处罚将在 2026-09"}`},
	{name: "no Date: by our clock", until: 1500 * time.Millisecond, want: throttled(ScopeAppAPI, "90018"), header: "Date:", body: `{"errcode":90018,"errmsg":"限制将在 2026-09-03 00:01:04 结束"}`},
	{name: "the month's quota", until: 28*24*time.Hour - 62*time.Second, want: throttled(ScopeMonth, "90020"),
		body: `{"errcode":90020,"errmsg":"您的企业本月api调用量已超过限制,调用量:10001次,额度:10000次,请登录开发者后台-资源管理-查看用量明细"}`},
	{name: "the month's quota in December", until: 4 * time.Second, want: throttled(ScopeMonth, "90020"), header: "Date: Thu, 31 Dec 2026 15:59:56 GMT\n", body: `{"errcode":90020}`},
	{name: "the month's quota when it is January in China", until: 31*24*time.Hour - time.Second, want: throttled(ScopeMonth, "90020"), header: "Date: Thu, 31 Dec 2026 16:00:01 GMT\n", body: `{"errcode":90020}`},
	{name: "the month's quota inside 88", until: 28*24*time.Hour - 62*time.Second, want: throttled(ScopeMonth, "90020"),
		body: `{"errcode":88,"sub_code":"90020","sub_msg":"x","errmsg":"x","request_id":"x","success":false}`},
	{name: "the month's quota with another field", until: -1, asked: 28*24*time.Hour - 62*time.Second, want: throttled(ScopeMonth, "90020"), body: `{"errcode":90020,"errmsg":"x","title":"x"}`},
	{name: "the month's quota with an object", until: -1, asked: 28*24*time.Hour - 62*time.Second, want: throttled(ScopeMonth, "90020"), body: `{"errcode":90020,"errmsg":{}}`},
	{name: "the month's quota twice", until: -1, asked: 28*24*time.Hour - 62*time.Second, want: throttled(ScopeMonth, "90020"), body: `{"errcode":0,"errcode":90020}`},
	{name: "the month's quota, cut", cut: true, until: -1, asked: 28*24*time.Hour - 62*time.Second, want: throttled(ScopeMonth, "90020"), body: `{"errcode":90020,"errmsg":"x"}`},
	{name: "the month's quota by a clock of the year 9999", until: 31*24*time.Hour - 8*time.Hour - time.Second, want: throttled(ScopeMonth, "90020"), header: "Date: Wed, 01 Dec 9999 00:00:01 GMT\n", body: `{"errcode":90020}`},
	{name: "a code without a known end", until: -1, want: throttled("", "90003"), body: `{"errcode":90003}`},
	{name: "organisation and API", until: -1, want: throttled(ScopeCorpAPI, "90005"), body: `{"errcode":90005}`},
	{name: "cut behind the code", cut: true, until: time.Second, want: throttled(ScopeAppAPI, "90018"), body: `{"errcode":90018,"errm`},
	{name: "cut behind the sub code", cut: true, until: time.Second, want: throttled(ScopeAppAPI, "90018"), body: `{"errcode":88,"sub_code":"90018"`},
	{name: "BOM and space", until: time.Second, want: throttled(ScopeAppAPI, "90018"), body: "\ufeff\r\n\t {\n \"errcode\" : 90018 }\n"},
	{name: "an escaped key and value", until: time.Second, want: throttled(ScopeAppAPI, "90018"), body: `{"err\u0063ode":"9001\u0038"}`},
	{name: "the last of two", until: time.Second, want: throttled(ScopeAppAPI, "90018"), body: `{"errcode":0,"errcode":90018}`},

	{name: "a file", ignored: "the body is a file, or a part of one", header: "Content-Disposition: inline\n", body: `{"errcode":90018}`},
	{name: "a part of a file", status: 206, ignored: "the body is a file, or a part of one", body: `{"errcode":90018}`},
	{name: "a download", url: "https://oapi.dingtalk.com/media/downloadFile?media_id=m", ignored: "the path serves files", body: `{"errcode":90018}`},
	{name: "a download by way of a proxy", url: "https://proxy.example.com/dingtalk//media/downloadFile/", ignored: "the path serves files", body: `{"errcode":90018}`},
	{name: "another status", status: 500, ignored: "status 500", body: `{"errcode":90018}`},
	{name: "plain text with a code", header: "Content-Type: text/plain\n", ignored: `content type "text/plain"`, body: `{"errcode":90018}`},
	{name: "no content type", header: "Content-Type:", ignored: `content type ""`, body: `{"errcode":90018}`},
	{name: "success", body: `{"errcode":0,"errmsg":"ok","result":{"errcode":90018,"sub_code":"90018"}}`},
	{name: "success with a sub code", body: `{"errcode":0,"sub_code":"90018"}`},
	{name: "88 for authorisation", body: `{"errcode":88,"sub_code":"60011","sub_msg":"没有调用该接口的权限","errmsg":"ding talk error[subcode=60011,submsg=没有调用该接口的权限]"}`},
	{name: "88 for a token", body: `{"errcode":88,"sub_code":"40014","sub_msg":"不合法的access_token"}`},
	{name: "88 alone", body: `{"errcode":88,"errmsg":"ding talk error[subcode=90018]"}`},
	{name: "another error with a sub code", body: `{"errcode":60020,"sub_code":"90018"}`},
	{name: "addresses with too many organisations", body: `{"errcode":90017}`},
	{name: "a longer code", body: `{"errcode":900180}`},
	{name: "900001 is about encryption", body: `{"errcode":900001}`},
	{name: "a fraction", body: `{"errcode":90018.0}`},
	{name: "an exponent", body: `{"errcode":9.0018e4}`},
	{name: "negative", body: `{"errcode":-90018}`},
	{name: "huge", body: `{"errcode":` + strings.Repeat("9", 5000) + `}`},
	{name: "a boolean", body: `{"errcode":true}`},
	{name: "null", body: `{"errcode":null}`},
	{name: "an array", body: `{"errcode":[90018]}`},
	{name: "an object", body: `{"errcode":{"errcode":90018}}`},
	{name: "a blank in the string", body: `{"errcode":" 90018"}`},
	{name: "another case", body: `{"ErrCode":90018}`},
	{name: "the last of two is success", body: `{"errcode":90018,"errcode":0}`},
	{name: "the last of two is no code", body: `{"errcode":90018,"errcode":{}}`},
	{name: "nested", body: `{"result":{"errcode":90018}}`},
	{name: "in an array", body: `[{"errcode":90018}]`},
	{name: "a string", body: `"{\"errcode\":90018}"`},
	{name: "the word limit in content", body: `{"errcode":0,"content":"rate limit 90018 exceeded, 处罚将在 2026-09-03 00:01:09 结束"}`},
	{name: "plain text", body: `errcode 90018`},
	{name: "empty", body: ``},
	{name: "two objects", body: `{"errcode":90018}{"errcode":0}`},
	{name: "broken behind the code", body: `{"errcode":90018,}`},
	{name: "broken and cut", cut: true, body: `{"errcode":90018,,"a`},
	{name: "unfinished though complete", body: `{"errcode":90018`},
	{name: "cut within the number", cut: true, body: `{"errcode":90018`},
	{name: "cut before the sub code", cut: true, body: `{"errcode":88,"sub_code":"9001`},
	{name: "cut before the code", cut: true, body: `{"result":{"errcode":90018,"list":[1,2,3`},
}

func TestDingTalkOldDetector(t *testing.T) { check(t, DingTalkOldDetector(), dingTalkOldRows) }

// dingTalkNewRows: codes and messages of server-api-error-codes-1.
var dingTalkNewRows = []detection{
	{name: "app and API", status: 403, until: time.Second, want: throttled(ScopeAppAPI, "Forbidden.AccessDenied.QpsLimitForAppkeyAndApi"),
		body: `{"code":"Forbidden.AccessDenied.QpsLimitForAppkeyAndApi","requestid":"B4B7","message":"您的企业应用调用钉钉开放平台当前接口的所有请求都被暂时禁用了"}`},
	{name: "ISV, organisation and API", status: 403, until: time.Second, want: throttled(ScopeCorpAPI, "Forbidden.AccessDenied.QpsLimitForSuitekeyAndOrgAndApi"),
		body: `{"code":"Forbidden.AccessDenied.QpsLimitForSuitekeyAndOrgAndApi"}`},
	{name: "all tenants, with an end", status: 403, until: 3 * time.Second, want: throttled(ScopeAPI, "Forbidden.AccessDenied.QpsLimitForApi"),
		body: `{"code":"Forbidden.AccessDenied.QpsLimitForApi","message":"请求过于频繁，限制将在 2026-09-03 00:01:05 结束"}`},
	{name: "a minute's limit", status: 403, until: -1, want: throttled(ScopeAppAPI, "Forbidden.AccessDenied.QpmLimitForAppkeyAndApi"),
		body: `{"code":"Forbidden.AccessDenied.QpmLimitForAppkeyAndApi"}`},
	{name: "an ISV's minute's limit", status: 403, until: -1, want: throttled(ScopeCorpAPI, "Forbidden.AccessDenied.QpmLimitForSuitekeyAndOrgAndApi"),
		body: `{"code":"Forbidden.AccessDenied.QpmLimitForSuitekeyAndOrgAndApi"}`},
	{name: "the month's quota", status: 403, until: 28*24*time.Hour - 62*time.Second, want: throttled(ScopeMonth, "Forbidden.AccessDenied.ApiCountLimitForOrg"),
		body: `{"code":"Forbidden.AccessDenied.ApiCountLimitForOrg"}`},
	{name: "the month's quota with another field", status: 403, until: -1, asked: 28*24*time.Hour - 62*time.Second, want: throttled(ScopeMonth, "Forbidden.AccessDenied.ApiCountLimitForOrg"),
		body: `{"code":"Forbidden.AccessDenied.ApiCountLimitForOrg","title":"x"}`},
	{name: "cut behind the code", status: 403, cut: true, until: time.Second, want: throttled(ScopeAppAPI, "Forbidden.AccessDenied.QpsLimitForAppkeyAndApi"),
		body: `{"code":"Forbidden.AccessDenied.QpsLimitForAppkeyAndApi","message":"您的`},

	{name: "no permission", status: 403, body: `{"code":"Forbidden.AccessDenied.AccessTokenPermissionDenied","message":"没有调用该接口的权限"}`},
	{name: "the address is not on the list", status: 403, body: `{"code":"Forbidden.AccessDenied.IpNotInWhiteList"}`},
	{name: "Forbidden", status: 403, body: `{"code":"Forbidden","message":"Forbidden"}`},
	{name: "a size that is over its limit", status: 403, body: `{"code":"forbidden.document.sizeOverLimit"}`},
	{name: "a code that begins alike", status: 403, body: `{"code":"Forbidden.AccessDenied.QpsLimitForAppkeyAndApiX"}`},
	{name: "another case", status: 403, body: `{"code":"forbidden.accessdenied.qpslimitforapi"}`},
	{name: "a page with the code", status: 403, header: "Content-Type: text/html\n", ignored: `content type "text/html"`, body: `{"code":"Forbidden.AccessDenied.QpsLimitForApi"}`},
	{name: "a code that is a number", status: 403, body: `{"code":90018}`},
	{name: "not 403", status: 400, body: `{"code":"Forbidden.AccessDenied.QpsLimitForApi"}`},
	{name: "success that quotes it", status: 200, body: `{"code":"Forbidden.AccessDenied.QpsLimitForApi"}`},
	{name: "nested", status: 403, body: `{"error":{"code":"Forbidden.AccessDenied.QpsLimitForApi"}}`},
	{name: "in the message", status: 403, body: `{"code":"x","message":"Forbidden.AccessDenied.QpsLimitForApi"}`},
	{name: "an array", status: 403, body: `["Forbidden.AccessDenied.QpsLimitForApi"]`},
	{name: "no body", status: 403},
}

func TestDingTalkNewDetector(t *testing.T) { check(t, DingTalkNewDetector(), dingTalkNewRows) }

var dingTalkRobotRows = []detection{
	{name: "documented", until: 10 * time.Minute, want: banned(ScopeRobot, "410100"), body: `{"errcode":410100,"errmsg":"发送速度太快而限流"}`},
	{name: "as a string, as the page's example has it", until: 10 * time.Minute, want: banned(ScopeRobot, "410100"), body: `{"errcode":"410100","errmsg":"发送速度太快而限流"}`},
	{name: "seen", until: 10 * time.Minute, want: banned(ScopeRobot, "130101"), body: `{"errcode":130101,"errmsg":"send too fast, exceed 20 times per minute"}`},
	{name: "success", body: `{"errcode":"0","errmsg":"ok"}`},
	{name: "keywords", body: `{"errcode":310000,"errmsg":"keywords not in content"}`},
	{name: "no such token", body: `{"errcode":300005,"errmsg":"token is not exist"}`},
	{name: "the text alone", body: `{"errcode":1,"errmsg":"send too fast, exceed 20 times per minute"}`},
	{name: "seen in 2026", until: 10 * time.Minute, want: banned(ScopeRobot, "660026"), body: `{"errcode":660026,"errmsg":"sending too many messages per minute"}`},
	{name: "nested", body: `{"body":{"errcode":410100}}`},
	{name: "another field", until: -1, asked: 10 * time.Minute, want: throttled(ScopeRobot, "410100"), body: `{"errcode":410100,"errmsg":"x","title":"x"}`},
	{name: "a file", ignored: "the body is a file, or a part of one", header: "Content-Disposition: attachment\n", body: `{"errcode":410100}`},
}

func TestDingTalkRobotDetector(t *testing.T) { check(t, DingTalkRobotDetector(), dingTalkRobotRows) }

var dingTalkBanRows = []detection{
	{name: "documented", until: 5 * time.Minute, want: banned(ScopeIP, banReason),
		body: "{\n   \"status\":1111,\n   \"wait\":5,\n   \"source\":\"x5\",\n   \"punish\":\"deny\",\n   \"uuid\":\"xxx\"\n}"},
	{name: "as a page", header: "Content-Type: text/html\n", until: 5 * time.Minute, want: banned(ScopeIP, banReason), body: ban("5")},
	{name: "an error", status: 403, until: 5 * time.Minute, want: banned(ScopeIP, banReason), body: ban("5")},
	{name: "without a wait", until: 5 * time.Minute, want: banned(ScopeIP, banReason), body: `{"status":1111,"source":"x5","punish":"deny","uuid":"u"}`},
	{name: "a longer wait", until: 9 * time.Minute, want: banned(ScopeIP, banReason), body: ban("9")},
	{name: "a wait that is too long", until: 10 * time.Minute, asked: 30 * time.Minute, want: banned(ScopeIP, banReason), body: ban("30")},
	{name: "a shorter wait", until: 5 * time.Minute, want: banned(ScopeIP, banReason), body: ban("1")},
	{name: "a negative wait", until: 5 * time.Minute, want: banned(ScopeIP, banReason), body: ban("-9")},
	{name: "a fraction", until: 5 * time.Minute, want: banned(ScopeIP, banReason), body: ban("9.5")},
	{name: "a huge wait", until: 10 * time.Minute, asked: 60 * httplimit.MaxPenalty, want: banned(ScopeIP, banReason), body: ban("2000000000")},
	{name: "a wait beyond all numbers", until: 10 * time.Minute, asked: 60 * httplimit.MaxPenalty, want: banned(ScopeIP, banReason), body: ban("99999999999999999999")},
	{name: "all of a page", until: 5 * time.Minute, want: banned(ScopeIP, banReason),
		body: "<!DOCTYPE html>\n<html>\n<head><meta charset=\"utf-8\"><title>deny</title><style>body{margin:0}</style></head>\n<BODY class=\"x\">\n" + ban("5") + "\n</BODY>\n</html>\n"},
	{name: "all of a page in GBK", until: 5 * time.Minute, want: banned(ScopeIP, banReason), body: "<html><title>\xbd\xfb\xd6\xb9</title><body>" + ban("5") + "</body>"},

	{name: "a wait that is no number", ignored: "the fields are not the documented ones", body: ban("{}")},
	{name: "a wait that is a text", ignored: "the fields are not the documented ones", body: ban(`"5"`)},
	{name: "a status that is a text", ignored: "the fields are not the documented ones", body: `{"status":"1111","source":"x5","punish":"deny","uuid":"u"}`},
	{name: "no source", ignored: "the fields are not the documented ones", body: `{"status":1111,"punish":"deny","uuid":"u"}`},
	{name: "no uuid", ignored: "the fields are not the documented ones", body: `{"status":1111,"source":"x5","punish":"deny"}`},
	{name: "a robot's", ignored: "the fields are not the documented ones", body: `{"status":1111,"source":"x5","punish":"deny","uuid":"u","errcode":130101}`},
	{name: "twice", ignored: "the fields are not the documented ones", body: `{"status":0,"status":1111,"source":"x5","punish":"deny","uuid":"u"}`},
	{name: "cut", cut: true, ignored: "the fields are not the documented ones", body: `{"status":1111,"wait":5,"source":"x5","punish":"deny","uu`},
	{name: "large", ignored: "the fields are not the documented ones", body: ban("5") + strings.Repeat(" ", envelope.MaxSize)},
	{name: "a redirect", status: 302, ignored: "status 302", body: ban("5")},
	{name: "a file", ignored: "the body is a file, or a part of one", header: "Content-Disposition: attachment\n", body: ban("5")},
	{name: "a download", url: "https://api.dingtalk.com/v1.0/robot/messageFiles/download", ignored: "the path serves files", body: ban("5")},
	{name: "an error at a download", url: "https://oapi.dingtalk.com/media/downloadFile", status: 403, until: 5 * time.Minute, want: banned(ScopeIP, banReason), body: ban("5")},
	{name: "plain text", header: "Content-Type: text/plain\n", ignored: `content type "text/plain"`, body: ban("5")},
	{name: "a page that is called JSON", header: "Content-Type: application/json\n", ignored: "it is part of a page", body: "<html><body>" + ban("5") + "</body></html>"},
	{name: "within a page's script", ignored: "it is part of a page",
		body: "<!DOCTYPE html><html><head><style>body{margin:0}</style></head><body><script>var x = {\"a\":{}};\nwindow.p=" + ban("5") + ";</script></body></html>"},
	{name: "behind styles", ignored: "it is part of a page", body: "<style>" + strings.Repeat("a{b:c}", 5000) + "</style>" + ban("5")},
	{name: "escaped within a page", ignored: "it is part of a page", body: " \n<html><body>" + escapedText(ban("5")) + "</body>"},
	{name: "beside a text", ignored: "it is part of a page", body: "<html><body>x" + ban("5") + "</body>"},
	{name: "before a text", ignored: "it is part of a page", body: "<html><body>" + ban("5") + "</body>x"},
	{name: "two bodies", ignored: "it is part of a page", body: "<html><body>" + ban("5") + "</body><body></body>"},
	{name: "another element", ignored: "it is part of a page", body: "<html><bodyx>" + ban("5") + "</body>"},
	{name: "in an attribute", ignored: "it is part of a page", body: "<html><body title='>" + ban("5") + "</body>'></body>"},
	{name: "a body that does not end", ignored: "it is part of a page", body: "<html><body>" + ban("5")},

	{name: "the status alone", body: `{"status":1111}`},
	{name: "the punishment alone", body: `{"status":0,"punish":"deny"}`},
	{name: "another punishment", body: `{"status":1111,"punish":"captcha"}`},
	{name: "nested", body: `{"result":` + ban("5") + `}`},
	{name: "in two objects", body: `<p>{"status":1111} {"punish":"deny"}</p>`},
	{name: "the words on a page", body: `<html><body><h1>status 1111</h1> punish deny "status":1111,"punish":"deny"</body></html>`},
	{name: "a proxy's error", status: 502, body: "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>"},
	{name: "a page of styles", body: "<style>" + strings.Repeat("a{b:c}", 5000) + "</style>"},
	{name: "a page of objects", body: "<script>" + strings.Repeat(`{"a":`, 5000) + ban("5")},
	{name: "text", body: `status 1111 ` + ban("5")},
	{name: "an array", body: `[` + ban("5") + `]`},
	{name: "empty"},
	{name: "BOM alone", body: "\ufeff"},
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
	r := detection{body: `{"status":1111,"wait":5,"source":"x5","punish":"deny","uuid":"9ff0e7e2","errcode": 130101,"errmsg": "send too fast, exceed 20 times per minute"}`}.response()
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
