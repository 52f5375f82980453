// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/internal/detecttest"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
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
	packed bool          // sent with gzip
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
			{name: "a ban in a packed attachment", url: dingFile, header: attachment, body: fullBan, packed: true},
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

// A stage is a server that answers what it is told to, under every host's name. Its connections are pipes, so that it may be in
// a bubble.
type stage struct {
	pipes  chan net.Conn
	client *ratelimiter.Client
	key    string

	mu     sync.Mutex
	answer http.HandlerFunc
	events []httplimit.Event
}

func newStage(t *testing.T, rdb *redis.Client) *stage {
	s := &stage{pipes: make(chan net.Conn), client: clienttest.InBubble(t, rdb), key: redistest.Key(t)}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		answer := s.answer
		s.mu.Unlock()
		answer(w, r)
	})}
	go func() { _ = server.Serve(s) }()
	t.Cleanup(func() { _ = server.Close() })
	return s
}

// onStage runs f on a stage in virtual time: a machine that stalls would otherwise make an outage of Redis.
func onStage(t *testing.T, name string, f func(t *testing.T, s *stage)) {
	t.Run(name, func(t *testing.T) {
		redistest.Run(t, func(t *testing.T, rdb *redis.Client) { f(t, newStage(t, rdb)) })
	})
}

// Accept, Close and Addr make the stage the Listener of its server.
func (s *stage) Accept() (net.Conn, error) {
	if c, ok := <-s.pipes; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (s *stage) Close() error { close(s.pipes); return nil }

func (s *stage) Addr() net.Addr { return &net.TCPAddr{} }

func (s *stage) tell(answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer, s.events = answer, nil
}

func (s *stage) transport(t *testing.T, opts ...httplimit.Option) *httplimit.Transport {
	base := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		s.pipes <- far
		return near, nil
	}}
	t.Cleanup(base.CloseIdleConnections)
	tr, err := httplimit.New(s.client, append([]httplimit.Option{httplimit.WithBase(base), httplimit.WithMaxWait(0), httplimit.WithPeek(httplimit.MaxPeek, 10*time.Second), httplimit.WithEvents(func(e httplimit.Event) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.events = append(s.events, e)
	})}, opts...)...)
	require.NoError(t, err)
	return tr
}

// told is the events of a kind since the last tell.
func (s *stage) told(kind httplimit.EventKind) (list []httplimit.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.Kind == kind {
			list = append(list, e)
		}
	}
	return list
}

// longest is how long the limiters of a request that is under the rules are cooled down, the longest of them.
func (s *stage) longest(t *testing.T, rules []httplimit.Rule, url string) (wait time.Duration) {
	t.Helper()
	spent := names(t, profiled(t, rules), "GET", url)
	require.NotEmpty(t, spent)
	for name := range spent {
		until, err := s.client.RateLimiter(name).CoolDownUntil(t.Context())
		if errors.Is(err, ratelimiter.ErrNotInitialized) {
			continue
		}
		require.NoError(t, err)
		if !until.IsZero() {
			wait = max(wait, time.Until(until))
		}
	}
	return wait
}

func (h hostile) serve(w http.ResponseWriter, _ *http.Request) {
	for _, line := range detecttest.HeaderLines(h.header) {
		w.Header().Add(line[0], line[1])
	}
	body := []byte(h.body)
	if h.packed {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(body)
		_ = z.Close()
		w.Header().Set("Content-Encoding", "gzip")
		body = b.Bytes()
	}
	w.WriteHeader(cmp.Or(h.status, http.StatusOK))
	_, _ = w.Write(body)
}

// someScopes is limits of the stage's own, with and without the scope of a verdict.
func (s *stage) someScopes(name string) (list []httplimit.Limit) {
	for _, scope := range []httplimit.Scope{ScopeAppAPI, ScopeIP, ScopeRobot} {
		list = append(list, httplimit.Limit{Name: "{{" + name + "}}:" + string(scope), Scope: scope, Rate: ratelimiter.Rate{Permits: 99, Interval: time.Second}})
	}
	return list
}

