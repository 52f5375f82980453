// SPDX-License-Identifier: Apache-2.0

package dinggate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Where the bodies come from:
//
//   - The codes of both APIs, the IP's JSON and 410100: the pages named at the package and at Standard.
//   - Old API, errcode 88 with sub_code, sub_msg, request_id for /topapi, and its text with 限制将在 … 结束:
//     bodies that callers logged in 2026, of sub_codes 90002 and 40014; the plain errcode 90002 for
//     /user/list with 处罚将在 … 结束: https://github.com/ali-sdk/node-dingtalk/issues/32. That 90018
//     and 90019 have the same frame is analogy; the words of their messages are ours.
//   - The month: http://www.dingtalk.com/qidian/help-detail-1061621972.html.
//   - New API, {"code":…,"requestid":…,"message":…}, and what a wrong token gets in both: seen in 2026.
//     The messages of the 403 are ours.
//   - The robot: custom-robots-send-group-messages. Others were seen; the tables of platform's detectors have them.
//   - The IP: the documentation calls it an HTML page and shows the JSON; it names no status. That the HTML holds the JSON, and the
//     200, are our choice: callers have taken the JSON for a success.

// An answer is what goes back to the caller.
type answer struct {
	status      int
	contentType string
	body        []byte
}

func (a answer) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", a.contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body)
}

func jsonAnswer(status int, s style, body any) answer {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(body); err != nil {
		return answer{status: http.StatusInternalServerError, contentType: "text/plain", body: []byte(err.Error())}
	}
	contentType := "application/json;charset=UTF-8"
	switch s {
	case newAPI:
		contentType = "application/json;charset=utf-8"
	case oldPlain, robotAPI:
		contentType = "application/json"
	}
	return answer{status, contentType, bytes.TrimSuffix(b.Bytes(), []byte("\n"))}
}

// The bodies, with their fields in the order in which they were seen.
type (
	oldBody struct {
		ErrCode   int    `json:"errcode"`
		SubCode   string `json:"sub_code,omitempty"`
		SubMsg    string `json:"sub_msg,omitempty"`
		ErrMsg    string `json:"errmsg"`
		Token     string `json:"access_token,omitempty"`
		ExpiresIn int    `json:"expires_in,omitempty"`
		RequestID string `json:"request_id,omitempty"`
	}
	newError struct {
		Code      string `json:"code"`
		RequestID string `json:"requestid"`
		Message   string `json:"message"`
	}
	newToken struct {
		Token    string `json:"accessToken"`
		ExpireIn int    `json:"expireIn"`
	}
	punishment struct {
		Status int    `json:"status"`
		Wait   int    `json:"wait"` // of no documented meaning; the ban of an IP is 5 minutes
		Source string `json:"source"`
		Punish string `json:"punish"`
		UUID   string `json:"uuid"`
	}
)

// tokenLife is what both APIs give a token: two hours, in seconds.
const tokenLife = 7200

// success answers a call that no limit refused. It is one of a call without a valid token, too.
func success(c request, id requestID) answer {
	switch {
	case c.invalid:
		return unknownCaller(c, id)
	case c.token != "" && c.style == newAPI:
		return jsonAnswer(http.StatusOK, c.style, newToken{c.token, tokenLife})
	case c.token != "":
		return jsonAnswer(http.StatusOK, c.style, oldBody{ErrMsg: "ok", Token: c.token, ExpiresIn: tokenLife})
	case c.style == newAPI && strings.HasSuffix(c.path, "/send"):
		return jsonAnswer(http.StatusOK, c.style, map[string]string{"processQueryKey": id.old()})
	case c.style == newAPI:
		return jsonAnswer(http.StatusOK, c.style, map[string]any{})
	case c.style == oldTop:
		return jsonAnswer(http.StatusOK, c.style, oldBody{ErrMsg: "ok", RequestID: id.old()})
	}
	return jsonAnswer(http.StatusOK, c.style, oldBody{ErrMsg: "ok"})
}

// unknownCaller answers a call without a token, or with one that nobody gave: errors that are no
// throttling, in the same shapes.
func unknownCaller(c request, id requestID) answer {
	switch {
	case c.style == robotAPI:
		return jsonAnswer(http.StatusOK, c.style, oldBody{ErrCode: 300005, ErrMsg: "token is not exist"})
	case c.style == newAPI && strings.HasPrefix(c.path, "/v1.0/oauth2/"):
		return jsonAnswer(http.StatusBadRequest, c.style, newError{"invalidClientIdOrSecret", id.uuid(), "无效的clientId或者clientSecret"})
	case c.style == newAPI && c.blank:
		return jsonAnswer(http.StatusBadRequest, c.style, newError{"AuthenticationFailed.MissingParameter", id.uuid(), "缺少参数：x-acs-dingtalk-access-token"})
	case c.style == newAPI:
		return jsonAnswer(http.StatusBadRequest, c.style, newError{"InvalidAuthentication", id.uuid(), "不合法的access_token"})
	case c.path == "/gettoken":
		return jsonAnswer(http.StatusOK, c.style, oldBody{ErrCode: 40035, ErrMsg: "缺少参数 corpid or appkey"})
	}
	code, msg := "40014", "不合法的access_token"
	if c.blank {
		code, msg = "40000", "access_token is blank"
	}
	return jsonAnswer(http.StatusOK, oldTop, oldBody{ErrCode: 88, SubCode: code, SubMsg: msg,
		ErrMsg: fmt.Sprintf("ding talk error[subcode=%s,submsg=%s]", code, msg), RequestID: id.old()})
}

