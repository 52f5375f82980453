package httplimit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// bodyDetectors are those that decide by the body, with what a slow reading of the same body says.
var bodyDetectors = []struct {
	name   string
	detect Detector
	slow   func(status int, o map[string]any) Verdict
	rows   []detection
}{
	{"old", DingTalkOldDetector(), slowOld, dingTalkOldRows},
	{"new", DingTalkNewDetector(), slowNew, dingTalkNewRows},
	{"robot", DingTalkRobotDetector(), slowRobot, dingTalkRobotRows},
	{"ban", DingTalkBanDetector(), slowBan, dingTalkBanRows},
	{"wecom", WeComDetector(), slowWeCom, weComRows},
	{"wechat", WeChatDetector(), slowWeChat, weChatRows},
	{"feishu", FeishuDetector(), slowFeishu, feishuRows},
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

var slowScopes = map[Scope]string{
	ScopeAppAPI:  "90018 90006 90010 90012 Forbidden.AccessDenied.QpsLimitForAppkeyAndApi Forbidden.AccessDenied.QpmLimitForAppkeyAndApi",
	ScopeCorpAPI: "90019 90005 90008 90014 Forbidden.AccessDenied.QpsLimitForSuitekeyAndOrgAndApi Forbidden.AccessDenied.QpmLimitForSuitekeyAndOrgAndApi",
	ScopeAPI:     "90002 Forbidden.AccessDenied.QpsLimitForApi",
	ScopeMonth:   "90020 Forbidden.AccessDenied.ApiCountLimitForOrg",
	ScopeIP:      "90001",
	"":           "90003 90004 90007 90009 90011 90013",
}

func slowCode(code string) Verdict {
	for scope, codes := range slowScopes {
		for _, known := range strings.Fields(codes) {
			if code == known {
				return throttled(scope, code)
			}
		}
	}
	return Verdict{}
}

func slowOld(_ int, o map[string]any) Verdict {
	code := written(o["errcode"])
	if code == "88" {
		code = written(o["sub_code"])
	}
	if !strings.HasPrefix(code, "90") {
		return Verdict{}
	}
	return slowCode(code)
}

func slowNew(status int, o map[string]any) Verdict {
	code, _ := o["code"].(string)
	if status != 403 || !strings.HasPrefix(code, "F") {
		return Verdict{}
	}
	return slowCode(code)
}

func slowRobot(_ int, o map[string]any) Verdict {
	if code := written(o["errcode"]); code == "410100" || code == "130101" || code == "660026" {
		return banned(ScopeRobot, code)
	}
	return Verdict{}
}

func slowBan(_ int, o map[string]any) Verdict {
	if written(o["status"]) == "1111" && o["punish"] == "deny" {
		return banned(ScopeIP, "status 1111, punish deny")
	}
	return Verdict{}
}

func slowWeCom(_ int, o map[string]any) Verdict {
	switch written(o["errcode"]) {
	case "45009":
		return throttled(ScopeCorpAPI, "45009")
	case "45033":
		return throttled(ScopeConcurrency, "45033")
	}
	return Verdict{}
}

func slowWeChat(_ int, o map[string]any) Verdict {
	switch written(o["errcode"]) {
	case "45009":
		return throttled(ScopeDay, "45009")
	case "45011":
		return throttled(ScopeAppAPI, "45011")
	}
	return Verdict{}
}

func slowFeishu(_ int, o map[string]any) Verdict {
	switch written(o["code"]) {
	case "99991400":
		return throttled(ScopeAppAPI, "99991400")
	case "11232":
		return throttled(ScopeRobot, "11232")
	}
	return Verdict{}
}

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
			if len(row.body) < 4096 {
				f.Add(row.response().Status, []byte(row.body), uint16(len(row.body)/2))
			}
		}
	}
	f.Fuzz(func(t *testing.T, status int, body []byte, at uint16) {
		whole := slowObject(body)
		page := bytes.HasPrefix(bytes.TrimLeft(bytes.TrimPrefix(body, []byte("\ufeff")), " \t\r\n"), []byte("<"))
		cut := body[:min(int(at), len(body))]
		for _, d := range bodyDetectors {
			got := detectBounded(t, d.detect, &Response{Status: status, Body: body, Complete: true})
			prefix := detectBounded(t, d.detect, &Response{Status: status, Body: cut})
			if d.name == "ban" && page {
				text := html.UnescapeString(string(body))
				require.True(t, !got.Throttled || strings.Contains(text, "deny"))
				continue
			}
			got.Until = time.Time{}
			require.Equal(t, d.slow(status, whole), got, "%s", d.name)
			if prefix.Throttled && whole != nil && keysOnce(body, whole) {
				prefix.Until = time.Time{}
				require.Equal(t, got, prefix, "%s of %q", d.name, cut)
			}
		}
	})
}

