// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit/internal/guard"
	"github.com/goredisson/ratelimiter/internal/http/muxpattern"
	"github.com/goredisson/ratelimiter/internal/http/rates"
)

// A rule is a compiled Rule.
type rule struct {
	Rule
	matcher *matcher
	names   []template // of the limits; nil for those with a Key
	hosts   []string   // that the match names, in the language of Match.Hosts; nil when it names none
	whole   []bool     // of the limits: it cools down as a whole
	gives   []bool     // of the limits: the grants of its quota can be given back
}

func compile(r Rule) (*rule, error) {
	var list []error
	p := problems{list: &list}
	c := &rule{Rule: r, matcher: compileMatch(r.Match, p.in("match"))}
	c.hosts = muxpattern.Hosts(r.Match.Patterns, r.Match.Hosts)
	if r.OnePlatform && len(c.hosts) == 0 {
		p.add("one_platform", "the match names no host, in hosts or in every pattern")
	}
	shared := wildcards(r.Match.Patterns)
	if len(r.Limits) == 0 && len(r.Detectors) == 0 {
		p.add("limits", "there is none, and no detector")
	}
	for i, l := range r.Limits {
		p := problems{fmt.Sprintf("limits[%d]", i), &list}
		var name template
		if l.Key == nil {
			var err error
			if name, err = parseTemplate(l.Name, shared); err != nil {
				p.add("name", "%v", err)
			}
		} else if l.Name != "" {
			p.add("name", "%q and a Key: it takes one of them", l.Name)
		}
		c.names = append(c.names, name)
		if l.Rate != (ratelimiter.Rate{}) {
			rates.Check(l.Rate, p.add)
		}
		checkQuota(&l, p)
		c.gives = append(c.gives, givesBack(l.Quota))
		if l.Weight < 0 {
			p.add("weight", "%d is negative", l.Weight)
		} else if l.Rate.Permits > 0 && l.Weight > l.Rate.Permits {
			p.add("weight", "%d is more than the %d permits that there are", l.Weight, l.Rate.Permits)
		}
		checkSum(r.Limits[:i+1], p)
		checkQuotaSum(r.Limits[:i+1], c.names, p)
		if l.Weight != 0 && l.WeightFunc != nil {
			p.add("weight", "%d and a WeightFunc: it takes one of them", l.Weight)
		}
		switch {
		case l.LeaveFree < 0 || l.LeaveFree > rates.MaxPermits:
			p.add("leave_free", "%d is not in 0..%d", l.LeaveFree, int64(rates.MaxPermits))
		case l.LeaveFree > 0 && l.Rate.Permits > 0 && max(l.Weight, 1) > l.Rate.Permits-l.LeaveFree:
			p.add("leave_free", "%d of the %d permits that there are leave none for a request of %d", l.LeaveFree, l.Rate.Permits, max(l.Weight, 1))
		case l.LeaveFreeFor < 0:
			p.add("leave_free_for", "%v is negative", l.LeaveFreeFor)
		case l.LeaveFreeFor > 0 && l.LeaveFree == 0:
			p.add("leave_free_for", "%v without leave_free", l.LeaveFreeFor)
		}
		if l.OutagePolicy != nil {
			if err := l.OutagePolicy.Validate(); err != nil {
				p.add("outage_policy", "%v", err)
			}
		}
		if l.Reopen < 0 {
			p.add("reopen", "%v is negative", l.Reopen)
		} else if l.Reopen%time.Millisecond != 0 {
			p.add("reopen", "%v is no whole number of milliseconds", l.Reopen)
		}
	}
	for i, d := range r.Detectors {
		checkDetector(d, p.in("detectors[%d]", i))
	}
	return c, errors.Join(list...)
}

// checkSum checks the weight of the last limit together with those before it that name the same limiter. What a WeightFunc returns is not
// known here.
func checkSum(limits []Limit, p problems) {
	last, rate := &limits[len(limits)-1], int64(0)
	counts := func(i int) bool {
		l := &limits[i]
		return l.Key == nil && last.Key == nil && l.Name == last.Name && l.alone() == last.alone() && l.WeightFunc == nil
	}
	for i := range limits {
		if counts(i) {
			rate = cmp.Or(rate, limits[i].Rate.Permits)
		}
	}
	checkTogether(limits, counts, rate, strconv.Quote(last.Name), "there are", p)
}

