// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// bodyDetectors are those that decide by the body, with what a slow reading of the same body says.
var bodyDetectors = []struct {
	name   string
	detect httplimit.Detector
	slow   func(status int, body []byte, o map[string]any) httplimit.Verdict
	rows   []detection
	most   time.Duration // of what is no quota of a month
}{
	{"old", DingTalkOldDetector(), slowOld, dingTalkOldRows, 10 * time.Minute},
	{"new", DingTalkNewDetector(), slowNew, dingTalkNewRows, 10 * time.Minute},
	{"robot", DingTalkRobotDetector(), slowRobot, dingTalkRobotRows, 10 * time.Minute},
	{"ban", DingTalkBanDetector(), slowBan, dingTalkBanRows, 10 * time.Minute},
	{"wecom", WeComDetector(), slowWeCom, weComRows, time.Minute},
	{"wechat", WeChatDetector(), slowWeChat, weChatRows, 24 * time.Hour},
	{"feishu", FeishuDetector(), slowFeishu, feishuRows, 2 * time.Minute},
}

// slowObject reads a whole body as one object, the plain way.
func slowObject(body []byte) map[string]any {
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(body, []byte{0xef, 0xbb, 0xbf})))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil || !errors.Is(d.Decode(new(any)), io.EOF) {
		return nil
	}
	o, _ := v.(map[string]any)
	return o
}

// written is a string's or a number's text, and nothing for any other value.
func written(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	}
	return ""
}

var slowScopes = map[httplimit.Scope]string{
	ScopeAppAPI:  "90018 90006 90010 90012 Forbidden.AccessDenied.QpsLimitForAppkeyAndApi Forbidden.AccessDenied.QpmLimitForAppkeyAndApi",
	ScopeCorpAPI: "90019 90005 90008 90014 Forbidden.AccessDenied.QpsLimitForSuitekeyAndOrgAndApi Forbidden.AccessDenied.QpmLimitForSuitekeyAndOrgAndApi",
	ScopeAPI:     "90002 Forbidden.AccessDenied.QpsLimitForApi",
	ScopeMonth:   "90020 Forbidden.AccessDenied.ApiCountLimitForOrg",
	ScopeIP:      "90001",
	"":           "90003 90004 90007 90009 90011 90013",
}

func slowCode(code string) httplimit.Verdict {
	for scope, codes := range slowScopes {
		for _, known := range strings.Fields(codes) {
			if code == known {
				return throttled(scope, code)
			}
		}
	}
	return httplimit.Verdict{}
}

// slowExact reports whether a body is small and has no members but those of the names, none of them nested.
func slowExact(body []byte, o map[string]any, names string) bool {
	for key, v := range o {
		switch v.(type) {
		case string, json.Number, bool:
		default:
			return false
		}
		if !slices.Contains(strings.Fields(names), key) {
			return false
		}
	}
	return len(body) <= 4096 && len(o) > 0 && keysOnce(body, o)
}

func slowOld(status int, _ []byte, o map[string]any) httplimit.Verdict {
	code := written(o["errcode"])
	if code == "88" {
		code = written(o["sub_code"])
	}
	if status != 200 || !strings.HasPrefix(code, "90") {
		return httplimit.Verdict{}
	}
	return slowCode(code)
}

func slowNew(status int, _ []byte, o map[string]any) httplimit.Verdict {
	code, _ := o["code"].(string)
	if status != 403 || !strings.HasPrefix(code, "F") {
		return httplimit.Verdict{}
	}
	return slowCode(code)
}

func slowRobot(status int, body []byte, o map[string]any) httplimit.Verdict {
	code := written(o["errcode"])
	if status != 200 || code != "410100" && code != "130101" && code != "660026" {
		return httplimit.Verdict{}
	}
	v := banned(ScopeRobot, code)
	v.Banned = slowExact(body, o, "errcode errmsg sub_code sub_msg request_id requestId success status wait source punish uuid")
	return v
}

func slowBan(status int, body []byte, o map[string]any) httplimit.Verdict {
	if status != 200 && status < 400 || !slowExact(body, o, "status wait source punish uuid") {
		return httplimit.Verdict{}
	}
	source, _ := o["source"].(string)
	uuid, _ := o["uuid"].(string)
	wait, waits := o["wait"]
	if _, number := wait.(json.Number); waits && !number {
		return httplimit.Verdict{}
	}
	if o["status"] == json.Number("1111") && o["punish"] == "deny" && source != "" && uuid != "" {
		return banned(ScopeIP, banReason)
	}
	return httplimit.Verdict{}
}

