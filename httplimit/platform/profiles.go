// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"net/http"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
)

// WeCom returns the profile of an organisation's calls of qyapi.weixin.qq.com:
//
//	corp-api  10,000 in 1 min and 150,000 in 1 h, for the organisation and the path
//	robot     20 in 1 min, for a group robot's key
//
// (https://developer.work.weixin.qq.com/document/path/90454, of 2023-08; the robot's number is from
// https://developer.work.weixin.qq.com/document/path/91770). The page has further numbers, for some APIs and for an
// address (20,000 in 1 min, 600,000 in 1 h for each API, 40,000 and 1,200,000 for a provider): use [WithAPI] and
// rules of your own for them. The profile does not limit how many requests run at the same time (45033); a rejection
// for that cools down the API's limiters.
func WeCom(corpID string, opts ...Option) httplimit.Profile {
	robot := []string{"/cgi-bin/webhook/send", "/cgi-bin/webhook/send/"}
	p := newProfile("wecom", []string{"qyapi.weixin.qq.com"}, []quota{
		{scope: ScopeCorpAPI, permits: 10_000, interval: time.Minute},
		{scope: ScopeCorpAPI, permits: 150_000, interval: time.Hour},
		{scope: ScopeRobot, permits: 20, interval: time.Minute, reopen: time.Minute},
	}, []string{withAPI, withCorp}, opts)
	p.needs("corpID", corpID)
	p.closed = true
	scopes := map[httplimit.Scope]httplimit.Scope{ScopeConcurrency: ScopeCorpAPI}
	rules := []httplimit.Rule{
		{Name: p.name + ": answers", Match: httplimit.Match{Hosts: p.hosts}, Detectors: p.adjust(scopes, WeComDetector(), httplimit.HTTPDetector())},
		{Name: p.name + ": group robot", Match: httplimit.Match{Hosts: p.hosts, Patterns: robot}, Limits: p.limits(ScopeRobot, "{query.key|hash}")},
	}
	return p.made(append(rules, p.apiRules(ScopeCorpAPI, corpID, pathOf, robot...)...)...)
}

// Feishu returns the profile of an application's calls of open.feishu.cn and open.larksuite.com:
//
//	app-api  50 in 1 s and 1,000 in 1 min, for the application, the tenant ([WithCorp]) and the API
//	robot    5 in 1 s and 100 in 1 min, for a custom bot's webhook
//
// (https://open.feishu.cn/document/server-docs/api-call-guide/frequency-control). The first line is what the pages of
// most APIs say; for others use [WithAPI]. An API is a method and the first four segments of the path, as with
// DingTalk: /open-apis/im/v1/messages/om_1 is GET:/open-apis/im/v1/messages/*. Feishu does not punish: a margin of 0
// and FailOpen may do.
func Feishu(appID string, opts ...Option) httplimit.Profile {
	// With a slash behind it, and with anything behind that, a token is one still.
	bots := []string{"/open-apis/bot/v2/hook/{token}", "/open-apis/bot/hook/{token}",
		"/open-apis/bot/v2/hook/{token}/", "/open-apis/bot/hook/{token}/"}
	p := newProfile("feishu", []string{"open.feishu.cn", "open.larksuite.com"}, []quota{
		{scope: ScopeAppAPI, permits: 50, interval: time.Second},
		{scope: ScopeAppAPI, permits: 1_000, interval: time.Minute},
		{scope: ScopeRobot, permits: 5, interval: time.Second},
		{scope: ScopeRobot, permits: 100, interval: time.Minute},
	}, []string{withAPI, withCorp}, opts)
	p.needs("appID", appID)
	// The quota of the month is wider than an API, and not kept here: the API whose call was rejected waits.
	scopes := map[httplimit.Scope]httplimit.Scope{ScopeMonth: ScopeAppAPI}
	rules := []httplimit.Rule{
		{Name: p.name + ": answers", Match: httplimit.Match{Hosts: p.hosts}, Detectors: p.adjust(scopes, FeishuDetector(), httplimit.HTTPDetector())},
		{Name: p.name + ": custom bot", Match: httplimit.Match{Hosts: p.hosts, Patterns: bots}, Limits: p.limits(ScopeRobot, "{path.token|hash}")},
	}
	api := func(r *http.Request) string { return apiOf(r, feishuFixed(r.URL.Path)) }
	return p.made(append(rules, p.apiRules(ScopeAppAPI, appID, api, bots...)...)...)
}