// checkTogether checks the weight of the last limit together with the others that count, all of which a request spends, against the most
// that it can be granted; 0 if that is not known. One that is more by itself has been told already.
func checkTogether(limits []Limit, counts func(i int) bool, most int64, of, that string, p problems) {
	last, sum := len(limits)-1, int64(0)
	for i := range limits {
		if counts(i) {
			sum += max(limits[i].Weight, 1)
		}
	}
	if own := max(limits[last].Weight, 1); counts(last) && most > 0 && sum > most && own <= most {
		p.add("weight", "%d, with the others of %s %d, is more than the %d permits that %s", own, of, sum, most, that)
	}
}

// CheckRules checks rules as [New] does. It returns nil, or one or more [*FieldError] values, joined, whose fields
// begin with rules[0] and so on.
func CheckRules(rules []Rule) error {
	_, err := compileAll(rules)
	return err
}

// compileAll compiles a transport's rules, and finds the limiters that two of them give different rates.
func compileAll(rules []Rule) ([]*rule, error) {
	var list []error
	var all []*rule
	first := map[string]ratelimiter.Rate{}
	for i, r := range rules {
		c, err := compile(r)
		at := problems{at: fmt.Sprintf("rules[%d]", i), list: &list}
		for _, e := range flatten(err) {
			at.add(e.Field, "%s", e.Problem)
		}
		all = append(all, c)
		for j, l := range r.Limits {
			if l.Key != nil || !c.names[j].constant() || l.Rate == (ratelimiter.Rate{}) {
				continue
			}
			if other, ok := first[l.Name]; ok && other != l.Rate {
				at.add(fmt.Sprintf("limits[%d]", j), "limiter %q has the rate %v elsewhere and %v here", l.Name, other, l.Rate)
			}
			first[l.Name] = l.Rate
		}
	}
	findWhole(all)
	return all, errors.Join(list...)
}

// findWhole finds the limits whose limiters cool down as a whole: see Rule.OnePlatform. Limits of the same
// Name are the same limiters; of those with a Key only the rule itself is known.
func findWhole(rules []*rule) {
	named := map[string]reach{}
	for _, r := range rules {
		for _, l := range r.Limits {
			of := named[l.Name]
			of.add(r)
			named[l.Name] = of
		}
	}
	for _, r := range rules {
		for i, l := range r.Limits {
			of := named[l.Name]
			if l.Key != nil {
				of = reach{}
				of.add(r)
			}
			ofHost := slices.ContainsFunc(r.names[i], func(p part) bool { return p.kind == "host" })
			r.whole = append(r.whole, of.one() || ofHost || r.OnePlatform)
		}
	}
}

// A reach says which hosts some rules are for: none, one, or several.
type reach struct {
	host    string // the first one
	several bool
}

func (of *reach) add(r *rule) {
	of.several = of.several || len(r.hosts) == 0
	for _, host := range r.hosts {
		of.several = of.several || strings.HasPrefix(host, "*") || of.host != "" && of.host != host
		of.host = host
	}
}

func (of *reach) one() bool { return of.host != "" && !of.several }

// flatten returns the field errors of a joined error.
func flatten(err error) []*FieldError {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	var list []*FieldError
	for _, e := range joined.Unwrap() {
		if f, ok := e.(*FieldError); ok {
			list = append(list, f)
		}
	}
	return list
}

// A plan is the result of applying the rules to one request.
type plan struct {
	rules     []string
	demands   []demand
	dry       []demand // of rules that are a dry run
	quotas    []quotaDemand
	detectors []Detector
	rejection RejectionForm // of the first rule with one
	host      string        // of the request, in the form in which rules match it
}

// A demand is a number of permits of one limiter that a request spends.
type demand struct {
	*limiter
	permits int64
	scopes  []Scope
	reopen  time.Duration
	whole   bool // it cools down as a whole

	leaveFree int64
	leaveFor  time.Duration

	settlements []settlement // of those limits that are settled
}

