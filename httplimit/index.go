// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"strings"

	"github.com/goredisson/ratelimiter/internal/http/muxpattern"
)

// An index finds the rules that may match requests to a host, in the order in which they were given: those that name
// the host, and those that name none. Its size is the sum of the numbers of both kinds of rules, and not their
// product.
type index struct {
	byHost map[string][]candidate
	others []candidate // for any host
}

// A candidate is a rule that a request to a host may match, unless its hint rejects the request.
type candidate struct {
	hint  muxpattern.Hint // of the rule's pattern, when it has exactly one
	rule  *rule
	place int // of the rule among all rules
}

func newIndex(rules []*rule) index {
	x := index{byHost: map[string][]candidate{}}
	for i, r := range rules {
		c := candidate{rule: r, place: i}
		if len(r.matcher.patterns) == 1 {
			c.hint = r.matcher.patterns[0].Hint()
		}
		if !r.namesHosts() {
			x.others = append(x.others, c)
			continue
		}
		for _, host := range r.hosts {
			list := x.byHost[host]
			if len(list) == 0 || list[len(list)-1].rule != r {
				x.byHost[host] = append(list, c)
			}
		}
	}
	return x
}

// candidates returns the rules that may match requests to the host.
func (x *index) candidates(host string) candidates { return candidates{x.byHost[host], x.others} }

// A candidates holds what is left of two lists while they are merged.
type candidates struct{ own, others []candidate }

func (l *candidates) empty() bool { return len(l.own)+len(l.others) == 0 }

// next removes the first one and returns it, or nil if there is none.
func (l *candidates) next() *candidate {
	if l.empty() {
		return nil
	}
	list := &l.own
	if len(l.own) == 0 || len(l.others) > 0 && l.others[0].place < l.own[0].place {
		list = &l.others
	}
	c := &(*list)[0]
	*list = (*list)[1:]
	return c
}

// namesHosts reports whether only requests to hosts that the rule names, without a wildcard, can match it.
func (r *rule) namesHosts() bool {
	for _, host := range r.hosts {
		if strings.HasPrefix(host, "*") {
			return false
		}
	}
	return len(r.hosts) > 0
}