func slowWeCom(status int, _ []byte, o map[string]any) httplimit.Verdict {
	switch code := written(o["errcode"]); {
	case status != 200:
	case code == "45009":
		return throttled(ScopeCorpAPI, code)
	case code == "45033":
		return throttled(ScopeConcurrency, code)
	}
	return httplimit.Verdict{}
}

func slowWeChat(status int, _ []byte, o map[string]any) httplimit.Verdict {
	switch code := written(o["errcode"]); {
	case status != 200:
	case code == "45009":
		return throttled(ScopeDay, code)
	case code == "45011":
		return throttled(ScopeAppAPI, code)
	}
	return httplimit.Verdict{}
}

func slowFeishu(status int, _ []byte, o map[string]any) httplimit.Verdict {
	code := written(o["code"])
	_, number := o["code"].(json.Number)
	switch {
	case number && code == "99991403" && (status == 429 || status == 400 || status == 403):
		return throttled(ScopeMonth, code)
	case !number || status != 429 && status != 400:
	case code == "99991400" || code == "230020":
		return throttled(ScopeAppAPI, code)
	case code == "11232" || code == "9499":
		return throttled(ScopeRobot, code)
	}
	return httplimit.Verdict{}
}

// slowPage is a page whose body element has the first group in it.
var slowPage = regexp.MustCompile(`(?is)^.*?<body(?:[ \t\r\n][^>]*)?>(.*)</body>[ \t\r\n]*(?:</html>)?[ \t\r\n]*$`)

// keysOnce says that no key of the outermost object comes twice: then what is before a cut stays true.
func keysOnce(body []byte, o map[string]any) bool {
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(body, []byte{0xef, 0xbb, 0xbf})))
	depth, keys, atKey := 0, 0, false
	for {
		token, err := d.Token()
		if err != nil {
			return keys == len(o)
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
			atKey = depth == 1
			continue
		case json.Delim('}'), json.Delim(']'):
			depth--
		default:
			if depth == 1 && atKey {
				keys++
				atKey = false
				continue
			}
		}
		if depth == 1 {
			atKey = true
		}
	}
}

// FuzzBodies holds the detectors to the slow reading. Of a cut body that says "throttled" the whole one
// says the same; a body that is neither an object nor a page says nothing; an instant is within its
// bounds; nothing behind the body counts and the body is left as it was.
func FuzzBodies(f *testing.F) {
	for _, d := range bodyDetectors {
		for _, row := range d.rows {
			if len(row.Body) < 4096 {
				f.Add(row.Response().Status, []byte(row.Body), uint16(len(row.Body)/2))
			}
		}
	}
	f.Fuzz(func(t *testing.T, status int, body []byte, at uint16) {
		whole := slowObject(body)
		page := bytes.HasPrefix(bytes.TrimLeft(bytes.TrimPrefix(body, []byte("\ufeff")), " \t\r\n"), []byte("<"))
		cut := body[:min(int(at), len(body))]
		for _, d := range bodyDetectors {
			header := http.Header{"Content-Type": {"application/json"}}
			if page && d.name == "ban" {
				header.Set("Content-Type", "text/html")
			}
			got := detectBounded(t, d.detect, d.most, &httplimit.Response{Status: status, Header: header, Body: body, Complete: true})
			prefix := detectBounded(t, d.detect, d.most, &httplimit.Response{Status: status, Header: header, Body: cut})
			got.Until, got.Asked = time.Time{}, time.Time{}
			if d.name == "ban" && page {
				if got.Throttled {
					m := slowPage.FindSubmatch(body)
					require.NotNil(t, m)
					require.Equal(t, slowBan(status, m[1], slowObject(m[1])), got)
				}
				require.False(t, prefix.Throttled)
				continue
			}
			require.Equal(t, d.slow(status, body, whole), got, "%s", d.name)
			if prefix.Throttled && whole != nil && keysOnce(body, whole) {
				prefix.Until, prefix.Asked, got.Banned = time.Time{}, time.Time{}, false
				require.Equal(t, got, prefix, "%s of %q", d.name, cut)
			}
		}
	})
}

