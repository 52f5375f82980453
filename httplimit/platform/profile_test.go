// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A platform is a base that notes when requests arrive, and answers what it is told to.
type platform struct {
	w       *world
	sent    atomic.Int64
	mu      sync.Mutex
	arrived []time.Duration
	answer  func(*http.Request) *http.Response // nil: 200
	delay   func(n int) time.Duration          // of the nth request on its way
}

func (p *platform) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.delay != nil {
		time.Sleep(p.delay(int(p.sent.Add(1)) - 1))
	}
	p.mu.Lock()
	p.arrived = append(p.arrived, p.w.elapsed())
	p.mu.Unlock()
	if p.answer != nil {
		if resp := p.answer(r); resp != nil {
			return resp, nil
		}
	}
	return respond(200, "application/json", `{"errcode":0,"errmsg":"ok"}`), nil
}

// worst is the most requests that arrived in any window.
func (p *platform) worst(window time.Duration) int {
	at := slices.Sorted(slices.Values(p.arrived))
	worst := 0
	for i := range at {
		end, _ := slices.BinarySearchFunc(at, at[i]+window, cmp.Compare[time.Duration])
		worst = max(worst, end-i)
	}
	return worst
}

// A spender is a Transport with one limit of a rule, to see what a request spends of it: nothing is sent, and
// the error of a request that has ended before it began names the limiter.
type spender struct {
	transport *httplimit.Transport
	permits   int64 // of the request that was seen last
}

// profiled returns a spender for each limit of the rules, all of which a Transport takes.
func profiled(t *testing.T, rules []httplimit.Rule) (list []*spender) {
	t.Helper()
	redistest.Must(httplimit.New(clienttest.Unused(t), httplimit.WithRules(rules...)))(t)
	for _, r := range rules {
		for _, l := range r.Limits {
			s := &spender{}
			permits := l.WeightFunc
			if permits == nil {
				weight := max(l.Weight, 1)
				permits = func(*http.Request) int64 { return weight }
			}
			l.Weight, l.WeightFunc = 0, func(r *http.Request) int64 { s.permits = permits(r); return s.permits }
			one := r
			one.Limits, one.Detectors = []httplimit.Limit{l}, nil
			s.transport = redistest.Must(httplimit.New(clienttest.Unused(t), httplimit.WithBase(base(ok)), httplimit.WithRules(one)))(t)
			list = append(list, s)
		}
	}
	return list
}

// names are the limiters that a request spends, and how many permits of each.
func names(t *testing.T, spenders []*spender, method, url string) map[string]int64 {
	t.Helper()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	list := map[string]int64{}
	for _, s := range spenders {
		resp, err := s.transport.RoundTrip(request(t, method, url, nil).WithContext(ended))
		if err == nil { // the rule is not for this request
			require.NoError(t, resp.Body.Close())
			continue
		}
		var refused *httplimit.Error
		require.ErrorAs(t, err, &refused)
		require.Equal(t, httplimit.ReasonContext, refused.Reason, "%v", err)
		if refused.Limiter != "" {
			list[refused.Limiter] += s.permits
		}
	}
	return list
}

