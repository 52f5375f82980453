// SPDX-License-Identifier: Apache-2.0

package dinggate

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// over makes n calls and returns the response to the last one.
func (d *desk) over(n int, line string, header ...string) *httptest.ResponseRecorder {
	var last *httptest.ResponseRecorder
	for range n {
		last = d.ask(line, header...)
	}
	return last
}

const (
	html    = "text/html;charset=UTF-8"
	jsonOld = "application/json;charset=UTF-8"
	jsonNew = "application/json;charset=utf-8"
	jsonRaw = "application/json"
)

// TestAnswers checks the bodies, which a detector has to tell apart, byte for byte. The bubble begins at 08:00 in
// Shanghai.
func TestAnswers(t *testing.T) {
	const newToken = "X-Acs-Dingtalk-Access-Token"
	for name, c := range map[string]struct {
		limits      Limits
		calls       int
		line        string
		header      []string
		after       time.Duration // when the last call is made
		status      int
		contentType string
		want        string
	}{
		"old, success": {calls: 1, line: "POST /topapi/v2/user/get?access_token=app-a", status: 200, contentType: jsonOld,
			want: `{"errcode":0,"errmsg":"ok","request_id":"1500000000001"}`},
		"old, plain success": {calls: 1, line: "GET /user/get?access_token=app-a", status: 200, contentType: jsonRaw,
			want: `{"errcode":0,"errmsg":"ok"}`},
		"old, app": {calls: 22, line: "POST /topapi/v2/user/get?access_token=app-a", after: 300 * ms, status: 200, contentType: jsonOld,
			want: `{"errcode":88,"sub_code":"90018","sub_msg":"您的应用调用该接口次数过多，请求被暂时限制了, apiPath(dingtalk.oapi.v2.user.get), 从 2000-01-01 08:00:00 到 2000-01-01 08:00:00 请求总次数超过 20 次, 限制将在 2000-01-01 08:00:01 结束.","errmsg":"ding talk error[subcode=90018,submsg=您的应用调用该接口次数过多，请求被暂时限制了, apiPath(dingtalk.oapi.v2.user.get), 从 2000-01-01 08:00:00 到 2000-01-01 08:00:00 请求总次数超过 20 次, 限制将在 2000-01-01 08:00:01 结束.]","request_id":"1500000000016"}`},
		"old, plain": {calls: 22, line: "GET /user/list?access_token=app-a", after: 300 * ms, status: 200, contentType: jsonRaw,
			want: `{"errcode":90018,"errmsg":"您的应用调用该接口次数过多，请求被暂时限制了, apiPath(/user/list), 从 2000-01-01 08:00:00 到 2000-01-01 08:00:00 请求总次数超过了 20 次, 处罚将在 2000-01-01 08:00:01 结束."}`},
		"old, ISV": {calls: 41, line: "GET /user/list?access_token=isv-s@c", status: 200, contentType: jsonRaw,
			want: `{"errcode":90019,"errmsg":"您的应用对该企业调用该接口次数过多，请求被暂时限制了, apiPath(/user/list), 从 2000-01-01 08:00:00 到 2000-01-01 08:00:00 请求总次数超过了 40 次, 处罚将在 2000-01-01 08:00:01 结束."}`},
		"old, API": {limits: limits(func(l Limits) { l[DimAPI].Calls = 1 }), calls: 2, line: "GET /user/list?access_token=app-a", status: 200, contentType: jsonRaw,
			want: `{"errcode":90002,"errmsg":"您的服务器调用钉钉开放平台当前接口的所有请求都被暂时禁用了, apiPath(/user/list), 从 2000-01-01 08:00:00 到 2000-01-01 08:00:00 请求总次数超过了 1 次, 处罚将在 2000-01-01 08:00:01 结束."}`},
		"old, month": {limits: limits(func(l Limits) { l[DimMonth].Calls = 2 }), calls: 3, line: "GET /user/list?access_token=app-a", status: 200, contentType: jsonRaw,
			want: `{"errcode":90020,"errmsg":"您的企业本月api调用量已超过限制,调用量:3次,额度:2次,请登录开发者后台-资源管理-查看用量明细"}`},
		"old, wrong token": {calls: 1, line: "POST /topapi/v2/user/get?access_token=test", status: 200, contentType: jsonOld,
			want: `{"errcode":88,"sub_code":"40014","sub_msg":"不合法的access_token","errmsg":"ding talk error[subcode=40014,submsg=不合法的access_token]","request_id":"1500000000001"}`},
		"old, no token": {calls: 1, line: "POST /topapi/v2/user/get", header: []string{newToken, "app-a"}, status: 200, contentType: jsonOld,
			want: `{"errcode":88,"sub_code":"40000","sub_msg":"access_token is blank","errmsg":"ding talk error[subcode=40000,submsg=access_token is blank]","request_id":"1500000000001"}`},
		"new, success": {calls: 1, line: "GET /v1.0/contact/users/me", header: []string{newToken, "app-a"}, status: 200, contentType: jsonNew, want: `{}`},
		"new, a message": {calls: 1, line: "POST /v1.0/robot/groupMessages/send", header: []string{newToken, "app-a"}, status: 200, contentType: jsonNew,
			want: `{"processQueryKey":"1500000000001"}`},
		"new, app": {calls: 21, line: "GET /v1.0/contact/users/me", header: []string{newToken, "app-a"}, status: 403, contentType: jsonNew,
			want: `{"code":"Forbidden.AccessDenied.QpsLimitForAppkeyAndApi","requestid":"000000DC-6ACF-AC00-0000-000000000015","message":"您的应用调用该接口次数过多，请求被暂时限制了"}`},
		"new, ISV": {calls: 41, line: "GET /v1.0/contact/users/me", header: []string{newToken, "isv-s@c"}, status: 403, contentType: jsonNew,
			want: `{"code":"Forbidden.AccessDenied.QpsLimitForSuitekeyAndOrgAndApi","requestid":"000000DC-6ACF-AC00-0000-000000000029","message":"您的应用对该企业调用该接口次数过多，请求被暂时限制了"}`},
		"new, API": {limits: limits(func(l Limits) { l[DimAPI].Calls = 1 }), calls: 2, line: "GET /v1.0/x", header: []string{newToken, "app-a"}, status: 403, contentType: jsonNew,
			want: `{"code":"Forbidden.AccessDenied.QpsLimitForApi","requestid":"000000DC-6ACF-AC00-0000-000000000002","message":"当前所有钉钉应用调用该接口次数过多，超出了该接口承受的最大qps，请求被暂时限制了，建议错开整点时刻调用该接口"}`},
		"new, month": {limits: limits(func(l Limits) { l[DimMonth].Calls = 2 }), calls: 3, line: "GET /v1.0/x", header: []string{newToken, "app-a"}, status: 403, contentType: jsonNew,
			want: `{"code":"Forbidden.AccessDenied.ApiCountLimitForOrg","requestid":"000000DC-6ACF-AC00-0000-000000000003","message":"您的企业本月api调用量已超过限制,调用量:3次,额度:2次,请登录开发者后台-资源管理-查看用量明细"}`},
		"new, wrong token": {calls: 1, line: "GET /v1.0/x", header: []string{newToken, "isv-s@" + OwnOrg}, status: 400, contentType: jsonNew,
			want: `{"code":"InvalidAuthentication","requestid":"000000DC-6ACF-AC00-0000-000000000001","message":"不合法的access_token"}`},
		"new, no token": {calls: 1, line: "GET /v1.0/x?access_token=app-a", status: 400, contentType: jsonNew,
			want: `{"code":"AuthenticationFailed.MissingParameter","requestid":"000000DC-6ACF-AC00-0000-000000000001","message":"缺少参数：x-acs-dingtalk-access-token"}`},
		"robot, success":  {calls: 20, line: "POST /robot/send?access_token=R", status: 200, contentType: jsonRaw, want: `{"errcode":0,"errmsg":"ok"}`},
		"robot, no token": {calls: 1, line: "POST /robot/send", status: 200, contentType: jsonRaw, want: `{"errcode":300005,"errmsg":"token is not exist"}`},
		"robot, as documented": {calls: 21, line: "POST /robot/send?access_token=R", status: 200, contentType: jsonRaw,
			want: `{"errcode":410100,"errmsg":"发送速度太快而限流"}`},
		"IP, page": {limits: limits(func(l Limits) { l[DimIP].Calls = 1 }), calls: 2, line: "GET /v1.0/x", header: []string{newToken, "app-a"}, status: 200, contentType: html,
			want: "<!DOCTYPE html>\n<html>\n<head><meta charset=\"utf-8\"><title>deny</title></head>\n<body>\n" +
				`{"status":1111,"wait":5,"source":"x5","punish":"deny","uuid":"000000dc6acfac000000000000000002"}` + "\n</body>\n</html>\n"},
		"token, old": {calls: 1, line: "GET /gettoken?appkey=a&appsecret=s", status: 200, contentType: jsonRaw,
			want: `{"errcode":0,"errmsg":"ok","access_token":"app-a","expires_in":7200}`},
		"token, old, for nobody": {calls: 1, line: "GET /gettoken", status: 200, contentType: jsonRaw,
			want: `{"errcode":40035,"errmsg":"缺少参数 corpid or appkey"}`},
		"token, old, too often": {calls: 21, line: "GET /gettoken?appkey=a&appsecret=s", status: 200, contentType: jsonRaw,
			want: `{"errcode":90018,"errmsg":"您的应用调用该接口次数过多，请求被暂时限制了, apiPath(/gettoken), 从 2000-01-01 08:00:00 到 2000-01-01 08:00:00 请求总次数超过了 20 次, 处罚将在 2000-01-01 08:00:01 结束."}`},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(d *desk) {
				d.over(c.calls-1, c.line, c.header...)
				d.at(c.after)
				w := d.ask(c.line, c.header...)
				require.Equal(t, c.want, w.Body.String())
				require.Equal(t, c.status, w.Code)
				require.Equal(t, c.contentType, w.Header().Get("Content-Type"))
			}, c.limits)
		})
	}
}