// detectBounded asks a detector about a response whose body is followed, in memory, by what would decide
// otherwise.
func detectBounded(t *testing.T, d httplimit.Detector, most time.Duration, r *httplimit.Response) httplimit.Verdict {
	t.Helper()
	tail := []byte(`8","errcode":90018,"sub_code":"90018","code":99991400,"status":1111,"punish":"deny"}`)
	clean := bytes.Clone(r.Body)
	r.Body = append(bytes.Clone(r.Body), tail...)[:len(r.Body)]
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Now = arrival
	v := d.Detect(r)
	require.Equal(t, clean, r.Body[:len(clean):len(clean)])
	again := &httplimit.Response{Request: r.Request, Status: r.Status, Header: r.Header, Complete: r.Complete, Now: r.Now,
		Body: clean[:len(clean):len(clean)]} // a copy of r would keep what r has read
	require.Equal(t, v, d.Detect(again))
	if !v.Throttled {
		require.Equal(t, v.Reason == "", v.Ignored == "")
		require.Equal(t, httplimit.Verdict{Reason: v.Reason, Ignored: v.Ignored}, v)
		return httplimit.Verdict{}
	}
	require.NotEmpty(t, v.Reason)
	require.Empty(t, v.Ignored)
	if !v.Asked.IsZero() {
		require.True(t, v.Asked.After(v.Until))
	}
	if !v.Until.IsZero() {
		longest := most
		if v.Scope == ScopeMonth {
			longest = 31 * 24 * time.Hour
		}
		require.False(t, v.Until.Before(arrival), "%v", v.Until)
		require.LessOrEqual(t, v.Until.Sub(arrival), longest)
	}
	return v
}

// FuzzHeaders: no header makes a detector panic or wait out of bounds, and success is never throttled by one.
func FuzzHeaders(f *testing.F) {
	for _, row := range gitHubRows {
		h := row.Response().Header
		f.Add(row.Response().Status, h.Get("Date"), h.Get("Retry-After"), h.Get("Ratelimit"), h.Get("Ratelimit-Policy"), h.Get("X-Ratelimit-Remaining"), h.Get("X-Ratelimit-Reset"))
	}
	for _, after := range []string{"120", "-5", "1.5", "soon", "2592000", "123456789012345678901234567890",
		"Wed, 02 Sep 2026 16:01:59 GMT", "Wednesday, 02-Sep-26 16:01:59 GMT", "Fri, 31 Dec 1999 23:59:59 GMT"} {
		for _, status := range []int{403, 429, 503} {
			f.Add(status, arrival.Format(http.TimeFormat), after, `"default";r=0;t=30`, `"default";q=100;w=60`, "0", "30")
		}
	}
	f.Fuzz(func(t *testing.T, status int, date, after, limit, policy, remaining, reset string) {
		h := http.Header{}
		for k, v := range map[string]string{"Date": date, "Retry-After": after, "Ratelimit": limit, "Ratelimit-Policy": policy,
			"X-Ratelimit-Remaining": remaining, "X-Ratelimit-Reset": reset, "X-Ogw-Ratelimit-Reset": reset} {
			h[k] = []string{v}
		}
		h.Set("Content-Type", "application/json")
		for _, d := range []httplimit.Detector{httplimit.HTTPDetector(), GitHubDetector(), FeishuDetector()} {
			v := detectBounded(t, d, 61*time.Minute, &httplimit.Response{Status: status, Header: h, Body: []byte(`{"code":99991400}`)})
			if status == 429 {
				require.True(t, v.Throttled)
			}
		}
		for _, d := range []httplimit.Detector{httplimit.HTTPDetector(), GitHubDetector()} {
			if status < 300 {
				require.Equal(t, httplimit.Verdict{}, d.Detect(&httplimit.Response{Status: status, Header: h, Now: arrival}))
			}
		}
	})
}