func TestProfilesLimiters(t *testing.T) {
	corp := WithCorp(func(r *http.Request) string { return r.Header.Get("Corp") + "corp 1" })
	token := httplimit.Hash("T")
	for _, c := range []struct {
		name    string
		profile httplimit.Profile
		method  string
		url     string
		want    map[string]int64
	}{
		{"old API", DingTalk("ding1"), "POST", "https://oapi.dingtalk.com/topapi/v2/user/get?access_token=T",
			map[string]int64{"{dingtalk}:app-api:ding1:/topapi/v2/user/get:1s": 1, "{dingtalk}:ip:default:20s": 1}},
		{"new API", DingTalk("ding1", WithEgress("nat a")), "GET", "https://api.dingtalk.com/v1.0/contact/users/zhangsan",
			map[string]int64{"{dingtalk}:app-api:ding1:GET:/v1.0/contact/users/*:1s": 1, "{dingtalk}:ip:nat%20a:20s": 1}},
		{"deeper", DingTalk("ding1"), "PUT", "https://api.dingtalk.com/v1.0/todo/users/u1/tasks/t1/",
			map[string]int64{"{dingtalk}:app-api:ding1:PUT:/v1.0/todo/users/*/*/*:1s": 1, "{dingtalk}:ip:default:20s": 1}},
		{"deep beyond measure", DingTalk("ding1"), "PUT", "https://api.dingtalk.com/v1.0/a/b" + strings.Repeat("/c", 1000),
			map[string]int64{"{dingtalk}:app-api:ding1:PUT:/v1.0/a/b/*/*/*/*/*/*/*/*:1s": 1, "{dingtalk}:ip:default:20s": 1}},
		{"a long path", DingTalk("ding1"), "PUT", "https://oapi.dingtalk.com/" + strings.Repeat("c", 1000),
			map[string]int64{"{dingtalk}:app-api:ding1:" + httplimit.Hash("/"+strings.Repeat("c", 1000)) + ":1s": 1, "{dingtalk}:ip:default:20s": 1}},
		{"short", DingTalk("ding1"), "GET", "https://api.dingtalk.com/v1.0",
			map[string]int64{"{dingtalk}:app-api:ding1:GET:/v1.0:1s": 1, "{dingtalk}:ip:default:20s": 1}},
		{"oauth2's organisation", DingTalk("ding1"), "POST", "https://api.dingtalk.com/v1.0/oauth2/corp1/token",
			map[string]int64{"{dingtalk}:app-api:ding1:POST:/v1.0/oauth2/*/*:1s": 1, "{dingtalk}:ip:default:20s": 1}},
		{"an API of its own", DingTalk("ding1", WithAPI("GET api.dingtalk.com/v1.0/contact/users/{id}", 60, time.Second)), "GET", "https://api.dingtalk.com/v1.0/contact/users/zhangsan",
			map[string]int64{"{dingtalk}:app-api:ding1:GET:api.dingtalk.com/v1.0/contact/users/<id>:1s": 1, "{dingtalk}:ip:default:20s": 1}},
		{"beside an API of its own", DingTalk("ding1", WithAPI("GET api.dingtalk.com/v1.0/contact/users/{id}", 60, time.Second)), "POST", "https://api.dingtalk.com/v1.0/contact/users/zhangsan",
			map[string]int64{"{dingtalk}:app-api:ding1:POST:/v1.0/contact/users/*:1s": 1, "{dingtalk}:ip:default:20s": 1}},
		{"a third party's", DingTalk("suite1", corp), "POST", "https://oapi.dingtalk.com/topapi/v2/user/get",
			map[string]int64{"{dingtalk}:corp-api:suite1:corp%201:/topapi/v2/user/get:1s": 1, "{dingtalk}:ip:default:20s": 1}},
		{"a robot", DingTalk("ding1"), "POST", "https://oapi.dingtalk.com/robot/send?access_token=T&timestamp=1&sign=x",
			map[string]int64{"{dingtalk}:robot:" + token + ":1m": 1, "{dingtalk}:ip:default:20s": 1}},
		{"a robot's reply", DingTalk("ding1"), "POST", "https://oapi.dingtalk.com/robot/sendBySession?session=T",
			map[string]int64{"{dingtalk}:robot:" + token + ":1m": 1, "{dingtalk}:ip:default:20s": 1}},
		{"a model", OpenAI("acme"), "POST", "https://api.openai.com/v1/chat/completions", map[string]int64{"{openai}:account:acme:1m": 1}},
		{"another's", Anthropic("acme"), "POST", "https://api.anthropic.com/v1/messages", map[string]int64{"{anthropic}:account:acme:1m": 1}},
		{"a third's", DashScope("acme"), "POST", "https://dashscope-intl.aliyuncs.com/api/v1/services/x", map[string]int64{"{dashscope}:account:acme:1m": 1}},
		{"a robot alone", DingTalkRobot(), "POST", "https://oapi.dingtalk.com/robot/send?access_token=T",
			map[string]int64{"{dingtalk}:robot:" + token + ":1m": 1, "{dingtalk}:ip:default:20s": 1}},
		{"not a robot's message", DingTalkRobot(), "POST", "https://oapi.dingtalk.com/topapi/v2/user/get", map[string]int64{}},
		{"another host", DingTalk("ding1"), "GET", "https://example.com/v1.0/contact/users/me", map[string]int64{}},
		{"a gateway", DingTalk("ding1", WithHosts("gw.example.com")), "GET", "https://gw.example.com:8443/robot/send?access_token=T",
			map[string]int64{"{dingtalk}:robot:" + token + ":1m": 1, "{dingtalk}:ip:default:20s": 1}},
		{"the month", DingTalk("ding1", WithMonthlyQuota(nowhere, "org", 5000, httplimit.Match{Methods: []string{"POST"}})), "POST", "https://oapi.dingtalk.com/x",
			map[string]int64{"{dingtalk}:month:org:1s": 1, "{dingtalk}:app-api:ding1:/x:1s": 1, "{dingtalk}:ip:default:20s": 1}},
		{"not metered", DingTalk("ding1", WithMonthlyQuota(nowhere, "org", 5000, httplimit.Match{Methods: []string{"POST"}})), "GET", "https://oapi.dingtalk.com/x",
			map[string]int64{"{dingtalk}:app-api:ding1:/x:1s": 1, "{dingtalk}:ip:default:20s": 1}},
		{"a limit less", DingTalk("ding1", WithRate(ScopeIP, 0, 20*time.Second)), "GET", "https://oapi.dingtalk.com/x",
			map[string]int64{"{dingtalk}:app-api:ding1:/x:1s": 1}},
		{"a limit more", DingTalk("ding1", WithRate(ScopeAppAPI, 600, time.Minute), WithRate(ScopeIP, 0, 20*time.Second)), "GET", "https://oapi.dingtalk.com/x",
			map[string]int64{"{dingtalk}:app-api:ding1:/x:1s": 1, "{dingtalk}:app-api:ding1:/x:1m": 1}},
		{"WeCom", WeCom("ww1"), "GET", "https://qyapi.weixin.qq.com/cgi-bin/user/get?access_token=T&userid=u",
			map[string]int64{"{wecom}:corp-api:ww1:/cgi-bin/user/get:1m": 1, "{wecom}:corp-api:ww1:/cgi-bin/user/get:1h": 1}},
		{"a group robot", WeCom("ww1"), "POST", "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=T",
			map[string]int64{"{wecom}:robot:" + token + ":1m": 1}},
		{"Feishu", Feishu("cli_1"), "GET", "https://open.feishu.cn/open-apis/im/v1/messages/om_1/reactions",
			map[string]int64{"{feishu}:app-api:cli_1:GET:/open-apis/im/v1/messages/*/*:1s": 1, "{feishu}:app-api:cli_1:GET:/open-apis/im/v1/messages/*/*:1m": 1}},
		{"Lark, a tenant's", Feishu("cli_1", corp), "GET", "https://open.larksuite.com/open-apis/contact/v3/users/u",
			map[string]int64{"{feishu}:app-api:cli_1:corp%201:GET:/open-apis/contact/v3/users/*:1s": 1, "{feishu}:app-api:cli_1:corp%201:GET:/open-apis/contact/v3/users/*:1m": 1}},
		{"a custom bot", Feishu("cli_1"), "POST", "https://open.feishu.cn/open-apis/bot/v2/hook/T",
			map[string]int64{"{feishu}:robot:" + token + ":1s": 1, "{feishu}:robot:" + token + ":1m": 1}},
		{"GitHub", GitHub("octocat"), "GET", "https://api.github.com/repos/o/r",
			map[string]int64{"{github}:account:octocat:1h": 1, "{github}:secondary:octocat:1m": 1}},
		{"a change", GitHub("octocat"), "PATCH", "https://api.github.com/repos/o/r",
			map[string]int64{"{github}:account:octocat:1h": 1, "{github}:secondary:octocat:1m": 5, "{github}:content:octocat:1m": 1, "{github}:content:octocat:1h": 1}},
		{"GraphQL", GitHub("octocat"), "POST", "https://api.github.com/graphql", map[string]int64{}},
		{"a search", GitHub("octocat", WithAPI("GET /search/{what}", 30, time.Minute)), "GET", "https://api.github.com/search/code?q=x",
			map[string]int64{"{github}:account:octocat:1h": 1, "{github}:secondary:octocat:1m": 1, "{github}:api:octocat:GET:/search/<what>:1m": 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, names(t, profiled(t, c.profile.Rules), c.method, c.url))
		})
	}
}

