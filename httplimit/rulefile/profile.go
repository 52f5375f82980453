// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/platform"
	"github.com/goredisson/ratelimiter/internal/http/rates"
)

// A knownProfile is a profile of package platform that a file can name.
type knownProfile struct {
	caller string // the field of its argument; "" if it takes none
	egress bool   // whether it has platform.WithEgress
	make   func(caller string, opts ...platform.Option) httplimit.Profile
}

var profiles = map[string]knownProfile{
	"dingtalk": {"app_key", true, platform.DingTalk},
	"dingtalk-robot": {"", true, func(_ string, opts ...platform.Option) httplimit.Profile {
		return platform.DingTalkRobot(opts...)
	}},
	"wecom":     {"corp_id", false, platform.WeCom},
	"feishu":    {"app_id", false, platform.Feishu},
	"github":    {"account", false, platform.GitHub},
	"openai":    {"account", false, platform.OpenAI},
	"anthropic": {"account", false, platform.Anthropic},
	"dashscope": {"account", false, platform.DashScope},
}

// scopes returns the scopes that the options of a profile can name.
func (k knownProfile) scopes() (list []string) {
	for _, rule := range k.make("x").Rules {
		for _, l := range rule.Limits {
			list = append(list, string(l.Scope))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// profile reads an item of profiles: a name, or a mapping of the name and options.
func (r *reader) profile(n *node, at string) {
	asMap := n
	if n.kind == aString {
		asMap = &node{kind: aMap, line: n.line, keys: []*node{{kind: aString, line: n.line, text: "name"}}, values: []*node{n}}
	} else if !r.is(n, at, aMap) {
		return
	}
	name := ""
	if i := slices.IndexFunc(asMap.keys, func(key *node) bool { return key.text == "name" }); i >= 0 {
		if !r.is(asMap.values[i], at+".name", aString) {
			return
		}
		name = asMap.values[i].text
	}
	known, ok := profiles[name]
	if !ok {
		r.bad(n, at, "profile %q is not known; there are %s", clip(name), strings.Join(slices.Sorted(maps.Keys(profiles)), ", "))
		return
	}
	caller, ignored, dryRun := "", "", false
	var opts []platform.Option
	var policy outage
	fields := map[string]field{
		"name": r.text(&ignored), "dry_run": r.truth(&dryRun), "outage_policy": r.outage(&policy),
		"hosts": func(n *node, at string) {
			var hosts []string
			if r.texts(&hosts)(n, at); n.kind == aList && len(hosts) == 0 {
				r.bad(n, at, "there is none")
			}
			opts = append(opts, platform.WithHosts(hosts...))
		},
		"margin": func(n *node, at string) {
			var d time.Duration
			r.duration(&d)(n, at)
			if d%time.Millisecond != 0 {
				r.bad(n, at, "%v is no whole number of milliseconds", d)
			}
			opts = append(opts, platform.WithMargin(d))
		},
		"rates": func(n *node, at string) {
			seen := map[ofProfile]bool{}
			r.list(n, at, func(_ int, n *node, at string) { opts = append(opts, r.profileRate(n, at, name, known, seen)) })
		},
		"min_gaps": func(n *node, at string) {
			gaps := map[string]field{}
			for _, scope := range known.scopes() {
				gaps[scope] = func(n *node, at string) {
					var d time.Duration
					r.duration(&d)(n, at)
					opts = append(opts, platform.WithMinGap(httplimit.Scope(scope), d))
				}
			}
			r.fields(n, at, gaps)
		},
	}
	if known.egress {
		fields["egress"] = func(n *node, at string) {
			egress := ""
			if r.text(&egress)(n, at); n.kind == aString && egress == "" {
				r.bad(n, at, "it is empty")
			}
			opts = append(opts, platform.WithEgress(egress))
		}
	}
	if known.caller != "" {
		fields[known.caller] = r.text(&caller)
	}
	problems := len(r.problems)
	if r.fields(asMap, at, fields); len(r.problems) == problems && known.caller != "" && caller == "" {
		r.bad(n, at+"."+known.caller, "it is missing or empty; the requests of profile %s do not say whose they are", name)
	}
	if policy.set != nil && r.policy(policy, at) {
		if policy.kind == localQuota {
			opts = append(opts, platform.WithLocalQuota(int(policy.nodes)))
		} else {
			opts = append(opts, platform.WithOutagePolicy(policy.simple()))
		}
	}
	if len(r.problems) > problems {
		return
	}
	made := known.make(caller, opts...)
	if host, ok := r.overlap(made); ok {
		r.bad(n, at, "an earlier profile of %s is for %s too; a request to it would take the permits of both", made.Name, host)
		return
	}
	r.profiles = append(r.profiles, made)
	for _, rule := range made.Rules {
		rule.DryRun = dryRun
		r.profileRules = append(r.profileRules, rule)
		r.owners = append(r.owners, at)
	}
}

// An ofProfile tells the limits of a profile apart.
type ofProfile struct {
	scope    string
	interval time.Duration
}

// profileRate reads an item of a profile's rates, of which it has seen some.
func (r *reader) profileRate(n *node, at, name string, known knownProfile, seen map[ofProfile]bool) platform.Option {
	scope, rate := "", ratelimiter.Rate{Permits: -1}
	problems := len(r.problems)
	r.fields(n, at, map[string]field{"scope": r.text(&scope), "rate": r.rate(n, &rate),
		"permits": r.whole(&rate.Permits), "interval": r.duration(&rate.Interval)})
	permits, interval := rate.Permits, rate.Interval
	if len(r.problems) > problems {
		return nil
	}
	if !slices.Contains(known.scopes(), scope) {
		r.bad(n, at+".scope", "profile %s has no limit of the scope %q; there are %s", name, clip(scope), strings.Join(known.scopes(), ", "))
	}
	if permits < 0 {
		r.bad(n, at+".permits", "it is missing or negative; 0 takes the limit away")
		permits = 0
	}
	rates.Check(ratelimiter.Rate{Permits: max(permits, 1), Interval: interval}, func(field, format string, args ...any) {
		r.bad(n, at+"."+field, format, args...)
	})
	if permits == 0 && len(r.problems) == problems && !known.limits(scope, interval) {
		r.bad(n, at, "profile %s has no limit of %s in %v that could be taken away", name, scope, interval)
	}
	if seen[ofProfile{scope, interval}] {
		r.bad(n, at, "the limit of %s in %v is there already", scope, interval)
	}
	seen[ofProfile{scope, interval}] = true
	return platform.WithRate(httplimit.Scope(scope), permits, interval)
}

// limits reports whether the profile has a limit of the scope in an interval of the platform's.
func (k knownProfile) limits(scope string, interval time.Duration) bool {
	for _, rule := range k.make("x", platform.WithMargin(0)).Rules {
		for _, l := range rule.Limits {
			if string(l.Scope) == scope && l.Rate.Interval == interval {
				return true
			}
		}
	}
	return false
}

// overlap returns a host that an earlier profile of the same platform is for.
func (r *reader) overlap(p httplimit.Profile) (string, bool) {
	for _, earlier := range r.profiles {
		if earlier.Name != p.Name {
			continue
		}
		for _, rule := range earlier.Rules {
			for _, host := range rule.Match.Hosts {
				if slices.ContainsFunc(p.Rules, func(rule httplimit.Rule) bool { return slices.Contains(rule.Match.Hosts, host) }) {
					return host, true
				}
			}
		}
	}
	return "", false
}

var ruleField = regexp.MustCompile(`^rules\[(\d+)\]\.?(.*)$`)

// inFile returns the problem of a rule as one of the file: a rule that a profile has made belongs to the profile's item.
func (r *reader) inFile(e httplimit.FieldError, rules int) Error {
	if m := ruleField.FindStringSubmatch(e.Field); m != nil {
		if i, err := strconv.Atoi(m[1]); err == nil && i >= rules && i-rules < len(r.owners) {
			owner := r.owners[i-rules]
			if host, ok := strings.CutPrefix(m[2], "match."); ok {
				return Error{Field: owner + "." + host, Problem: e.Problem}
			}
			return Error{Field: owner, Problem: m[2] + ": " + e.Problem}
		}
	}
	return Error{Field: e.Field, Problem: e.Problem}
}
