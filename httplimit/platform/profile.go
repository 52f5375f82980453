// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/http/muxpattern"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/redis/go-redis/v9"
)

// An Option changes a number or a name of a profile. [httplimit.New] returns a [*httplimit.FieldError] if the value
// of an Option is out of range, if the platform does not have the option, or if it has no limit in the option's
// scope.
type Option func(*profile)

// A profile is what the options of a Profile are applied to.
type profile struct {
	name      string
	tag       string // the hash tag: all limiters of a profile in one slot, so that one script takes them
	hosts     []string
	egress    string
	margin    *time.Duration
	quotas    []quota
	gaps      map[httplimit.Scope]time.Duration
	closed    bool // FailClosed where the options say nothing
	outage    *ratelimiter.OutagePolicy
	shared    bool // LocalQuota among nodes
	nodes     int
	penalties map[httplimit.Scope]time.Duration
	corp      func(*http.Request) string
	apis      []api
	monthly   *monthly
	tokens    *tokens
	options   []namedOption
	problems  []error // options that the platform does not have
}

// A namedOption is an option that only some platforms have, or that names a scope.
type namedOption struct {
	name  string
	scope *httplimit.Scope
}

// A quota is one number of a platform: the permits of a scope in an interval.
type quota struct {
	scope    httplimit.Scope
	permits  int64
	interval time.Duration
	paced    bool          // spread over the interval
	gap      time.Duration // least time between two, whatever the interval
	reopen   time.Duration // after a cool-down
}

// An api is a pattern whose requests the platform counts together.
type api struct {
	pattern string
	quota   quota // permits 0: those of the profile
}

type monthly struct {
	organisation string
	quota        limit.Limiter
	metered      httplimit.Match
}

// The options that only some platforms have.
const (
	withEgress, withAPI, withCorp, withMonthlyQuota, withTokens = "WithEgress", "WithAPI", "WithCorp", "WithMonthlyQuota", "WithTokens"

	withRate, withMinGap, withPenalty = "WithRate", "WithMinGap", "WithPenalty" // of a scope
)

// An invalidQuota is a quota that cannot be used; httplimit.New reports it.
type invalidQuota struct {
	limit.Limiter
	error
}

// DingTalkMonth returns the limiter that [WithMonthlyQuota] counts by: a quota of the given number of calls per
// calendar month in China. Its For method returns the quota of an organisation. DingTalkMonth returns the errors of
// limit.NewShared. After an organisation has bought more calls, the calls made so far count against the new number;
// Reset forgets them.
func DingTalkMonth(rdb redis.UniversalClient, calls int64) (*limit.Shared, error) {
	return limit.NewShared(rdb, "dingtalk-month", limit.CalendarQuota{Permits: calls, Per: limit.Month, Location: shanghai})
}

// newProfile returns the profile that the options of a platform are applied to. The argument has names the options that
// this platform has, of those that not all have.
func newProfile(name string, hosts []string, quotas []quota, has []string, opts []Option) *profile {
	scopes := make([]httplimit.Scope, len(quotas))
	for i, q := range quotas {
		scopes[i] = q.scope
	}
	p := &profile{name: name, tag: "{" + name + "}", hosts: hosts, egress: "default", quotas: quotas,
		gaps: map[httplimit.Scope]time.Duration{}, penalties: map[httplimit.Scope]time.Duration{}}
	for _, o := range opts {
		if o == nil {
			p.problems = append(p.problems, fmt.Errorf("%s: an Option is nil", name))
			continue
		}
		o(p)
	}
	p.needs("name of "+withEgress, p.egress)
	for _, o := range p.options {
		switch {
		case o.scope == nil && !slices.Contains(has, o.name):
			p.problems = append(p.problems, fmt.Errorf("%s has no %s", name, o.name))
		case o.scope != nil && !p.limitsScope(o, scopes):
			p.problems = append(p.problems, fmt.Errorf("%s: %s has no limit of the scope %q", o.name, name, *o.scope))
		}
	}
	return p
}

