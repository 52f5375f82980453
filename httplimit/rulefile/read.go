// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/platform"
	"github.com/goredisson/ratelimiter/internal/http/rates"
)

// maxProblems is how many problems an error lists.
const maxProblems = 20

// A reader turns nodes into rules. After a problem it goes on, to find all of them.
type reader struct {
	detectors map[string]httplimit.Detector
	problems  []*Error
	lines     map[string]int // of each field by its way

	profiles     []httplimit.Profile
	profileRules []httplimit.Rule // of all of them
	owners       []string         // the ways of their profiles
}

func (r *reader) bad(n *node, field, format string, args ...any) {
	r.problems = append(r.problems, &Error{Line: n.line, Field: field, Problem: fmt.Sprintf(format, args...)})
}

func (r *reader) err() error {
	slices.SortStableFunc(r.problems, func(a, b *Error) int { return cmp.Compare(a.Line, b.Line) })
	var list []error
	for i, p := range r.problems {
		if i == maxProblems {
			list = append(list, &Error{Problem: fmt.Sprintf("and %d more", len(r.problems)-i)})
			break
		}
		list = append(list, p)
	}
	return errors.Join(list...)
}

// A field reads the value of a field; at is the path of the field.
type field func(n *node, at string)

// fields reads a mapping, and calls the function of each field that is present.
func (r *reader) fields(n *node, at string, known map[string]field) {
	if !r.is(n, at, aMap) {
		return
	}
	seen := map[string]bool{}
	for i, key := range n.keys {
		name := key.text
		way := strings.TrimPrefix(at+"."+name, ".")
		switch read := known[name]; {
		case read == nil:
			r.bad(key, strings.TrimPrefix(at+"."+clip(name), "."), "unknown field; there are %s",
				strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		case seen[name]:
			r.bad(key, way, "it stands here twice")
		default:
			seen[name] = true
			r.lines[way] = key.line
			read(n.values[i], way)
		}
	}
}

func (r *reader) is(n *node, at string, want kind) bool {
	if n.kind == want {
		return true
	}
	is := string(n.kind)
	if n.kind == aNumber && want == aString {
		is += fmt.Sprintf("; put it in quotes: \"%s\"", clip(n.text))
	} else if n.text != "" && n.kind != aNull {
		is += fmt.Sprintf(": %s", clip(n.text))
	}
	r.bad(n, at, "it must be %s, not %s", want, is)
	return false
}

// clip shortens what an error quotes.
func clip(s string) string {
	if len(s) > 60 {
		s = s[:60] + "…"
	}
	return strings.ToValidUTF8(s, "\ufffd")
}

func (r *reader) list(n *node, at string, read func(i int, n *node, at string)) {
	if !r.is(n, at, aList) {
		return
	}
	for i, v := range n.values {
		way := fmt.Sprintf("%s[%d]", at, i)
		r.lines[way] = v.line
		read(i, v, way)
	}
}

func (r *reader) text(to *string) field {
	return func(n *node, at string) {
		if r.is(n, at, aString) {
			*to = n.text
		}
	}
}

func (r *reader) texts(to *[]string) field {
	return func(n *node, at string) {
		r.list(n, at, func(_ int, n *node, at string) {
			s := ""
			r.text(&s)(n, at)
			*to = append(*to, s)
		})
	}
}

func (r *reader) pairs(to *map[string]string) field {
	return func(n *node, at string) {
		if !r.is(n, at, aMap) {
			return
		}
		*to = map[string]string{}
		for i, key := range n.keys {
			if _, ok := (*to)[key.text]; ok {
				r.bad(key, at, "%q stands here twice", clip(key.text))
				continue
			}
			s := ""
			r.text(&s)(n.values[i], at+"."+key.text)
			(*to)[key.text] = s
		}
	}
}

func (r *reader) whole(to *int64) field {
	return func(n *node, at string) {
		if !r.is(n, at, aNumber) {
			return
		}
		v, err := strconv.ParseInt(n.text, 10, 64)
		digits := strings.TrimPrefix(n.text, "-")
		if err != nil || n.text[0] == '+' || len(digits) > 1 && digits[0] == '0' {
			// A leading 0 is octal to some that read YAML.
			r.bad(n, at, "%s is no whole number in decimal digits, or too large", clip(n.text))
			return
		}
		*to = v
	}
}

func (r *reader) truth(to *bool) field {
	return func(n *node, at string) {
		if n.kind != aBool || n.text != "true" && n.text != "false" {
			r.bad(n, at, "%s is neither true nor false", clip(cmp.Or(n.text, string(n.kind))))
			return
		}
		*to = n.text == "true"
	}
}

func (r *reader) duration(to *time.Duration) field {
	return func(n *node, at string) {
		if n.kind == aNumber {
			r.bad(n, at, "%s has no unit; a duration is such as 20s, 1m30s or 100ms", clip(n.text))
			return
		}
		if !r.is(n, at, aString) {
			return
		}
		d, err := time.ParseDuration(n.text)
		if err != nil {
			r.bad(n, at, "%q is no duration; it is such as 20s, 1m30s, 100ms, or 24h for a day", clip(n.text))
			return
		}
		if d < 0 {
			r.bad(n, at, "%v is negative", d)
			return
		}
		*to = d
	}
}

// rate reads the field rate of a mapping, as [ratelimiter.ParseRate] reads it. It stands for permits and interval; a text that
// names its type stands for the others, too, if there are any.
func (r *reader) rate(of *node, to *ratelimiter.Rate, others ...string) field {
	return func(n *node, at string) {
		if n.kind != aNumber && !r.is(n, at, aString) { // the error about "rate: 20" shows a rate
			return
		}
		rate, err := rates.Parse(n.text)
		switch {
		case err != nil:
			r.bad(n, at, "%s", strings.TrimPrefix(err.Error(), ratelimiter.ErrInvalidArgument.Error()+": "))
			return
		case rate.Interval%time.Millisecond != 0:
			r.bad(n, at, "the interval %v is no whole number of milliseconds", rate.Interval)
			return
		case rate.Whole && len(others) == 0:
			r.bad(n, at, "the rate %q has more than permits and an interval, as 10/s has them", clip(n.text))
			return
		}
		instead := []string{"permits", "interval"}
		if rate.Whole {
			instead = append(instead, others...)
		}
		for _, key := range of.keys {
			if slices.Contains(instead, key.text) {
				r.bad(key, strings.TrimSuffix(at, "rate")+key.text, "rate says it already")
			}
		}
		rate.Set(to)
	}
}

func (r *reader) file(root *node) (rules []httplimit.Rule) {
	r.fields(root, "", map[string]field{
		"rules": func(n *node, at string) {
			r.list(n, at, func(_ int, n *node, at string) { rules = append(rules, r.rule(n, at)) })
		},
		"profiles": func(n *node, at string) {
			r.list(n, at, func(_ int, n *node, at string) { r.profile(n, at) })
		},
	})
	if len(rules) == 0 && len(r.profiles) == 0 && len(r.problems) == 0 {
		r.bad(root, "rules", "there are none, and no profiles")
	}
	return rules
}

func (r *reader) rule(n *node, at string) (rule httplimit.Rule) {
	r.fields(n, at, map[string]field{
		"name":         r.text(&rule.Name),
		"one_platform": r.truth(&rule.OnePlatform), "dry_run": r.truth(&rule.DryRun),
		"match": func(n *node, at string) {
			m := &rule.Match
			r.fields(n, at, map[string]field{
				"patterns": r.texts(&m.Patterns), "hosts": r.texts(&m.Hosts), "methods": r.texts(&m.Methods),
				"header": r.pairs(&m.Header), "query": r.pairs(&m.Query),
			})
		},
		"limits": func(n *node, at string) {
			r.list(n, at, func(_ int, n *node, at string) { rule.Limits = append(rule.Limits, r.limit(n, at)) })
		},
		"detectors": func(n *node, at string) {
			r.list(n, at, func(_ int, n *node, at string) {
				if n.kind == aMap {
					rule.Detectors = append(rule.Detectors, r.signature(n, at))
					return
				}
				name := ""
				r.text(&name)(n, at)
				if d := r.detectors[name]; d != nil {
					rule.Detectors = append(rule.Detectors, d)
				} else if n.kind == aString {
					r.bad(n, at, "detector %q is not known; there are %s", clip(name),
						strings.Join(slices.Sorted(maps.Keys(r.detectors)), ", "))
				}
			})
		},
		"rejection": func(n *node, at string) {
			name := ""
			r.text(&name)(n, at)
			if rule.Rejection = rejections[name]; rule.Rejection == nil && n.kind == aString {
				r.bad(n, at, "the rejections of %q are not known; there are %s", clip(name), strings.Join(slices.Sorted(maps.Keys(rejections)), ", "))
			}
		},
	})
	return rule
}

// rejections are the forms of rejections that a file can name.
var rejections = map[string]httplimit.RejectionForm{
	"anthropic": platform.AnthropicRejection,
	"discord":   platform.DiscordRejection,
	"feishu":    platform.FeishuRejection,
	"github":    platform.GitHubRejection,
	"gitlab":    platform.GitLabRejection,
	"openai":    platform.OpenAIRejection,
	"slack":     platform.SlackRejection,
	"telegram":  platform.TelegramRejection,
}

func (r *reader) limit(n *node, at string) (l httplimit.Limit) {
	scope, settle := "", ""
	var o outage
	r.fields(n, at, map[string]field{
		"name": r.text(&l.Name), "scope": r.text(&scope),
		"rate":    r.rate(n, &l.Rate, "type", "keep_alive", "min_gap"),
		"permits": r.whole(&l.Rate.Permits), "interval": r.duration(&l.Rate.Interval),
		"keep_alive": r.duration(&l.Rate.KeepAlive), "min_gap": r.duration(&l.Rate.MinGap),
		"reopen": r.duration(&l.Reopen), "leave_free": r.whole(&l.LeaveFree), "leave_free_for": r.duration(&l.LeaveFreeFor),
		"settle": func(n *node, at string) {
			if r.text(&settle)(n, at); settle == "tokens" {
				l.Settle = platform.Tokens
			} else if n.kind == aString {
				r.bad(n, at, "%q is not known; there is tokens", clip(settle))
			}
		},
		"weight": func(n *node, at string) {
			l.Weight = -1
			if r.whole(&l.Weight)(n, at); l.Weight == 0 {
				r.bad(n, at, "a limit that spends nothing; leave it out")
			}
		},
		"type": func(n *node, at string) {
			name := ""
			r.text(&name)(n, at)
			switch name {
			case "overall":
				l.Rate.Type = ratelimiter.Overall
			case "per_client":
				l.Rate.Type = ratelimiter.PerClient
			default:
				if n.kind == aString {
					r.bad(n, at, "%q is neither overall nor per_client", clip(name))
				}
			}
		},
		"outage_policy": r.outage(&o),
	})
	l.Scope = httplimit.Scope(scope)
	if o.set == nil || !r.policy(o, at) {
		return l
	}
	policy := o.simple()
	if o.kind == localQuota {
		if l.Rate.Permits <= 0 {
			r.bad(o.set, at+".outage_policy", "a local quota needs a rate here, or permits and interval")
			return l
		}
		policy = ratelimiter.LocalQuota(l.Rate, int(o.nodes))
	}
	l.OutagePolicy = &policy
	return l
}

// localQuota is the kind of an outage that is a mapping.
const localQuota = "local_quota"

// An outage is the value of a field outage_policy.
type outage struct {
	set   *node // nil if the field is absent
	kind  string
	nodes int64 // of a local quota
}

func (r *reader) outage(to *outage) field {
	return func(n *node, at string) {
		to.set = n
		if n.kind == aMap {
			to.kind = localQuota
			r.fields(n, at, map[string]field{localQuota: r.whole(&to.nodes)})
			return
		}
		if r.text(&to.kind)(n, at); to.kind == localQuota {
			to.kind = ""
		}
	}
}

// policy reports whether an outage that is set is one of the policies; at is the path of the mapping around it.
func (r *reader) policy(o outage, at string) bool {
	ok := o.kind == "closed" || o.kind == "open" || o.kind == localQuota && o.nodes >= 1 && o.nodes < 1<<31
	if !ok {
		r.bad(o.set, at+".outage_policy", "it is closed, open, or {local_quota: N} for N processes, 1 or more")
	}
	return ok
}

// simple returns the policy of an outage that is no local quota.
func (o outage) simple() ratelimiter.OutagePolicy {
	if o.kind == "open" {
		return ratelimiter.FailOpen()
	}
	return ratelimiter.FailClosed()
}

func (r *reader) signature(n *node, at string) (s httplimit.Signature) {
	scope := ""
	r.fields(n, at, map[string]field{
		"status": func(n *node, at string) {
			read := func(_ int, n *node, at string) {
				status := int64(0)
				r.whole(&status)(n, at)
				s.Status = append(s.Status, int(min(max(status, -1), 1000)))
			}
			switch n.kind {
			case aNumber:
				read(0, n, at)
			case aList:
				r.list(n, at, read)
			default:
				r.is(n, at, aNumber+" or "+aList)
			}
		},
		"paths": r.texts(&s.Paths), "header": r.pairs(&s.Header), "json": r.pairs(&s.JSON), "xml": r.pairs(&s.XML),
		"reason": r.text(&s.Reason), "scope": r.text(&scope), "banned": r.truth(&s.Banned),
		"wait": r.duration(&s.Wait), "wait_from": r.texts(&s.WaitFrom),
		"wait_from_body": r.texts(&s.WaitFromBody), "max_wait": r.duration(&s.MaxWait),
	})
	s.Scope = httplimit.Scope(scope)
	return s
}