// TestProfilesRates: the margin, the gaps and the outage policies, as they are and as the options make them.
func TestProfilesRates(t *testing.T) {
	rates := func(p httplimit.Profile) map[string]string {
		list := map[string]string{}
		for _, r := range p.Rules {
			for _, l := range r.Limits {
				policy := "client's"
				if l.OutagePolicy != nil {
					policy = l.OutagePolicy.String()
				}
				list[string(l.Scope)+" "+l.Rate.String()] = policy + " " + l.Reopen.String()
			}
		}
		return list
	}
	require.Equal(t, map[string]string{
		"app-api OVERALL 20/1.05s gap 50ms": "closed 0s",
		"ip OVERALL 10000/21s":              "closed 20s",
		"robot OVERALL 20/1m1s":             "closed 1m0s",
	}, rates(DingTalk("a")))
	require.Equal(t, map[string]string{
		"ip OVERALL 10000/21s":  "closed 20s",
		"robot OVERALL 20/1m1s": "closed 1m0s",
	}, rates(DingTalkRobot()))
	require.Equal(t, map[string]string{
		"corp-api OVERALL 40/1.05s gap 25ms": "closed 0s",
		"ip OVERALL 10000/21s":               "closed 20s",
		"robot OVERALL 20/1m1s":              "closed 1m0s",
		"month OVERALL 10000/1.05s":          "closed 0s",
	}, rates(DingTalk("a", WithCorp(func(*http.Request) string { return "c" }), WithMonthlyQuota(nowhere, "o", 5000, httplimit.Match{}))))
	require.Equal(t, map[string]string{
		"app-api OVERALL 60/1.02s gap 16ms": "open 0s",
		"app-api OVERALL 5/10.02s gap 2s":   "open 0s",
		"ip OVERALL 10000/20.02s gap 1ms":   "open 20s",
		"robot OVERALL 10/1m0.02s gap 3s":   "open 1m0s",
		"month OVERALL 10000/1.02s":         "open 0s",
	}, rates(DingTalk("a", WithRate(ScopeAppAPI, 60, time.Second), WithMargin(20*time.Millisecond), WithMinGap(ScopeRobot, 3*time.Second),
		WithMinGap(ScopeIP, time.Millisecond), WithRate(ScopeRobot, 10, time.Minute), WithOutagePolicy(ratelimiter.FailOpen()),
		WithAPI("/x", 5, 10*time.Second), WithMonthlyQuota(nowhere, "o", 10_000, httplimit.Match{}))))
	require.Equal(t, map[string]string{
		"app-api OVERALL 20/1s": "local quota of OVERALL 20/1s among 4 0s",
		"ip OVERALL 10000/20s":  "local quota of OVERALL 10000/20s among 4 20s",
		"robot OVERALL 20/1m0s": "local quota of OVERALL 20/1m0s among 4 1m0s",
	}, rates(DingTalk("a", WithMargin(0), WithMinGap(ScopeAppAPI, 0), WithLocalQuota(4))))
	require.Equal(t, map[string]string{
		"corp-api OVERALL 10000/1m1s":    "closed 0s",
		"corp-api OVERALL 150000/1h0m1s": "closed 0s",
		"robot OVERALL 20/1m1s":          "closed 1m0s",
	}, rates(WeCom("a")))
	require.Equal(t, map[string]string{
		"app-api OVERALL 50/1.05s":  "client's 0s",
		"app-api OVERALL 1000/1m1s": "client's 0s",
		"robot OVERALL 5/1.05s":     "client's 0s",
		"robot OVERALL 100/1m1s":    "client's 0s",
	}, rates(Feishu("a")))
	require.Equal(t, map[string]string{
		"account OVERALL 5000/1h0m1s":    "client's 0s",
		"secondary OVERALL 900/1m1s":     "client's 0s",
		"content OVERALL 80/1m1s gap 1s": "client's 0s",
		"content OVERALL 500/1h0m1s":     "client's 0s",
	}, rates(GitHub("a")))
}

