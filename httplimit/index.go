package httplimit

import "strings"

// An index finds the rules that may match requests to a host: those that name it, and those that do not say which
// hosts they are for, in the order in which they were given.
type index struct {
	byHost map[string][]*rule
	others []*rule // for hosts that no rule names
}

func newIndex(rules []*rule) index {
	x := index{byHost: map[string][]*rule{}}
	for _, r := range rules {
		if !r.namesHosts() {
			for host := range x.byHost {
				x.byHost[host] = append(x.byHost[host], r)
			}
			x.others = append(x.others, r)
			continue
		}
		for _, host := range r.hosts {
			list, known := x.byHost[host]
			if !known {
				list = append([]*rule(nil), x.others...) // those that stand before r
			}
			if len(list) == 0 || list[len(list)-1] != r {
				x.byHost[host] = append(list, r)
			}
		}
	}
	return x
}

func (x *index) rules(host string) []*rule {
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
