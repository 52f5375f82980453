// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/internal/envelope"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// bodyDetectors are those that decide by the body.
var bodyDetectors = []struct {
	name   string
	detect httplimit.Detector
	rows   []detection
	most   time.Duration // of what is no quota of a month
}{
	{"old", DingTalkOldDetector(), dingTalkOldRows, 10 * time.Minute},
	{"new", DingTalkNewDetector(), dingTalkNewRows, 10 * time.Minute},
	{"robot", DingTalkRobotDetector(), dingTalkRobotRows, 10 * time.Minute},
	{"ban", DingTalkBanDetector(), dingTalkBanRows, 10 * time.Minute},
	{"wecom", WeComDetector(), weComRows, time.Minute},
	{"wechat", WeChatDetector(), weChatRows, 24 * time.Hour},
	{"feishu", FeishuDetector(), feishuRows, 2 * time.Minute},
}

// plainObject reads a whole body as one object, with encoding/json alone, and counts its keys.
func plainObject(body []byte) (o map[string]any, keys int) {
	reader := func() *json.Decoder {
		d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(body, []byte("\ufeff"))))
		d.UseNumber()
		return d
	}
	d := reader()
	var v any
	if d.Decode(&v) != nil || !errors.Is(d.Decode(new(any)), io.EOF) {
		return nil, 0
	}
	o, _ = v.(map[string]any)
	d = reader()
	for _, _ = d.Token(); o != nil && d.More(); keys++ {
		_, _ = d.Token()
		_ = d.Decode(new(json.RawMessage))
	}
	return o, keys
}

// requireRead holds what the detectors know of a body to the plain reading of it.
func requireRead(t *testing.T, body []byte, plain map[string]any, keys int) {
	o := envelope.ParseObject(body, true)
	require.Equal(t, len(plain), o.Len())
	flat := keys > 0 && keys == len(plain)
	for key, v := range plain {
		text, isText := v.(string)
		number, isNumber := v.(json.Number)
		_, isBool := v.(bool)
		require.Equal(t, []string{text, number.String()}, []string{o.Str(key), o.Number(key)}, key)
		flat = flat && (isText || isNumber || isBool)
	}
	require.Equal(t, flat, o.Only(slices.Collect(maps.Keys(plain))...))
}

// plainPage is a page whose body element has the first group in it.
var plainPage = regexp.MustCompile(`(?is)^.*?<body(?:[ \t\r\n][^>]*)?>(.*)</body>[ \t\r\n]*(?:</html>)?[ \t\r\n]*$`)

// FuzzBodies: an object is what encoding/json reads. Of a cut body that says "throttled" the whole one
// says the same; a page says what the object in it says; an instant is within its
// bounds; nothing behind the body counts and the body is left as it was. The rows have what the codes mean.
func FuzzBodies(f *testing.F) {
	for _, d := range bodyDetectors {
		for _, row := range d.rows {
			if len(row.Body) < 4096 {
				f.Add(row.Response().Status, []byte(row.Body), uint16(len(row.Body)/2))
			}
		}
	}
	f.Fuzz(func(t *testing.T, status int, body []byte, at uint16) {
		plain, keys := plainObject(body)
		requireRead(t, body, plain, keys)
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
					m := plainPage.FindSubmatch(body)
					require.NotNil(t, m)
					header.Set("Content-Type", "application/json")
					inside := d.detect.Detect(&httplimit.Response{Status: status, Header: header, Body: m[1], Complete: true, Now: arrival})
					inside.Until, inside.Asked = time.Time{}, time.Time{}
					require.Equal(t, inside, got)
				}
				require.False(t, prefix.Throttled)
				continue
			}
			require.True(t, !got.Throttled || plain != nil, d.name)
			if prefix.Throttled && plain != nil && keys == len(plain) {
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
					o, _ := plainObject([]byte(text))
					require.Len(t, o, 2)
					require.LessOrEqual(t, v.Until.Sub(arrival), time.Minute)
				}
			}
		}
	})
}
