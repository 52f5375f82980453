package httplimit

import (
	"strings"

	"github.com/goredisson/ratelimiter/httplimit/internal/muxpattern"
)

// An index finds the rules that may match requests to a host: those that name it, and those that do not say which
// hosts they are for, in the order in which they were given.
type index struct {
	byHost map[string][]candidate
	others []candidate // for hosts that no rule names
}

// A candidate is a rule that a request to a host may match, unless its hint refuses the request.
type candidate struct {
	hint muxpattern.Hint // of the rule's pattern, when it has exactly one
	rule *rule
}

func newIndex(rules []*rule) index {
	x := index{byHost: map[string][]candidate{}}
	for _, r := range rules {
		c := candidate{rule: r}
		if len(r.matcher.patterns) == 1 {
			c.hint = r.matcher.patterns[0].Hint()
		}
		if !r.namesHosts() {
			for host := range x.byHost {
				x.byHost[host] = append(x.byHost[host], c)
			}
			x.others = append(x.others, c)
			continue
		}
		for _, host := range r.hosts {
			list, known := x.byHost[host]
			if !known {
				list = append([]candidate(nil), x.others...) // those that stand before r
			}
			if len(list) == 0 || list[len(list)-1].rule != r {
				x.byHost[host] = append(list, c)
			}
		}
	}
	return x
}

func (x *index) candidates(host string) []candidate {
	if list, ok := x.byHost[host]; ok {
		return list
	}
	return x.others
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
