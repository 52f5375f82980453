// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/internal/muxpattern"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/redis/go-redis/v9"
)

// An Option changes a number or a name of a profile. What is out of its range is found by [httplimit.New], as
// a [*httplimit.FieldError] of the rule that it got into.
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
}

// A quota is one number of a platform: so many permits of a scope in an interval.
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

// An invalidQuota is a quota that cannot be, of which httplimit.New tells.
type invalidQuota struct {
	limit.Limiter
	error
}

// DingTalkMonth returns the limiter that [WithMonthlyQuota] counts by: a quota of so many calls in each month of China, and For
// has that of an organisation. Its errors are those of limit.NewShared. After more was bought what was taken counts on with the new number;
// Reset forgets it.
func DingTalkMonth(rdb redis.UniversalClient, calls int64) (*limit.Shared, error) {
	return limit.NewShared(rdb, "dingtalk-month", limit.CalendarQuota{Permits: calls, Per: limit.Month, Location: shanghai})
}

func newProfile(name string, hosts []string, quotas []quota, opts []Option) *profile {
	p := &profile{name: name, tag: "{" + name + "}", hosts: hosts, egress: "default", quotas: quotas,
		gaps: map[httplimit.Scope]time.Duration{}, penalties: map[httplimit.Scope]time.Duration{}}
	for _, o := range opts {
		o(p)
	}
	return p
}

// WithRate sets how many requests the platform allows in an interval, for a limit of a scope: the margin
// is added to it. It replaces the number that the profile has for that scope and interval; a new
// interval is a further limit, and 0 permits are no limit. The defaults are the platform's.
func WithRate(scope httplimit.Scope, permits int64, interval time.Duration) Option {
	return func(p *profile) {
		for i := range p.quotas {
			if q := &p.quotas[i]; q.scope == scope && q.interval == interval {
				q.permits = permits
				return
			}
		}
		p.quotas = append(p.quotas, quota{scope: scope, permits: permits, interval: interval})
	}
}

// WithMargin sets by how much the window of every limit is longer than the platform's. It covers delays of requests on
// their way that differ by less than that, and no others: where one in 20 requests is half a second late, up to 21
// arrive in a second that should have 20, unless the margin is half a second. [httplimit.Transport.Delays] has the
// figure. 0 is for a platform that does not punish. The default is a twentieth of the interval, 50 ms at least and a
// second at most: 95 % of the rate is left.
func WithMargin(d time.Duration) Option {
	return func(p *profile) { p.margin = &d }
}

// WithMinGap sets the least time between two requests of a scope's limits, which processes of this
// package obey together; 0 is none. The default is the interval by the permits for DingTalk's limits per
// second, and none elsewhere, so that a robot may say five things at once.
func WithMinGap(scope httplimit.Scope, gap time.Duration) Option {
	return func(p *profile) { p.gaps[scope] = gap }
}

// WithPenalty sets how long a limit of a scope cools down when the platform throttles, whatever the
// platform or its documentation says. The default is what these say.
func WithPenalty(scope httplimit.Scope, d time.Duration) Option {
	return func(p *profile) { p.penalties[scope] = d }
}

// WithOutagePolicy sets what happens while Redis is unavailable, for all limits of the profile. The default is
// ratelimiter.FailClosed for DingTalk and WeCom, which block who goes on, and the Client's policy for
// Feishu and GitHub.
func WithOutagePolicy(policy ratelimiter.OutagePolicy) Option {
	return func(p *profile) { p.outage, p.shared = &policy, false }
}

// WithLocalQuota lets each process go on with its share of every limit while Redis is unavailable, where nodes
// is how many processes there are at most: see ratelimiter.LocalQuota. A limit of fewer permits than
// nodes is closed then. The default is as WithOutagePolicy has it.
func WithLocalQuota(nodes int) Option {
	return func(p *profile) { p.shared, p.nodes = true, nodes }
}

// WithEgress names the public address from which the requests leave, for limits that a platform keeps by
// address: all processes behind one address say the same name, whatever applications they are of. The
// default is "default".
func WithEgress(name string) Option { return func(p *profile) { p.egress = name } }

// WithHosts sets the hosts that belong to the platform, "api.example.com" or "*.example.com", such as a
// company's own gateway to it. The default is the platform's.
func WithHosts(hosts ...string) Option { return func(p *profile) { p.hosts = hosts } }

// WithAPI says that the requests of a pattern, in [httplimit.Match.Patterns]'s language, are one API with limiters
// of their own, and how many of them the platform allows in the interval; 0 permits are as many as the
// profile has. The default is told with each profile.
func WithAPI(pattern string, permits int64, interval time.Duration) Option {
	return func(p *profile) {
		p.apis = append(p.apis, api{pattern, quota{permits: permits, interval: interval}})
	}
}

// WithCorp says for which organisation, or tenant, a request is, where one application serves several and
// the platform counts each by itself; "" is one of them. It gets the request as [httplimit.Match.Func] does. The
// default is that the application serves one.
func WithCorp(corp func(*http.Request) string) Option {
	return func(p *profile) { p.corp = corp }
}

// WithMonthlyQuota keeps the calls of an organisation within DingTalk's quota, which is counted by the calendar month
// (http://www.dingtalk.com/qidian/help-detail-1061621972.html): by [DingTalkMonth] on rdb, which is the Client's as a rule. metered is the class of requests
// that count (https://open.dingtalk.com/document/development/basic-interfaces-such-as-log-off-and-address-book lists
// those that do not). When DingTalk says that the quota is used up all of them wait for the month's end.
// The default is to keep no count, and that only the API which DingTalk refused waits.
func WithMonthlyQuota(rdb redis.UniversalClient, organisation string, calls int64, metered httplimit.Match) Option {
	return func(p *profile) {
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
	rules = slices.DeleteFunc(rules, func(r httplimit.Rule) bool { return len(r.Limits) == 0 && len(r.Detectors) == 0 })
	for i := range rules {
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