// TestProfilesFindBadOptions: what is out of its range is found by New, not by a request, and names the
// field.
func TestProfilesFindBadOptions(t *testing.T) {
	for _, c := range []struct {
		profile httplimit.Profile
		want    string
	}{
		{DingTalk(""), "limits[0].name: it is empty"},
		{WeCom(""), "limits[0].name: it is empty"},
		{Feishu(""), "limits[0].name: it is empty"},
		{GitHub(""), "limits[0].name: it is empty"},
		{DingTalk("a", WithEgress("")), "limits[0].name: it is empty"},
		{DingTalk("a", WithMonthlyQuota(nowhere, "", 5, httplimit.Match{})), "limits[0].name: it is empty"},
		{DingTalk("a", WithMonthlyQuota(nowhere, "o", 0, httplimit.Match{})), "limits[0].quota: ratelimiter: invalid argument: CalendarQuota.Permits: 0 is not in"},
		{DingTalk("a", WithMonthlyQuota(nil, "o", 5, httplimit.Match{})), "limits[0].quota: ratelimiter: invalid argument: the redis client"},
		{DingTalk("a", WithRate(ScopeAppAPI, -1, time.Second)), "permits: -1 is not in"},
		{DingTalk("a", WithRate(ScopeAppAPI, 5, 0)), "interval: 0s is shorter"},
		{DingTalk("a", WithMargin(-time.Second)), "interval: -1s is shorter"},
		{DingTalk("a", WithMargin(time.Microsecond)), "no whole number of milliseconds"},
		{DingTalk("a", WithMinGap(ScopeRobot, -1)), "min_gap: -1ns is negative"},
		{DingTalk("a", WithHosts("http://x/")), "hosts[0]"},
		{DingTalk("a", WithAPI("no path", 1, time.Second)), "patterns[0]"},
		{DingTalk("a", WithAPI("/x", 5, 0)), "interval: 0s is shorter"},
		{GitHub("a", WithAPI("/x", 0, time.Minute)), "permits: 0 is not in"},
	} {
		_, err := httplimit.New(clienttest.Unused(t), httplimit.WithProfile(c.profile))
		require.ErrorIs(t, err, httplimit.ErrInvalidRule, c.want)
		require.ErrorContains(t, err, c.want)
		var field *httplimit.FieldError
		require.True(t, errors.As(err, &field))
	}
}

