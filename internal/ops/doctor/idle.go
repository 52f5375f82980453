// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/permit"
)

const (
	manyIdle  = 1000           // limiters whose names differ in the last part only
	idleAfter = 24 * time.Hour // without a grant
	// idleKeep is the keep-alive that is advised, if no interval is longer: a week, which has the quiet days of most services.
	idleKeep = 7 * 24 * time.Hour
	// mostGroups bounds how many beginnings of names are counted.
	mostGroups = 1000
)

// A group is the limiters whose names differ in the last part only, such as those of users.
type group struct {
	all, idle int
	interval  time.Duration   // the longest of those that are idle
	one       *survey.Limiter // one that is idle
	why       Text            // why those that are idle must not be given a TTL, if one must not
}

// groups counts limiters by the beginning of their names.
type groups map[string]*group

// add counts a limiter. It is idle if it has no TTL and its newest grant is older than a day. An empty set is no evidence: it is
// that of a limiter that was made a moment ago, too.
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
	last, granted := l.LastGrant()
	if l.TTLs[0] != -1 || !granted || l.Count != l.Expired || l.Time.Sub(last) <= max(idleAfter, 2*l.Rate.Interval) {
		return
	}
	of.idle++
	of.interval = max(of.interval, l.Rate.Interval)
	if why := noTTL(l.State, l.State); of.one == nil || of.why.String() == "" {
		of.one, of.why = l, why
	}
}

func (f groups) findings(to Target) (list []Finding) {
	for _, begin := range slices.Sorted(maps.Keys(f)) {
		of := f[begin]
		if of.idle < manyIdle {
			continue
		}
		fix := say("no keep-alive is advised for limiters such as this one: %s", of.why)
		if of.why.String() == "" {
			keep := max(idleKeep, 2*of.interval)
			when := say("only Go and Redisson 3.38.0 or later use them, and none of them is used again after a pause of more than %s without TrySetRate", survey.Exact(keep))
			fix = say("make them with a keep-alive; if %s: %s gives one to this limiter", when,
				run(to.At(of.one.Node).Command("set-rate", []string{of.one.Name}, "--keep-alive "+survey.Exact(keep), "--write")).only(when))
		}
		x := finding("idle", Warning, say("%d of %d limiters that were looked at whose names begin with %q have no TTL, and their newest grants are older than a day",
			of.idle, of.all, begin), fix)
		x.Limiter, x.Node = of.one.Name, of.one.Node
		list = append(list, x)
	}
	return list
}