// problem notes what is wrong with an option.
func (p *profile) problem(format string, args ...any) {
	p.problems = append(p.problems, fmt.Errorf("%s: "+format, append([]any{p.name}, args...)...))
}

// needs notes a problem if the argument of a profile's function is empty: all that leave it empty would share limiters.
func (p *profile) needs(argument, value string) {
	if value == "" {
		p.problem("the %s is empty", argument)
	}
}

// limitsScope reports whether an option of a scope has an effect in a profile with limits of these scopes.
func (p *profile) limitsScope(o namedOption, scopes []httplimit.Scope) bool {
	switch *o.scope {
	case ScopeAppAPI, ScopeCorpAPI: // DingTalk has one in place of the other
		if slices.Contains(scopes, ScopeAppAPI) && slices.Contains(scopes, ScopeCorpAPI) {
			return (*o.scope == ScopeCorpAPI) == (p.corp != nil)
		}
	case ScopeMonth:
		return o.name != withRate && p.monthly != nil
	case ScopeTokens:
		return o.name == withMinGap && p.tokens != nil
	case ScopeContent:
		if o.name == withPenalty { // GitHub's answers do not tell it from the secondary limit
			return false
		}
	case ScopeAPI:
		return o.name != withPenalty && len(p.apis) > 0 && slices.Contains(scopes, ScopeSecondary) // GitHub's
	case "":
		return o.name == withPenalty // of an answer that names no limit
	}
	return slices.Contains(scopes, *o.scope)
}

// WithRate sets how many requests the platform allows in an interval, for a limit of the given scope; the margin is
// added to the interval. It replaces the profile's number for that scope and interval. A new interval adds a limit,
// and 0 permits remove one. The defaults are the platform's.
func WithRate(scope httplimit.Scope, permits int64, interval time.Duration) Option {
	return func(p *profile) {
		p.options = append(p.options, namedOption{withRate, &scope})
		for i := range p.quotas {
			if q := &p.quotas[i]; q.scope == scope && q.interval == interval {
				q.permits = permits
				return
			}
		}
		if permits == 0 {
			p.problem("WithRate: there is no limit of the scope %q in %v to remove", scope, interval)
		}
		p.quotas = append(p.quotas, quota{scope: scope, permits: permits, interval: interval})
	}
}

// WithMargin sets by how much the window of every limit is longer than the platform's. It covers requests whose
// delays differ by less than that, and no others: if one in 20 requests is half a second late, up to 21 arrive in a
// second that allows 20, unless the margin is half a second. [httplimit.Transport.DelaySpread] has the figure. Use 0 for a
// platform that does not punish. The default is a twentieth of the interval, at least 50 ms and at most a second,
// which leaves 95 % of a rate per second.
func WithMargin(d time.Duration) Option {
	return func(p *profile) { p.margin = &d }
}

// WithMinGap sets the minimum time between two requests of a scope's limits, or 0 for none. All processes that use
// this package obey it together. The default is the interval divided by the permits for DingTalk's limits per second,
// and none for others, so a robot may send several messages at once.
func WithMinGap(scope httplimit.Scope, gap time.Duration) Option {
	return func(p *profile) {
		p.options = append(p.options, namedOption{withMinGap, &scope})
		p.gaps[scope] = gap
	}
}

// WithPenalty sets how long a limit of a scope cools down after the platform has throttled a request, whatever the
// platform or its documentation says: more than 0, and at most 31 days. [httplimit.WithMaxCoolDown] bounds it, too. The
// default is what they say.
func WithPenalty(scope httplimit.Scope, d time.Duration) Option {
	return func(p *profile) {
		p.options = append(p.options, namedOption{withPenalty, &scope})
		if d <= 0 || d > maxPenalty {
			p.problem("WithPenalty: %v is not in 0..%v, and more than 0", d, maxPenalty)
		}
		p.penalties[scope] = d
	}
}

// maxPenalty is the longest penalty of an option.
const maxPenalty = 31 * 24 * time.Hour