// TestMarginHoldsAgainstDelays: four times as many requests as may go are there at once, and their delays on the way are the
// worst that differ by 49 ms or 500 ms. By default the platform sees no more than 20 in a second, at 95 % of the rate, where they
// differ by less than 50 ms, and a margin of Transport.Delays' Spread is enough for others.
func TestMarginHoldsAgainstDelays(t *testing.T) {
	for name, c := range map[string]struct {
		late  time.Duration
		opts  []Option
		worst int
		took  time.Duration
	}{
		"covered":     {49 * time.Millisecond, nil, 20, 3*1050*time.Millisecond + 19*50*time.Millisecond},
		"no margin":   {49 * time.Millisecond, []Option{WithMargin(0), WithMinGap(ScopeAppAPI, 0)}, 40, 3 * time.Second},
		"not covered": {500 * time.Millisecond, nil, 29, 3*1050*time.Millisecond + 19*50*time.Millisecond},
		"by Spread":   {500 * time.Millisecond, []Option{WithMargin(501 * time.Millisecond)}, 20, 3*1501*time.Millisecond + 19*50*time.Millisecond},
	} {
		inWorld(t, func(t *testing.T, w *world) {
			// The 20 of a second are late, the 20 of the next are not.
			p := &platform{w: w, delay: func(n int) time.Duration { return c.late * time.Duration(1-n/20%2) }}
			var left atomic.Int64 // when the last one did
			tr := w.transport(p, httplimit.WithProfile(DingTalk(w.key, append(c.opts, WithEgress(w.key))...)), httplimit.WithEvents(func(e httplimit.Event) {
				left.Store(int64(w.elapsed()))
			}))
			var all sync.WaitGroup
			for range 80 {
				all.Go(func() { get(t, tr, "https://oapi.dingtalk.com/user/get") })
			}
			all.Wait()
			require.Equal(t, c.worst, p.worst(time.Second), name)
			require.Equal(t, c.took, time.Duration(left.Load()), name)
			require.Equal(t, c.late, tr.Delays("oapi.dingtalk.com").Spread(), name)
		})
	}
}