// FuzzUserBytes: nothing that a user of a platform writes changes a verdict. Not inside a string nor a nested
// value of an answer, whatever the answer is; not in a page that quotes it; not as an attachment or a
// part of a file, whatever its content type; and not as what a path answers that serves files, but for
// an error of WeCom's to the letter, which costs a minute.
func FuzzUserBytes(f *testing.F) {
	pick := uint8(0)
	for _, d := range bodyDetectors {
		for _, row := range d.rows {
			if len(row.Body) < 2048 && row.Want.Throttled {
				f.Add(row.Body, "application/json", "attachment", pick)
				pick++
			}
		}
	}
	f.Add(ban("5"), "text/html", "inline; filename=a.html", pick)
	detectors := map[string]httplimit.Detector{"GitHub": GitHubDetector(), "HTTP": httplimit.HTTPDetector()}
	for _, d := range bodyDetectors {
		detectors[d.name] = d.detect
	}
	requests := map[string]*http.Request{}
	paths := []string{"/media/downloadFile", "/v1.0/robot/messageFiles/download", "/open-apis/drive/v1/files/f/download", "/cgi-bin/media/get"}
	for _, path := range append(paths, "/") {
		requests[path] = httptest.NewRequest("GET", "http://x"+path, nil)
	}
	answer := func(status int, contentType, body, path string) *httplimit.Response {
		return &httplimit.Response{Status: status, Header: http.Header{"Content-Type": {contentType}}, Body: []byte(body), Complete: true, Now: arrival,
			Request: requests[path]}
	}
	statuses := []int{200, 400, 403, 429}
	frames := []string{ // %s is a JSON value
		`{"errcode":0,"errmsg":"ok","name":%s}`, `{"errcode":0,"result":{"list":[%s]}}`, `{"code":0,"data":%s}`, `{"name":%s}`, `[%s]`, `%s `,
		`{"errcode":90018,"name":%s}`, `{"errcode":88,"sub_code":"90019","result":[%s]}`, `{"errcode":90020,"name":%s}`, `{"errcode":45009,"name":%s}`,
		`{"errcode":410100,"name":%s}`, `{"code":99991400,"data":%s}`, `{"code":"Forbidden.AccessDenied.QpsLimitForApi","data":%s}`,
		`{"status":1111,"wait":5,"source":"x5","punish":"deny","uuid":"u","name":%s}`, `{"documentation_url":"https://docs.github.com/","name":%s}`,
	}
	type asked struct {
		name   string
		status int
		frame  string
		nested bool
	}
	wants := map[asked]httplimit.Verdict{} // of the same answers with a harmless text
	for name, d := range detectors {
		for _, status := range statuses {
			for _, frame := range frames {
				wants[asked{name, status, frame, false}] = d.Detect(answer(status, "application/json", fmt.Sprintf(frame, `"x"`), "/"))
				wants[asked{name, status, frame, true}] = d.Detect(answer(status, "application/json", fmt.Sprintf(frame, `["x"]`), "/"))
			}
		}
	}
	f.Fuzz(func(t *testing.T, text, contentType, disposition string, pick uint8) {
		if len(text) > 2048 {
			return
		}
		quoted := redistest.Must(json.Marshal(text))(t)
		values := []string{string(quoted), "[" + string(quoted) + "]", `{"text":` + string(quoted) + `}`}
		if json.Valid([]byte(text)) {
			values = append(values, "["+text+"]", `{"text":`+text+`}`)
		}
		for name, d := range detectors {
			status, frame := statuses[pick%4], frames[int(pick/4)%len(frames)]
			for j, value := range values {
				if frame == "%s " && j > 1 {
					continue // it is the outermost object itself
				}
				got := d.Detect(answer(status, "application/json", fmt.Sprintf(frame, value), "/"))
				require.Equal(t, wants[asked{name, status, frame, j > 0}], got, "%s, status %d, %s", name, status, value)
			}
			for _, page := range []string{page(html.EscapeString(text)), "<html><body>" + html.EscapeString(text) + "</body></html>"} {
				for _, status := range []int{200, 403} {
					require.False(t, d.Detect(answer(status, "text/html", page, "/")).Throttled, name)
				}
			}
			for _, status := range []int{200, 203, 206} {
				r := answer(status, contentType, text, "/")
				r.Header["Content-Disposition"] = []string{disposition}
				require.False(t, d.Detect(r).Throttled, name)
				r = answer(status, contentType, text, "/")
				r.Header["Content-Range"] = []string{disposition}
				require.False(t, d.Detect(r).Throttled, name)
			}
			for _, path := range paths {
				v := d.Detect(answer(200, contentType, text, path))
				if v.Throttled {
					require.Contains(t, []string{"wecom", "wechat"}, name)
					require.Len(t, slowObject([]byte(text)), 2)
					require.LessOrEqual(t, v.Until.Sub(arrival), time.Minute)
				}
			}
		}
	})
}