// detectBounded asks a detector about a response whose body is followed, in memory, by what would decide
// otherwise.
func detectBounded(t *testing.T, d Detector, r *Response) Verdict {
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
	again := *r
	again.Body, again.object = clean[:len(clean):len(clean)], nil
	require.Equal(t, v, d.Detect(&again))
	if !v.Throttled {
		require.Equal(t, Verdict{}, v)
		return v
	}
	require.NotEmpty(t, v.Reason)
	if !v.Until.IsZero() {
		longest := MaxPenalty
		if v.Scope == ScopeMonth {
			longest = 31 * 24 * time.Hour
		}
		require.False(t, v.Until.Before(arrival), "%v", v.Until)
		require.LessOrEqual(t, v.Until.Sub(arrival), longest)
	}
	return v
}

// FuzzHeaders: no header makes a detector panic or wait out of bounds, success is never throttled by one,
// and a RateLimit field that was built here is read as it was built.
func FuzzHeaders(f *testing.F) {
	for _, row := range append(gitHubRows, httpRows...) {
		h := row.response().Header
		f.Add(row.response().Status, h.Get("Date"), h.Get("Retry-After"), h.Get("Ratelimit"), h.Get("Ratelimit-Policy"), h.Get("X-Ratelimit-Remaining"), h.Get("X-Ratelimit-Reset"), "default", int64(0), int64(30))
	}
	f.Fuzz(func(t *testing.T, status int, date, after, limit, policy, remaining, reset, name string, r, wait int64) {
		h := http.Header{}
		for k, v := range map[string]string{"Date": date, "Retry-After": after, "Ratelimit": limit, "Ratelimit-Policy": policy,
			"X-Ratelimit-Remaining": remaining, "X-Ratelimit-Reset": reset, "X-Ogw-Ratelimit-Reset": reset} {
			h[k] = []string{v}
		}
		for _, d := range []Detector{HTTPDetector(), GitHubDetector(), FeishuDetector()} {
			v := detectBounded(t, d, &Response{Status: status, Header: h, Body: []byte(`{"code":99991400}`)})
			if status == 429 {
				require.True(t, v.Throttled)
			}
		}
		for _, d := range []Detector{HTTPDetector(), GitHubDetector()} {
			if status < 300 {
				require.Equal(t, Verdict{}, d.Detect(&Response{Status: status, Header: h, Now: arrival}))
			}
		}

		const digits15 = 1_000_000_000_000_000
		r, wait = r%digits15, wait%digits15
		field := fmt.Sprintf(`%s;r=%d;t=%d`, quoteField(name), r, wait)
		items, ok := parseItems([]string{field, `"other"`})
		require.True(t, ok, "%s", field)
		require.Equal(t, []fieldItem{
			{asciiOf(name), map[string]int64{"r": r, "t": wait}}, {"other", map[string]int64{}},
		}, items)
		v := HTTPDetector().Detect(&Response{Status: 503, Now: arrival, Header: http.Header{"Ratelimit": {field}}})
		require.Equal(t, r == 0 && wait >= 0, v.Throttled, "%s", field)
		if v.Throttled {
			require.Equal(t, min(float64(wait), MaxPenalty.Seconds()), v.Until.Sub(arrival).Seconds())
		}
	})
}

func asciiOf(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return -1
		}
		return c
	}, s)
}

func quoteField(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(asciiOf(s)) + `"`
}