// A send is a request of a step table, and how long it has to wait.
type send struct {
	url  string
	wait time.Duration
}

// penalty lets the platform throttle one request and sees how long others would have to wait. Nobody waits:
// a bubble takes a second's look at Redis for each second of the month.
func penalty(t *testing.T, profile func(key string) httplimit.Profile, first string, answer *http.Response, then ...send) {
	t.Helper()
	inWorld(t, func(t *testing.T, w *world) {
		p := &platform{w: w, answer: func(*http.Request) *http.Response { r := answer; answer = nil; return r }}
		tr := w.transport(p, httplimit.WithProfile(profile(w.key)), httplimit.WithMaxWait(0))
		get(t, tr, strings.ReplaceAll(first, "KEY", httplimit.Hash(w.key)))
		for _, s := range then {
			var wait time.Duration
			resp, err := tr.RoundTrip(request(t, "GET", strings.ReplaceAll(s.url, "KEY", httplimit.Hash(w.key)), nil))
			if err != nil {
				var refused *httplimit.Error
				require.ErrorAs(t, err, &refused)
				require.Equal(t, httplimit.ReasonCoolDown, refused.Reason)
				wait = refused.Wait
			} else {
				require.NoError(t, resp.Body.Close())
			}
			require.Equal(t, s.wait, wait, s.url)
		}
	})
}

func TestDingTalkPenalties(t *testing.T) {
	const (
		user    = "https://oapi.dingtalk.com/topapi/v2/user/get"
		dept    = "https://oapi.dingtalk.com/topapi/v2/department/get"
		robot   = "https://oapi.dingtalk.com/robot/send?access_token=KEY1"
		another = "https://oapi.dingtalk.com/robot/send?access_token=KEY2"
	)
	profile := func(opts ...Option) func(string) httplimit.Profile {
		return func(key string) httplimit.Profile {
			return DingTalk(key, append([]Option{WithEgress(key)}, opts...)...)
		}
	}
	counted := func(metered httplimit.Match) func(string) httplimit.Profile {
		return func(key string) httplimit.Profile {
			return profile(WithMonthlyQuota(inBubble, key, 5000, metered))(key)
		}
	}
	says := func(body string) *http.Response { return respond(200, "application/json", body) }
	// The bubble's clock starts at 2000-01-01 00:00 UTC, 08:00 in China.
	month := 31*24*time.Hour - 8*time.Hour

	penalty(t, profile(), user, says(`{"errcode":90018}`), send{dept, 0}, send{robot, 0}, send{user, time.Second})
	penalty(t, profile(), user, says(`{"errcode":90002}`), send{dept, 0}, send{user, time.Second})
	penalty(t, profile(), user, says(`{"errcode":90020}`), send{dept, 0}, send{user, month})
	penalty(t, profile(WithRate(ScopeAppAPI, 0, time.Second)), user, says(`{"errcode":90020}`), send{dept, time.Second})
	penalty(t, profile(), robot, says(`{"errcode":90020}`), send{user, 0}, send{another, 0}, send{robot, month})
	penalty(t, profile(), robot, says(`{"errcode":90018}`), send{another, 0}, send{robot, time.Second})
	penalty(t, profile(), robot, says(`{"errcode":130101}`), send{user, 0}, send{another, 0}, send{robot, 10 * time.Minute})
	penalty(t, profile(), robot, says(`{"status":1111,"wait":5,"source":"x5","punish":"deny","uuid":"u","errcode":130101}`), send{user, 0}, send{robot, 10 * time.Minute})
	penalty(t, profile(), user, says(ban("5")), send{another, 5 * time.Minute})
	penalty(t, profile(), robot, says(ban("5")), send{user, 5 * time.Minute})
	penalty(t, profile(WithPenalty(ScopeIP, 7*time.Second)), user, says(ban("5")), send{dept, 7 * time.Second})
	penalty(t, profile(WithPenalty(ScopeRobot, time.Hour)), robot, says(`{"errcode":410100,"errmsg":"x"}`), send{robot, time.Hour})
	penalty(t, profile(WithPenalty(ScopeRobot, time.Hour)), robot, says(`{"errcode":410100,"title":"x"}`), send{robot, time.Second})
	penalty(t, counted(httplimit.Match{}), user, says(`{"errcode":90020}`), send{dept, month})
	metered := httplimit.Match{Patterns: []string{"/topapi/v2/user/"}}
	penalty(t, counted(metered), user, says(`{"errcode":90020}`), send{dept, 0}, send{user, month})
	penalty(t, counted(metered), user, says(`{"errcode":90002}`), send{dept, 0}, send{user, time.Second})
	penalty(t, func(key string) httplimit.Profile { return DingTalkRobot(WithEgress(key)) }, robot, says(`{"errcode":410100}`),
		send{another, 0}, send{user, 0}, send{robot, 10 * time.Minute})
	corp := WithCorp(func(r *http.Request) string { return r.URL.Query().Get("corp") })
	penalty(t, profile(corp), user+"?corp=a", says(`{"errcode":90019}`), send{user + "?corp=b", 0}, send{user + "?corp=a", time.Second})

	forbidden := respond(403, "application/json", `{"code":"Forbidden.AccessDenied.QpsLimitForAppkeyAndApi"}`)
	penalty(t, profile(), "https://api.dingtalk.com/v1.0/contact/users/a", forbidden, send{user, 0}, send{"https://api.dingtalk.com/v1.0/contact/users/b", time.Second})
}