// WithOutagePolicy sets the outage policy, which decides requests while Redis is unavailable, for all limits of the
// profile. The default is ratelimiter.FailClosed for DingTalk and WeCom, which block callers that go on, and the
// Client's policy for other platforms.
func WithOutagePolicy(policy ratelimiter.OutagePolicy) Option {
	return func(p *profile) { p.outage, p.shared = &policy, false }
}

// WithLocalQuota lets each process use its share of every limit while Redis is unavailable; see
// ratelimiter.LocalQuota. The argument nodes is the largest number of processes. A limit with fewer permits than
// nodes grants none then. The default is that of WithOutagePolicy.
func WithLocalQuota(nodes int) Option {
	return func(p *profile) { p.shared, p.nodes = true, nodes }
}

// WithEgress names the public address from which the requests leave, for limits that a platform counts by address.
// All processes behind one address must use the same name, even those of different applications. The default is
// "default". It is for [DingTalk] and [DingTalkRobot].
func WithEgress(name string) Option {
	return func(p *profile) { p.egress, p.options = name, append(p.options, namedOption{name: withEgress}) }
}

// WithHosts sets the platform's hosts, "api.example.com" or "*.example.com", for example a company's own gateway to
// it. Without hosts the profile is for every host. The default is the platform's hosts.
func WithHosts(hosts ...string) Option { return func(p *profile) { p.hosts = hosts } }

// WithAPI makes the requests that match a pattern one API with limiters of its own. The pattern has the syntax of
// [httplimit.Match.Patterns]. The platform allows permits requests of it in the interval; with 0 permits it allows as
// many as the profile says. A pattern may stand in one WithAPI only. The comment of each profile has its default. It is for [DingTalk], [WeCom], [Feishu] and
// [GitHub].
func WithAPI(pattern string, permits int64, interval time.Duration) Option {
	return func(p *profile) {
		p.options = append(p.options, namedOption{name: withAPI})
		if slices.ContainsFunc(p.apis, func(a api) bool { return a.pattern == pattern }) {
			p.problem("WithAPI: the pattern %q is given twice", pattern)
			return
		}
		p.apis = append(p.apis, api{pattern, quota{permits: permits, interval: interval}})
	}
}

// WithCorp sets the function that returns the organisation, or tenant, of a request. Use it if one application serves
// several and the platform counts each by itself; "" counts as one of them. The function gets the request as
// [httplimit.Match.Func] does. The default is that the application serves one organisation. It is for [DingTalk],
// [WeCom] and [Feishu].
func WithCorp(corp func(*http.Request) string) Option {
	return func(p *profile) { p.corp, p.options = corp, append(p.options, namedOption{name: withCorp}) }
}

// WithMonthlyQuota keeps the calls of an organisation within DingTalk's quota per calendar month
// (http://www.dingtalk.com/qidian/help-detail-1061621972.html). It counts by [DingTalkMonth] on rdb, which is usually
// the Client's. The argument metered is the class of requests that count
// (https://open.dingtalk.com/document/development/basic-interfaces-such-as-log-off-and-address-book lists those that
// do not). When DingTalk says that the quota is used up, all of them wait for the end of the month. The default is to
// count nothing; then only the API that DingTalk rejected waits. It is for [DingTalk].
func WithMonthlyQuota(rdb redis.UniversalClient, organisation string, calls int64, metered httplimit.Match) Option {
	return func(p *profile) {
		p.options = append(p.options, namedOption{name: withMonthlyQuota})
		if p.monthly != nil {
			p.problem("WithMonthlyQuota is given twice; a Transport is for one organisation's quota")
			return
		}
		p.needs("organisation of "+withMonthlyQuota, organisation)
		p.monthly = &monthly{organisation: organisation, metered: metered}
		q, err := DingTalkMonth(rdb, calls)
		if err != nil {
			p.monthly.quota = invalidQuota{error: err}
			return
		}
		p.monthly.quota = q.For(organisation)
	}
}

