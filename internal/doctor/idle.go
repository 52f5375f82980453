// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/survey"
)

const (
	manyIdle  = 1000           // limiters whose names differ in the last part only
	idleAfter = 24 * time.Hour // without a grant
	// mostGroups bounds how many beginnings of names are counted.
	mostGroups = 1000
)

// A group is the limiters whose names differ in the last part only, such as those of users.
type group struct {
	all, idle int
	one       *survey.Limiter // one that is idle
}

// groups counts limiters by the beginning of their names.
type groups map[string]*group

// add counts a limiter. It is idle if it has no TTL and nobody has had a permit for a day.
func (f groups) add(l *survey.Limiter) {
	begin := l.Name[:strings.LastIndexAny(l.Name, ":/._-")+1]
	if begin == "" || l.Unsure || l.Kind != survey.Live || l.Problem != nil || l.Rate.Type != permit.Overall {
		return
	}
	of := f[begin]
	if of == nil {
		if len(f) == mostGroups {
			return
		}
		of = &group{}
		f[begin] = of
	}
	of.all++
	if l.TTLs[0] == -1 && l.Count == l.Expired && (l.Newest() == nil || l.Time.Sub(l.Newest().Time()) > max(idleAfter, 2*l.Rate.Interval)) {
		of.idle++
		of.one = l
	}
}

func (f groups) findings(to Target) (list []Finding) {
	for _, begin := range slices.Sorted(maps.Keys(f)) {
		of := f[begin]
		if of.idle < manyIdle {
			continue
		}
		x := finding("idle", Warning, say("%d of %d limiters that were looked at whose names begin with %q have no TTL, and nobody has had a permit of theirs for a day or more",
			of.idle, of.all, begin),
			say("make them with a keep-alive; %s gives one to this limiter", to.At(of.one.Node).Command("set-rate", []string{of.one.Name}, "--keep-alive D", "--write")))
		x.Limiter, x.Node = of.one.Name, of.one.Node
		list = append(list, x)
	}
	return list
}