// TestEveryProfileObeysHTTP: a 429 with Retry-After, or a 503, cools the request's limiters down whatever the platform's
// own refusals look like, on each of the platform's hosts.
func TestEveryProfileObeysHTTP(t *testing.T) {
	for name, c := range map[string]struct {
		profile func(key string) httplimit.Profile
		urls    []string
	}{
		"dingtalk": {func(key string) httplimit.Profile { return DingTalk(key, WithEgress(key)) }, []string{
			"https://oapi.dingtalk.com/topapi/v2/user/get", "https://api.dingtalk.com/v1.0/contact/users/a",
			"https://oapi.dingtalk.io/topapi/v2/user/get", "https://api.dingtalk.io/v1.0/contact/users/a",
			"https://oapi.dingtalk.com/robot/send?access_token=KEY", "https://oapi.dingtalk.io/robot/send?access_token=KEY"}},
		"dingtalk, month": {func(key string) httplimit.Profile {
			return DingTalk(key, WithEgress(key), WithMonthlyQuota(inBubble, key, 5000, httplimit.Match{}))
		}, []string{"https://api.dingtalk.com/v1.0/contact/users/a"}},
		"dingtalk, no address": {func(key string) httplimit.Profile {
			return DingTalk(key, WithRate(ScopeIP, 0, 20*time.Second))
		}, []string{"https://api.dingtalk.com/v1.0/contact/users/a"}},
		"dingtalk robot": {func(key string) httplimit.Profile { return DingTalkRobot(WithEgress(key)) },
			[]string{"https://oapi.dingtalk.com/robot/send?access_token=KEY", "https://oapi.dingtalk.io/robot/send?access_token=KEY"}},
		"wecom": {func(key string) httplimit.Profile { return WeCom(key) },
			[]string{"https://qyapi.weixin.qq.com/cgi-bin/user/get", "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=KEY"}},
		"feishu": {func(key string) httplimit.Profile { return Feishu(key) },
			[]string{"https://open.feishu.cn/open-apis/im/v1/chats", "https://open.larksuite.com/open-apis/im/v1/chats"}},
		"github": {func(key string) httplimit.Profile { return GitHub(key) }, []string{"https://api.github.com/repos/o/r"}},
	} {
		for _, url := range c.urls {
			for _, status := range []int{429, 503} {
				refusal := respond(status, "text/html", "<html>busy</html>")
				refusal.Header.Set("Retry-After", "77")
				wait := 77 * time.Second
				t.Run(fmt.Sprint(name, " ", status, " ", url), func(t *testing.T) { penalty(t, c.profile, url, refusal, send{url, wait}) })
			}
		}
	}
}