// made returns the Profile of the rules, without those whose limits WithRate took away.
func (p *profile) made(rules ...httplimit.Rule) httplimit.Profile {
	if p.problems != nil { // httplimit.New tells of the quota, and not of what follows from it
		rules = []httplimit.Rule{{Name: p.name + ": options", Limits: []httplimit.Limit{{Name: p.name, Rate: ratelimiter.Rate{Permits: 1, Interval: time.Second},
			Quota: invalidQuota{error: errors.Join(p.problems...)}}}}}
	}
	rules = slices.DeleteFunc(rules, func(r httplimit.Rule) bool { return len(r.Limits) == 0 && len(r.Detectors) == 0 })
	for i := range rules {
		rules[i].Rejection = profileRejections[p.name]
		rules[i].OnePlatform = len(muxpattern.Hosts(rules[i].Match.Patterns, rules[i].Match.Hosts)) > 0
	}
	return httplimit.Profile{Name: p.name, Rules: rules}
}

func (p *profile) has(scope httplimit.Scope) bool {
	return slices.ContainsFunc(p.quotas, func(q quota) bool { return q.scope == scope && q.permits != 0 })
}

// limits returns the limits of a scope. name tells one limiter of the scope from another, as a [httplimit.Limit.Name]; ""
// is one that cannot be told, which httplimit.New refuses.
func (p *profile) limits(scope httplimit.Scope, name string) []httplimit.Limit {
	var list []httplimit.Limit
	for _, q := range p.quotas {
		if q.scope == scope && q.permits != 0 {
			list = append(list, p.limit(q, name))
		}
	}
	return list
}

func (p *profile) limit(q quota, name string) httplimit.Limit {
	l := httplimit.Limit{Rate: p.rate(q), Scope: q.scope, Reopen: q.reopen, OutagePolicy: p.policy(q)}
	if name != "" {
		l.Name = p.prefix(q.scope) + name + ":" + short(q.interval)
	}
	return l
}

// keyed returns limits whose limiter a function names: key returns what limits gets as name, without braces.
func (p *profile) keyed(scope httplimit.Scope, key func(*http.Request) string) []httplimit.Limit {
	list := p.limits(scope, "-")
	for i := range list {
		l := &list[i]
		prefix, suffix := p.tag+":"+string(scope)+":", l.Name[len(p.prefix(scope)+"-"):]
		l.Name, l.Key = "", func(r *http.Request) string { return prefix + key(r) + suffix }
	}
	return list
}

// prefix starts a Limit.Name: the hash tag's braces are doubled in that language.
func (p *profile) prefix(scope httplimit.Scope) string {
	return "{" + p.tag + "}:" + string(scope) + ":"
}

// rate returns the rate of a limiter for a quota.
func (p *profile) rate(q quota) ratelimiter.Rate {
	r := ratelimiter.Rate{Permits: q.permits, Interval: q.interval}
	margin := min(max(q.interval/20, 50*time.Millisecond), time.Second).Truncate(time.Millisecond)
	if p.margin != nil {
		margin = *p.margin
	}
	if margin < 0 {
		r.Interval = margin // httplimit.New says that it is no interval
	} else if q.interval > 0 {
		r.Interval += margin
	}
	if gap, set := p.gaps[q.scope]; set {
		r.MinGap = gap
	} else if q.gap > 0 {
		r.MinGap = q.gap
	} else if q.paced && q.permits > 0 {
		r.MinGap = (q.interval / time.Duration(q.permits)).Truncate(time.Millisecond)
	}
	return r
}

func (p *profile) policy(q quota) *ratelimiter.OutagePolicy {
	switch {
	case p.shared:
		share := ratelimiter.LocalQuota(p.rate(q), p.nodes)
		return &share
	case p.outage != nil:
		return p.outage
	case p.closed:
		closed := ratelimiter.FailClosed()
		return &closed
	}
	return nil
}

// short returns an interval as it stands in a limiter's name: 1s, 20s, 1m, 1h, 31d.
func short(d time.Duration) string {
	for _, unit := range []struct {
		d    time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}} {
		if d >= unit.d && d%unit.d == 0 {
			return fmt.Sprintf("%d%s", d/unit.d, unit.name)
		}
	}
	return d.String()
}
