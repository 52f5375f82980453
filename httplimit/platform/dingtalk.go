// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/internal/envelope"
)

// dingTalkQuotas returns DingTalk's numbers. The pages are those of dingtalk_detectors.go.
func dingTalkQuotas() []quota {
	return []quota{
		// how-to-process-api-throttling-on-the-dingtalk-server: 20 a second for an application and an API
		// in the standard edition. 60 with the add-on.
		{scope: ScopeAppAPI, permits: 20, interval: time.Second, paced: true},
		// 40 a second for a third party's application, an organisation and an API:
		// https://developer.aliyun.com/ask/491711 cites the page.
		{scope: ScopeCorpAPI, permits: 40, interval: time.Second, paced: true},
		// call-frequency-limit: 10,000 in 20 s for an address; then it is banned for 5 minutes.
		{scope: ScopeIP, permits: 10_000, interval: 20 * time.Second, reopen: 20 * time.Second},
		// custom-robots-send-group-messages: 20 a minute for a robot; then it is banned for 10 minutes.
		{scope: ScopeRobot, permits: 20, interval: time.Minute, reopen: time.Minute},
	}
}

// dingTalkHosts are those of China and, in .io, those of other countries.
var dingTalkHosts = []string{"oapi.dingtalk.com", "api.dingtalk.com", "oapi.dingtalk.io", "api.dingtalk.io"}

var (
	dingTalkRobot   = []string{"/robot/send", "/robot/send/"}
	dingTalkSession = []string{"/robot/sendBySession", "/robot/sendBySession/"} // replies by the webhook that a message came with
	dingTalkRobots  = slices.Concat(dingTalkRobot, dingTalkSession)
)

// DingTalk returns the profile of an organisation's application, or with [WithCorp] of a third party's. The hosts are
// oapi.dingtalk.com and api.dingtalk.com, and oapi.dingtalk.io and api.dingtalk.io outside China:
//
//	app-api   20 in 1 s, 50 ms apart, for the application and the API
//	corp-api  40 in 1 s, 25 ms apart, in place of app-api: with WithCorp, for application, organisation and API
//	ip        10,000 in 20 s, for the address of WithEgress and all DingTalk APIs
//	robot     20 in 1 min, for a custom robot's access_token, and for a session that a robot replies to
//	month     with WithMonthlyQuota, for the organisation
//
// appKey identifies the application, because its requests do not. A [httplimit.Transport] with this profile is for
// one application; on one Transport with several profiles, each request would take permits for all of their
// applications.
//
// An API is a path of oapi.dingtalk.com, and a method and the first three segments of a path of api.dingtalk.com (two
// for oauth2): /v1.0/contact/users/zhangsan and /v1.0/contact/users/me share a limiter, because a user's id looks
// like a word. This way each of the 902 APIs in the documentation of August 2026 has a limiter, though some share
// one. Use [WithAPI] to separate them.
//
// A rejection that HTTP itself defines, such as a gateway's 429 with Retry-After, names no limit: it cools down all
// limiters of the request. DingTalk's documentation does not mention it.
//
// A rejection with 90002 (all tenants together) or, without WithMonthlyQuota, with 90020 (the monthly quota) cools
// down the limiter of that API alone, although the platform's limit covers more. So the load of other callers, and
// calls that are not metered, do not stop this application's other APIs.
func DingTalk(appKey string, opts ...Option) httplimit.Profile {
	p := newProfile("dingtalk", dingTalkHosts, dingTalkQuotas(), []string{withEgress, withAPI, withCorp, withMonthlyQuota}, opts)
	p.needs("appKey", appKey)
	p.closed = true
	scope := ScopeAppAPI
	if p.corp != nil {
		scope = ScopeCorpAPI
	}
	scopes := map[httplimit.Scope]httplimit.Scope{ScopeAPI: scope, ScopeAppAPI: scope, ScopeCorpAPI: scope}
	var rules []httplimit.Rule
	if m := p.monthly; m != nil {
		// First, so that its detectors are: their month is the limiter's.
		rules = append(rules, p.monthRule(*m, p.adjust(scopes, DingTalkOldDetector(), DingTalkNewDetector())))
	}
	rules = append(rules, p.robotRules()...)
	scopes = map[httplimit.Scope]httplimit.Scope{ScopeAPI: scope, ScopeAppAPI: scope, ScopeCorpAPI: scope, ScopeMonth: scope}
	rules = append(rules, p.egressRule(httplimit.Match{Hosts: p.hosts},
		p.adjust(scopes, DingTalkBanDetector(), DingTalkOldDetector(), DingTalkNewDetector(), httplimit.HTTPDetector())))
	rules = append(rules, p.apiRules(scope, appKey, dingTalkAPI, dingTalkRobots...)...)
	return p.made(rules...)
}