func TestTokensOfTheNewAPI(t *testing.T) {
	inBubble(t, func(d *desk) {
		for _, c := range []struct{ path, body, want string }{
			{"accessToken", `{"appKey":"a","appSecret":"s"}`, `{"accessToken":"app-a","expireIn":7200}`},
			{"corpAccessToken", `{"suiteKey":"s","suiteSecret":"x","authCorpId":"c","suiteTicket":"t"}`, `{"accessToken":"isv-s@c","expireIn":7200}`},
			{"accessToken", `{"appKey":""}`, `invalidClientIdOrSecret`},
			{"corpAccessToken", `{"suiteKey":"s"}`, `invalidClientIdOrSecret`},
			{"accessToken", `not JSON`, `invalidClientIdOrSecret`},
		} {
			w := httptest.NewRecorder()
			d.g.ServeHTTP(w, httptest.NewRequest("POST", "/v1.0/oauth2/"+c.path, strings.NewReader(c.body)))
			require.Contains(t, w.Body.String(), c.want)
		}
	})
}

// TestTheTextNamesAnEndThatIsOne checks that the second that the text names is never before the end of the penalty: a
// caller that waits for it is admitted.
func TestTheTextNamesAnEndThatIsOne(t *testing.T) {
	const line = "POST /topapi/v2/user/get?access_token=app-a"
	for _, start := range []time.Duration{0, ns, 300 * ms, time.Second - ns} {
		inBubble(t, func(d *desk) {
			d.at(start)
			body := d.over(21, line).Body.String()
			_, text, _ := strings.Cut(body, "限制将在 ")
			text, _, _ = strings.Cut(text, " 结束")
			end, err := time.ParseInLocation(time.DateTime, text, time.FixedZone("", 8*60*60))
			require.NoError(t, err)
			wait := time.Until(end)
			require.GreaterOrEqual(t, wait, time.Second)
			require.Less(t, wait, 2*time.Second)
			time.Sleep(wait)
			require.True(t, admitted(d.ask(line)))
		})
	}
}