// What users of a platform, or third parties, make it answer cools nothing down, or for no longer than
// the platform documents: with the profile and with the detectors alone, from a real server.
func TestHostileAnswers(t *testing.T) {
	for platform, p := range hostilePlatforms {
		for _, row := range p.rows {
			for _, with := range []string{"profile", "detectors"} {
				if with == "profile" && p.profile == nil {
					continue
				}
				onStage(t, platform+"/"+row.name+"/"+with, func(t *testing.T, s *stage) {
					key := s.key
					opts := []httplimit.Option{httplimit.WithDetectors(p.detectors...)}
					target := row.url
					if target == feishuBot {
						target += key // its limiter has the name of its token
					}
					u := redistest.Must(url.Parse(target))(t)
					rules := []httplimit.Rule{{Match: httplimit.Match{Hosts: []string{u.Host}}, Limits: s.someScopes(key)}}
					if with == "profile" {
						rules, opts = p.profile(key).Rules, nil
					}
					tr := s.transport(t, append(opts, httplimit.WithRules(rules...))...)
					s.tell(row.serve)
					before := time.Now()
					resp := redistest.Must(tr.RoundTrip(request(t, "GET", target, nil)))(t)
					readAll(t, resp)
					wait := s.longest(t, rules, target)
					if row.most == 0 {
						require.Empty(t, s.told(httplimit.EventThrottled))
						require.Zero(t, wait, "cooled down")
						return
					}
					require.NotEmpty(t, s.told(httplimit.EventThrottled))
					require.Positive(t, wait)
					require.LessOrEqual(t, wait, row.most)
					for _, e := range s.told(httplimit.EventCoolDown) {
						require.LessOrEqual(t, e.Until.Sub(before), row.most)
					}
				})
			}
		}
	}
}

// One receiver of webhooks cannot stop a limiter that it shares with others.
func TestOneHostsRetryAfter(t *testing.T) {
	for name, rule := range map[string]httplimit.Rule{
		"any host":        {},
		"several hosts":   {Match: httplimit.Match{Hosts: []string{"a.example.com", "b.example.com"}}},
		"a wildcard":      {Match: httplimit.Match{Hosts: []string{"*.example.com"}}},
		"several by path": {Match: httplimit.Match{Patterns: []string{"a.example.com/", "b.example.com/"}}},
		"a path":          {Match: httplimit.Match{Patterns: []string{"/hook"}}},
	} {
		onStage(t, name, func(t *testing.T, s *stage) {
			rule.Limits = []httplimit.Limit{{Name: s.key, Rate: ratelimiter.Rate{Permits: 99, Interval: time.Second}}}
			tr := s.transport(t, httplimit.WithRules(rule), httplimit.WithDetectors(httplimit.HTTPDetector()))
			s.tell(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "99999999")
				w.WriteHeader(429)
			})
			get(t, tr, "http://a.example.com/hook")
			s.tell(func(http.ResponseWriter, *http.Request) {})
			resp, err := tr.RoundTrip(request(t, "GET", "http://b.example.com/hook", nil))
			require.NoError(t, err, "the other host's requests go on")
			require.NoError(t, resp.Body.Close())
			require.Zero(t, s.longest(t, []httplimit.Rule{rule}, "http://b.example.com/hook"))
		})
	}
}

// What an object storage answers, to which a platform redirects a download, is not the platform's word.
func TestRedirectToAStorage(t *testing.T) {
	for name, rule := range map[string]httplimit.Rule{
		"the platform's host": {Match: httplimit.Match{Hosts: []string{"platform.example.com"}}},
		"any host":            {},
	} {
		onStage(t, name, func(t *testing.T, s *stage) {
			rule.Limits = []httplimit.Limit{{Name: s.key, Rate: ratelimiter.Rate{Permits: 99, Interval: time.Second}}}
			tr := s.transport(t, httplimit.WithRules(rule), httplimit.WithDetectors(httplimit.HTTPDetector(), DingTalkBanDetector()))
			s.tell(func(w http.ResponseWriter, r *http.Request) {
				if r.Host == "platform.example.com" {
					http.Redirect(w, r, "http://storage.example.com/f", http.StatusFound)
					return
				}
				w.Header().Set("Retry-After", "99999999")
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(503)
				_, _ = io.WriteString(w, ban("5"))
			})
			resp := redistest.Must((&http.Client{Transport: tr}).Get("http://platform.example.com/f"))(t)
			require.Equal(t, 503, resp.StatusCode)
			readAll(t, resp)
			require.Zero(t, s.longest(t, []httplimit.Rule{rule}, "http://platform.example.com/f"))
			s.tell(func(http.ResponseWriter, *http.Request) {})
			get(t, tr, "http://platform.example.com/f")
		})
	}
}