// DingTalkRobot returns the profile of a program that only sends messages by custom robots: the robot and ip limits
// of [DingTalk]. Use only one of the two profiles, because a robot's message would take the permits of both.
func DingTalkRobot(opts ...Option) httplimit.Profile {
	p := newProfile("dingtalk", dingTalkHosts, slices.DeleteFunc(dingTalkQuotas(), ofAPI), []string{withEgress}, opts)
	p.closed = true
	return p.made(append(p.robotRules(), p.egressRule(httplimit.Match{Hosts: p.hosts, Patterns: dingTalkRobots}, nil))...)
}

func ofAPI(q quota) bool { return q.scope == ScopeAppAPI || q.scope == ScopeCorpAPI }

// robotRules have their own detectors, asked before the others: a robot's ban may come as the page of an
// address's, with the robot's code in it, and what is said of an API to a robot is about the robot.
func (p *profile) robotRules() []httplimit.Rule {
	detectors := p.adjust(map[httplimit.Scope]httplimit.Scope{ScopeAPI: ScopeRobot, ScopeAppAPI: ScopeRobot, ScopeCorpAPI: ScopeRobot, ScopeMonth: ScopeRobot},
		DingTalkRobotDetector(), DingTalkBanDetector(), DingTalkOldDetector(), httplimit.HTTPDetector())
	return []httplimit.Rule{
		{Name: p.name + ": custom robot", Match: httplimit.Match{Hosts: p.hosts, Patterns: dingTalkRobot},
			Limits: p.limits(ScopeRobot, "{query.access_token|hash}"), Detectors: detectors},
		{Name: p.name + ": reply of a robot", Match: httplimit.Match{Hosts: p.hosts, Patterns: dingTalkSession},
			Limits: p.limits(ScopeRobot, "{query.session|hash}"), Detectors: detectors},
	}
}

func (p *profile) egressRule(m httplimit.Match, detectors []httplimit.Detector) httplimit.Rule {
	return httplimit.Rule{Name: p.name + ": address", Match: m, Limits: p.limits(ScopeIP, literal(p.egress)), Detectors: detectors}
}

func (p *profile) monthRule(m monthly, detectors []httplimit.Detector) httplimit.Rule {
	if len(m.metered.Hosts) == 0 {
		m.metered.Hosts = p.hosts
	}
	// The limiter with the rate is there for the cool-down: more than the address may send in 20 s, in a second.
	l := p.limit(quota{scope: ScopeMonth, permits: 10_000, interval: time.Second}, literal(m.organisation))
	l.Quota = m.quota
	return httplimit.Rule{Name: p.name + ": month", Match: m.metered, Limits: []httplimit.Limit{l}, Detectors: detectors}
}

func (p *profile) adjust(scopes map[httplimit.Scope]httplimit.Scope, detectors ...httplimit.Detector) []httplimit.Detector {
	list := make([]httplimit.Detector, len(detectors))
	for i, d := range detectors {
		list[i] = adjusted{d, p, scopes}
	}
	return list
}

// dingTalkAPI returns the name of a request's API.
func dingTalkAPI(r *http.Request) string {
	first, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	version, ok := strings.CutPrefix(first, "v")
	switch {
	case !ok || !envelope.IsDigits(strings.Replace(version, ".", "", 1)):
		return pathOf(r) // the old API has no ids in its paths, and takes one call by GET and POST
	case strings.HasPrefix(rest, "oauth2/"):
		return apiOf(r, 2) // /v1.0/oauth2/{corpId}/token
	}
	return apiOf(r, 3)
}
