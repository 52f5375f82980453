// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/internal/envelope"
	"github.com/goredisson/ratelimiter/httplimit/internal/keyname"
	"github.com/goredisson/ratelimiter/internal/http/muxpattern"
)

// literal returns a text as it stands in a limiter's name.
func literal(s string) string { return keyname.Part(s, false) }

// apiRules returns the rules of limits that the platform keeps for each API of a caller: one for each WithAPI, and one
// for all other requests but those of the patterns in except, whose API name returns.
func (p *profile) apiRules(scope httplimit.Scope, caller string, name func(*http.Request) string, except ...string) []httplimit.Rule {
	var rules []httplimit.Rule
	for _, a := range p.apis {
		except = append(except, a.pattern)
		rules = append(rules, p.apiRule(scope, caller, a))
	}
	return append(rules, httplimit.Rule{Name: p.name + ": API", Match: httplimit.Match{Hosts: p.hosts, Func: others(except)},
		Limits: p.called(scope, caller, name)})
}

// apiRule returns the rule of a WithAPI, with the rate that it has or the scope's.
func (p *profile) apiRule(scope httplimit.Scope, caller string, a api) httplimit.Rule {
	one := *p
	if q := a.quota; q.permits != 0 {
		q.scope = scope
		q.paced = q.interval <= time.Second && slices.ContainsFunc(p.quotas, func(q quota) bool { return q.scope == scope && q.paced })
		one.quotas = []quota{q}
	}
	name := strings.NewReplacer(" ", ":", "{", "<", "}", ">").Replace(a.pattern)
	return httplimit.Rule{
		Name:   p.name + ": " + a.pattern,
		Match:  httplimit.Match{Hosts: p.hosts, Patterns: []string{a.pattern}},
		Limits: one.called(scope, caller, func(*http.Request) string { return name }),
	}
}

// called returns the limits of a caller, of its organisation where it has several, and of an API.
func (p *profile) called(scope httplimit.Scope, caller string, api func(*http.Request) string) []httplimit.Limit {
	if caller == "" {
		return p.limits(scope, "") // httplimit.New says so
	}
	caller, corp := literal(caller), p.corp
	return p.keyed(scope, func(r *http.Request) string {
		if corp == nil {
			return caller + ":" + api(r)
		}
		return caller + ":" + literal(corp(r)) + ":" + api(r)
	})
}

// others returns a function that reports whether a request matches none of the patterns. A pattern that cannot be parsed
// is left to the rule that it belongs to.
func others(patterns []string) func(*http.Request) bool {
	var list []muxpattern.Pattern
	for _, pattern := range patterns {
		if p, problem := muxpattern.Compile(pattern); problem == "" {
			list = append(list, p)
		}
	}
	return func(r *http.Request) bool {
		for i := range list {
			if list[i].Matches(r) {
				return false
			}
		}
		return true
	}
}

// pathOf names the API of a path that has no ids in it, whatever the method.
func pathOf(r *http.Request) string {
	return keyname.Part(r.URL.Path, true)
}

// maxStars bounds a limiter's name, whatever path a request has.
const maxStars = 8

// apiOf names the API of a method and a path whose first segments are fixed and whose others may be
// ids: /v1.0/contact/users/zhangsan is GET:/v1.0/contact/users/*. Several APIs may get one name, which
// makes the limit tighter; one API must not get several, which would be no limit at all. An id cannot be
// told from a word, so every later segment counts as one.
func apiOf(r *http.Request, fixed int) string {
	segments := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	fixed = min(fixed, len(segments))
	head := keyname.Escape("/"+strings.Join(segments[:fixed], "/"), true)
	if len(head) > keyname.MaxPart {
		head = keyname.Hash(head)
	}
	return literal(r.Method) + ":" + head + strings.Repeat("/*", min(len(segments)-fixed, maxStars))
}

// An adjusted detector speaks of the limits that a profile has.
type adjusted struct {
	httplimit.Detector
	profile *profile
	scopes  map[httplimit.Scope]httplimit.Scope
}

func (a adjusted) Detect(r *httplimit.Response) httplimit.Verdict {
	v := a.Detector.Detect(r)
	if !v.Throttled {
		return v
	}
	wasDoubted := envelope.IsDoubted(v.Until, v.Asked)
	if to, ok := a.scopes[v.Scope]; ok {
		if v.Scope == ScopeMonth && !a.profile.has(to) {
			v = doubted(v) // it would fall on whatever limiters are left, and silence an address for a month
		}
		v.Scope = to
	}
	if d, ok := a.profile.penalties[v.Scope]; ok && !wasDoubted {
		v.Until, v.Asked = r.Now.Add(d), time.Time{}
	}
	return v
}

func (a adjusted) NeedsBody(status int, header http.Header) bool {
	return envelope.NeedsBody(a.Detector, status, header)
}