// plan applies the rules to a request. Its error is an *Error.
func (t *Transport) plan(req *http.Request) (p *plan, err error) {
	p = &plan{detectors: t.cfg.detectors}
	set := t.set.Load()
	if len(set.rules) == 0 {
		return p, nil
	}
	p.host = hostOf(req)
	candidates := set.index.candidates(p.host)
	if candidates.empty() {
		return p, nil
	}
	probe := newProbe(req, p.host)
	var detectors []Detector
	var current *rule
	running := "Match.Func"
	defer func() {
		if v := recover(); v != nil {
			err = &Error{Reason: ReasonRule, Err: fmt.Errorf("rule %q: %w", current.Name, guard.New(running, v))}
		}
	}()
	for c := candidates.next(); c != nil; c = candidates.next() {
		if !probe.mayMatch(&c.hint) {
			continue
		}
		r := c.rule
		current, running = r, "Match.Func"
		matched := r.matcher.matches(probe)
		if matched == nil {
			continue
		}
		p.rules = append(p.rules, r.Name)
		detectors = append(detectors, r.Detectors...)
		if p.rejection == nil {
			p.rejection = r.Rejection
		}
		for i := range r.Limits {
			if err := t.demand(p, set, r, i, matched, probe, &running); err != nil {
				return p, err
			}
		}
	}
	if v, ok := req.Context().Value(leaveFreeKey{}).(leftFree); ok {
		for i := range p.demands {
			p.demands[i].leave(v.permits, v.age)
		}
	}
	if len(detectors) > 0 {
		p.detectors = append(detectors, t.cfg.detectors...)
	}
	return p, nil
}

// demand adds what limit i of a rule demands for a request. If a limiter is named twice, the permits are added up.
func (t *Transport) demand(p *plan, set *ruleSet, r *rule, i int, matched *http.Request, probe *probe, running *string) error {
	l := &r.Limits[i]
	name := ""
	if l.Key != nil {
		*running = "Limit.Key"
		name = l.Key(matched)
	} else {
		name = r.names[i].expand(matched, probe.queryValues, t.cfg.hashKey)
	}
	permits := max(l.Weight, 1)
	if l.WeightFunc != nil {
		*running = "Limit.WeightFunc"
		permits = l.WeightFunc(matched)
	}
	if name == "" || permits == 0 {
		return nil
	}
	*running = "the name mapper of the Client"
	if permits < 0 || permits > rates.MaxPermits {
		return &Error{Limiter: name, Reason: ReasonRule,
			Err: fmt.Errorf("%w: a weight of %d is not in 0..%d", ratelimiter.ErrInvalidArgument, permits, int64(rates.MaxPermits))}
	}
	var settlements []settlement
	if l.Settle != nil {
		settlements = []settlement{{permits, l.mostSettled(permits), l.Settle}}
	}
	demands, alone := &p.demands, l.alone()
	if r.DryRun {
		if alone {
			return nil
		}
		demands = &p.dry
	}
	k := slices.IndexFunc(*demands, func(d demand) bool { return d.name == name && d.alone == alone })
	if l.Quota != nil && !r.DryRun {
		p.quotas = append(p.quotas, p.quotaDemand(l, r.gives[i], name, permits, k))
	}
	if k >= 0 {
		d := &(*demands)[k]
		d.permits += permits
		d.settlements = append(d.settlements, settlements...)
		d.reopen = max(d.reopen, l.Reopen)
		d.scopes = append(d.scopes, l.Scope)
		d.whole = d.whole || r.whole[i]
		d.giveWay(l)
		return nil
	}
	d := demand{limiter: t.limiters.get(name, l, set.id), permits: permits,
		scopes: []Scope{l.Scope}, reopen: l.Reopen, whole: r.whole[i], settlements: settlements}
	d.giveWay(l)
	*demands = append(*demands, d)
	return nil
}

// defaultLeaveFor is the default of Limit.LeaveFreeFor.
const defaultLeaveFor = 10 * time.Second

// giveWay gives the demand the class of l, if l leaves more permits free.
func (d *demand) giveWay(l *Limit) {
	d.leave(l.LeaveFree, cmp.Or(l.LeaveFreeFor, defaultLeaveFor))
}

// leave makes the demand leave permits free, if that is more than it does.
func (d *demand) leave(permits int64, age time.Duration) {
	if permits > d.leaveFree && !d.alone {
		d.leaveFree, d.leaveFor = permits, age
	}
}

// asks returns the handle of the demand's class.
func (d *demand) asks() *ratelimiter.RateLimiter {
	if d.leaveFree == 0 {
		return d.handle
	}
	return d.handle.LeaveFree(d.leaveFree, d.leaveFor)
}

// asked returns the demands as the Client takes them, without quotas that are alone.
func (p *plan) asked() []ratelimiter.Demand {
	list := make([]ratelimiter.Demand, 0, len(p.demands))
	for i := range p.demands {
		if d := &p.demands[i]; !d.alone {
			list = append(list, ratelimiter.Demand{Limiter: d.asks(), Permits: d.permits})
		}
	}
	return list
}