// refusal answers a call that m has refused.
func refusal(c request, m *meter, id requestID) answer {
	switch m.dimension {
	case DimIP:
		return ban(id)
	case DimRobot:
		return jsonAnswer(http.StatusOK, robotAPI, oldBody{ErrCode: 410100, ErrMsg: "发送速度太快而限流"})
	case DimMonth:
		msg := fmt.Sprintf("您的企业本月api调用量已超过限制,调用量:%d次,额度:%d次,请登录开发者后台-资源管理-查看用量明细",
			m.limit.Calls+1, m.limit.Calls)
		return throttled(c, id, 90020, "ApiCountLimitForOrg", msg, msg)
	}
	var code int
	var newCode, msg string
	switch m.dimension {
	case DimAppAPI:
		code, newCode, msg = 90018, "QpsLimitForAppkeyAndApi", "您的应用调用该接口次数过多，请求被暂时限制了"
	case DimCorpAPI:
		code, newCode, msg = 90019, "QpsLimitForSuitekeyAndOrgAndApi", "您的应用对该企业调用该接口次数过多，请求被暂时限制了"
	default:
		code, newCode, msg = 90002, "QpsLimitForApi", "当前所有钉钉应用调用该接口次数过多，超出了该接口承受的最大qps，请求被暂时限制了，建议错开整点时刻调用该接口"
		if c.style == oldPlain {
			msg = "您的服务器调用钉钉开放平台当前接口的所有请求都被暂时禁用了"
		}
	}
	from := m.penalty.Start.Add(time.Second - m.limit.Window)
	text := fmt.Sprintf("%s, apiPath(dingtalk.oapi.%s), 从 %s 到 %s 请求总次数超过 %d 次, 限制将在 %s 结束.",
		msg, strings.ReplaceAll(strings.TrimPrefix(c.path, "/topapi/"), "/", "."),
		wall(from), wall(m.penalty.Start), m.limit.Calls, wallEnd(m.until))
	if c.style == oldPlain {
		text = fmt.Sprintf("%s, apiPath(%s), 从 %s 到 %s 请求总次数超过了 %d 次, 处罚将在 %s 结束.",
			msg, c.path, wall(from), wall(m.penalty.Start), m.limit.Calls, wallEnd(m.until))
	}
	return throttled(c, id, code, newCode, msg, text)
}

// throttled is a refusal in the style of the API that was called.
func throttled(c request, id requestID, code int, newCode, msg, text string) answer {
	switch c.style {
	case newAPI:
		return jsonAnswer(http.StatusForbidden, c.style, newError{"Forbidden.AccessDenied." + newCode, id.uuid(), msg})
	case oldTop:
		return jsonAnswer(http.StatusOK, c.style, oldBody{ErrCode: 88, SubCode: strconv.Itoa(code), SubMsg: text,
			ErrMsg: fmt.Sprintf("ding talk error[subcode=%d,submsg=%s]", code, text), RequestID: id.old()})
	}
	return jsonAnswer(http.StatusOK, c.style, oldBody{ErrCode: code, ErrMsg: text})
}

// wall is a time as the old API writes it.
func wall(t time.Time) string { return t.In(shanghai).Format(time.DateTime) }

// wallEnd is the first whole second at which a penalty is over. The platform's windows seem to be
// whole seconds, so that nothing has to be rounded there; a text that was rounded down would send a
// caller who believes it into the penalty's last second.
func wallEnd(t time.Time) string { return wall(t.Add(time.Second - 1)) }

// ban answers a banned IP.
func ban(id requestID) answer {
	a := jsonAnswer(http.StatusOK, oldTop, punishment{Status: 1111, Wait: 5, Source: "x5", Punish: "deny", UUID: id.hex()})
	a.contentType = "text/html;charset=UTF-8"
	a.body = fmt.Appendf(nil, "<!DOCTYPE html>\n<html>\n<head><meta charset=\"utf-8\"><title>deny</title></head>\n<body>\n%s\n</body>\n</html>\n", a.body)
	return a
}

// A requestID names one answer, in the forms of the two APIs. The same calls get the same ids.
type requestID struct {
	n  int64
	at time.Time
}

func (r requestID) old() string { return fmt.Sprintf("15%011x", r.n) }
func (r requestID) hex() string { return fmt.Sprintf("%016x%016x", r.at.UnixMilli(), r.n) }
func (r requestID) uuid() string {
	h := strings.ToUpper(r.hex())
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}