func TestOtherPenalties(t *testing.T) {
	const (
		weCom  = "https://qyapi.weixin.qq.com/cgi-bin/user/get"
		feishu = "https://open.feishu.cn/open-apis/im/v1/chats"
		github = "https://api.github.com/repos/o/r"
	)
	says := func(status int, body string, header ...string) *http.Response {
		r := respond(status, "application/json", body)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		return r
	}
	wx := func(key string) httplimit.Profile { return WeCom(key) }
	penalty(t, wx, weCom, says(200, `{"errcode":45009}`), send{"https://qyapi.weixin.qq.com/cgi-bin/user/list", 0}, send{weCom, time.Minute})
	penalty(t, wx, weCom, says(200, `{"errcode":45033}`), send{weCom, time.Second})
	// Not a limiter that somebody else's rule adds.
	require.Equal(t, ScopeCorpAPI, httplimit.First(WeCom("a").Rules[0].Detectors...).Detect(detection{Body: `{"errcode":45033}`}.Response()).Scope)
	penalty(t, wx, "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=KEY", says(200, `{"errcode":45009}`), send{weCom, 0}, send{"https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=KEY", time.Minute})
	fs := func(key string) httplimit.Profile { return Feishu(key) }
	penalty(t, fs, feishu, says(429, `{"code":99991400}`, "x-ogw-ratelimit-reset", "52"), send{"https://open.feishu.cn/open-apis/im/v1/messages", 0}, send{feishu, 52 * time.Second})
	penalty(t, fs, feishu, says(429, ``, "Retry-After", "7"), send{feishu, 7 * time.Second})
	gh := func(key string) httplimit.Profile { return GitHub(key) }
	penalty(t, gh, github, says(403, `{}`, "x-ratelimit-remaining", "0", "x-ratelimit-reset", "946685400"), send{github + "/issues", 10 * time.Minute})
	penalty(t, gh, github, says(403, `{}`, "retry-after", "30"), send{github + "/issues", 30 * time.Second})
	penalty(t, gh, github, says(403, `{}`), send{github + "/issues", 0})
}

// TestRobotsMinute: twenty messages leave at once, the next one when a minute and the margin are over; another
// robot has its own; and no token gets into Redis.
func TestRobotsMinute(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := &platform{w: w}
		tr := w.transport(p, httplimit.WithProfile(DingTalkRobot(WithEgress(w.key))))
		a, b := "secret-a-"+httplimit.Hash(w.key), "secret-b-"+httplimit.Hash(w.key)
		for range 21 {
			get(t, tr, "https://oapi.dingtalk.com/robot/send?access_token="+a)
			if w.elapsed() == 0 {
				get(t, tr, "https://oapi.dingtalk.com/robot/send?access_token="+b)
			}
		}
		require.Equal(t, 61*time.Second, w.elapsed())
		require.Len(t, p.arrived, 41)
		keys := redistest.Must(w.rdb.Keys(t.Context(), "*").Result())(t)
		require.Contains(t, keys, "{dingtalk}:robot:"+httplimit.Hash(a)+":1m")
		for _, key := range keys {
			require.NotContains(t, key, "secret")
			require.NotContains(t, key, a)
		}
	})
}

// TestProfileIsClosedWithoutRedis: while Redis is unavailable nothing goes to a platform that bans, also where the
// Client's own policy lets everything pass.
func TestProfileIsClosedWithoutRedis(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.rdb.AddHook(redistest.Failing(func(redis.Cmder) error { return &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED} }))
		client := clienttest.New(t, w.rdb, ratelimiter.WithOutagePolicy(ratelimiter.FailOpen()))
		defer client.Close()
		p := &platform{w: w}
		tr := redistest.Must(httplimit.New(client, httplimit.WithBase(p), httplimit.WithProfile(DingTalk(w.key)), httplimit.WithMaxWait(0)))(t)
		for range 3 {
			_, err := tr.RoundTrip(request(t, "GET", "https://oapi.dingtalk.com/x", nil))
			require.ErrorIs(t, err, ratelimiter.ErrUnavailable)
		}
		require.Empty(t, p.arrived)
	})
}