// feishuFixed returns how many segments of a path name its API. Behind hook there is a token, which must not get into
// a limiter's name however the path is written.
func feishuFixed(path string) int {
	segments := strings.SplitN(strings.TrimPrefix(path, "/"), "/", 5)
	for i, s := range segments[:min(len(segments), 4)] {
		if strings.EqualFold(s, "hook") {
			return i + 1
		}
	}
	return 4
}

// GitHub returns the profile of one account's calls of the REST API. The argument account names the user or the app's
// installation that makes the calls, and not the token, because everybody who reads Redis can see it. If it looks
// like a token, it is hashed by [httplimit.Hash]:
//
//	account    5,000 in 1 h
//	secondary  900 points in 1 min; GET, HEAD and OPTIONS are one point, other methods five
//	content    80 in 1 min, 1 s apart, and 500 in 1 h: methods other than GET, HEAD and OPTIONS
//
// (https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api, and for the second between them
// https://docs.github.com/rest/using-the-rest-api/best-practices-for-using-the-rest-api). GitHub counts a request as
// content if it creates content; this profile counts every change. It does not limit GraphQL, which has points of its
// own, but detects its rejections. No more than 100 requests may run at once; the caller has to see to that.
// [WithAPI] adds a limit for a pattern, such as that of the search.
func GitHub(account string, opts ...Option) httplimit.Profile {
	const graphQL = "/graphql"
	p := newProfile("github", []string{"api.github.com"}, []quota{
		{scope: ScopeAccount, permits: 5_000, interval: time.Hour},
		{scope: ScopeSecondary, permits: 900, interval: time.Minute},
		{scope: ScopeContent, permits: 80, interval: time.Minute, gap: time.Second},
		{scope: ScopeContent, permits: 500, interval: time.Hour},
	}, []string{withAPI}, opts)
	p.needs("account", account)
	if looksSecret(account) {
		account = httplimit.Hash(account)
	}
	caller := literal(account)
	points := p.limits(ScopeSecondary, caller)
	for i := range points {
		points[i].WeightFunc = func(r *http.Request) int64 {
			if changes(r) {
				return 5
			}
			return 1
		}
	}
	rest := others([]string{graphQL})
	rules := []httplimit.Rule{
		{Name: p.name + ": answers", Match: httplimit.Match{Hosts: p.hosts}, Detectors: p.adjust(nil, GitHubDetector(), httplimit.HTTPDetector())},
		{Name: p.name + ": REST", Match: httplimit.Match{Hosts: p.hosts, Func: rest}, Limits: append(p.limits(ScopeAccount, caller), points...)},
		{Name: p.name + ": changes", Match: httplimit.Match{Hosts: p.hosts, Func: func(r *http.Request) bool { return rest(r) && changes(r) }},
			Limits: p.limits(ScopeContent, caller)},
	}
	for _, a := range p.apis {
		rule := p.apiRule(ScopeAPI, account, a)
		if len(rule.Limits) == 0 { // httplimit.New says that it has no permits
			rule.Limits = []httplimit.Limit{p.limit(quota{scope: ScopeAPI, interval: time.Second}, caller)}
		}
		rules = append(rules, rule)
	}
	return p.made(rules...)
}

// looksSecret reports whether an account's name is rather a token: it is longer than a login can be, or begins as
// GitHub's tokens do (https://docs.github.com/authentication/keeping-your-account-and-data-secure/about-authentication-to-github).
func looksSecret(account string) bool {
	if len(account) > 39 {
		return true
	}
	for _, prefix := range []string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "Bearer ", "token "} {
		if strings.HasPrefix(strings.ToLower(account), strings.ToLower(prefix)) {
			return true
		}
	}
	return false
}

func changes(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodOptions
}
