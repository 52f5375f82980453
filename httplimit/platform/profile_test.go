// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

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
		{"any host", DingTalk("ding1", WithHosts()), "GET", "https://x/v1.0/contact/users/me",
			map[string]int64{"{dingtalk}:app-api:ding1:GET:/v1.0/contact/users/*:1s": 1, "{dingtalk}:ip:default:20s": 1}},
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
		"app-api OVERALL 5/10.02s":          "open 0s",
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
		{DingTalk(""), "dingtalk: the appKey is empty"},
		{WeCom(""), "wecom: the corpID is empty"},
		{Feishu(""), "feishu: the appID is empty"},
		{GitHub(""), "github: the account is empty"},
		{DingTalk("a", nil), "an Option is nil"},
		{DingTalk("a", WithEgress("")), "the name of WithEgress is empty"},
		{DingTalk("a", WithMonthlyQuota(nowhere, "", 5, httplimit.Match{})), "the organisation of WithMonthlyQuota is empty"},
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
		require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument, c.want)
		require.ErrorContains(t, err, c.want)
		var field *httplimit.FieldError
		require.True(t, errors.As(err, &field))
	}
}

// An option that a platform does not have, or of a scope in which it has no limit, is found by New: no request goes out
// without the limit that it was meant to set.
func TestOptionsOfOtherPlatforms(t *testing.T) {
	corp := func(*http.Request) string { return "c" }
	options := map[string]Option{
		"WithEgress": WithEgress("e"), "WithAPI": WithAPI("/x", 5, time.Second), "WithCorp": WithCorp(corp),
		"WithMonthlyQuota": WithMonthlyQuota(nowhere, "o", 5, httplimit.Match{}),
		"WithTokens":       WithTokens(10, func(*http.Request) int64 { return 1 }),
		"WithMargin":       WithMargin(0), "WithHosts": WithHosts("x.example.com"), "WithLocalQuota": WithLocalQuota(2),
		"WithOutagePolicy": WithOutagePolicy(ratelimiter.FailOpen()),
	}
	all := []string{"WithMargin", "WithHosts", "WithLocalQuota", "WithOutagePolicy"}
	scopes := []httplimit.Scope{ScopeAppAPI, ScopeCorpAPI, ScopeAPI, ScopeIP, ScopeRobot, ScopeMonth, ScopeDay, ScopeAccount,
		ScopeTokens, ScopeSecondary, ScopeContent, ScopeConcurrency, "typo", ""}
	scoped := map[string]func(httplimit.Scope) Option{
		"WithRate":    func(s httplimit.Scope) Option { return WithRate(s, 5, time.Second) },
		"WithMinGap":  func(s httplimit.Scope) Option { return WithMinGap(s, time.Second) },
		"WithPenalty": func(s httplimit.Scope) Option { return WithPenalty(s, time.Second) },
	}
	for name, c := range map[string]struct {
		profile func(...Option) httplimit.Profile
		has     []string
		scopes  []httplimit.Scope
	}{
		"dingtalk": {func(o ...Option) httplimit.Profile { return DingTalk("a", o...) },
			[]string{"WithEgress", "WithAPI", "WithCorp", "WithMonthlyQuota"}, []httplimit.Scope{ScopeAppAPI, ScopeIP, ScopeRobot}},
		"robot":     {DingTalkRobot, []string{"WithEgress"}, []httplimit.Scope{ScopeIP, ScopeRobot}},
		"wecom":     {func(o ...Option) httplimit.Profile { return WeCom("a", o...) }, []string{"WithAPI", "WithCorp"}, []httplimit.Scope{ScopeCorpAPI, ScopeRobot}},
		"feishu":    {func(o ...Option) httplimit.Profile { return Feishu("a", o...) }, []string{"WithAPI", "WithCorp"}, []httplimit.Scope{ScopeAppAPI, ScopeRobot}},
		"github":    {func(o ...Option) httplimit.Profile { return GitHub("a", o...) }, []string{"WithAPI"}, []httplimit.Scope{ScopeAccount, ScopeSecondary, ScopeContent}},
		"openai":    {func(o ...Option) httplimit.Profile { return OpenAI("a", o...) }, []string{"WithTokens"}, []httplimit.Scope{ScopeAccount}},
		"anthropic": {func(o ...Option) httplimit.Profile { return Anthropic("a", o...) }, []string{"WithTokens"}, []httplimit.Scope{ScopeAccount}},
		"dashscope": {func(o ...Option) httplimit.Profile { return DashScope("a", o...) }, []string{"WithTokens"}, []httplimit.Scope{ScopeAccount}},
	} {
		accepts := func(want bool, what string, o ...Option) {
			_, err := httplimit.New(clienttest.Unused(t), httplimit.WithProfile(c.profile(o...)))
			if want {
				require.NoError(t, err, "%s: %s", name, what)
				return
			}
			require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument, "%s: %s", name, what)
			option, _, _ := strings.Cut(what, " ")
			require.ErrorContains(t, err, option, "%s: %s", name, what)
		}
		for option, o := range options {
			accepts(slices.Contains(all, option) || slices.Contains(c.has, option), option, o)
		}
		for option, of := range scoped {
			for _, scope := range scopes {
				want := slices.Contains(c.scopes, scope) || option == "WithPenalty" && scope == ""
				if scope == ScopeContent && option == "WithPenalty" {
					want = false // no detector reports it
				}
				accepts(want, option+" "+string(scope), of(scope))
			}
		}
	}
	for problem, p := range map[string]httplimit.Profile{
		"among 0 nodes": DingTalk("a", WithLocalQuota(0)),
		"in LocalQuota": DingTalk("a", WithOutagePolicy(ratelimiter.LocalQuota(ratelimiter.Rate{}, 2))),
		"given twice; a Transport is for one organisation":    DingTalk("a", options["WithMonthlyQuota"], options["WithMonthlyQuota"]),
		`the pattern "/x" is given twice`:                     WeCom("a", options["WithAPI"], options["WithAPI"]),
		`no limit of the scope "robot" in 1h0m0s`:             DingTalk("a", WithRate(ScopeRobot, 0, time.Hour)),
		"WithPenalty: -1s is not":                             DingTalk("a", WithPenalty(ScopeRobot, -time.Second)),
		"WithPenalty: 0s is not":                              DingTalk("a", WithPenalty(ScopeRobot, 0)),
		"WithPenalty: 768h0m0s is not":                        DingTalk("a", WithPenalty(ScopeRobot, 32*24*time.Hour)),
		`WithPenalty: github has no limit of the scope "api"`: GitHub("a", options["WithAPI"], WithPenalty(ScopeAPI, time.Second)),
	} {
		_, err := httplimit.New(clienttest.Unused(t), httplimit.WithProfile(p))
		require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument, problem)
		require.ErrorContains(t, err, problem)
	}
	for _, r := range DingTalk("a", WithAPI("/x", 600, time.Minute)).Rules {
		for _, l := range r.Limits {
			require.True(t, l.Rate.Interval < 2*time.Second || l.Rate.MinGap == 0, "limits per second are paced, and no others: %+v", l)
		}
	}
	_, err := httplimit.New(clienttest.Unused(t), httplimit.WithProfile(DingTalk("a", WithRate(ScopeAppAPI, 5, time.Second), options["WithCorp"])))
	require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument, "corp-api is in its place")
	// With its option there is a limit of the scope, in whatever order they come.
	for _, p := range []httplimit.Profile{
		DingTalk("a", WithMinGap(ScopeMonth, time.Second), options["WithMonthlyQuota"], WithPenalty(ScopeMonth, time.Minute)),
		OpenAI("a", WithMinGap(ScopeTokens, time.Second), options["WithTokens"]),
		GitHub("a", WithMinGap(ScopeAPI, time.Second), options["WithAPI"]),
		DingTalk("a", WithRate(ScopeCorpAPI, 5, time.Second), options["WithCorp"]),
	} {
		_, err := httplimit.New(clienttest.Unused(t), httplimit.WithProfile(p))
		require.NoError(t, err)
	}
}
