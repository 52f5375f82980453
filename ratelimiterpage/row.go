// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"cmp"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/survey"
	"github.com/goredisson/ratelimiter/wire"
)

// A row is what the list keeps of a limiter, in little memory.
type row struct {
	name, node string
	rate       permit.Rate
	used       int64 // or survey.Unknown
	wait       time.Duration
	ttl        time.Duration
	members    int64
	cool       int32 // seconds that a cool-down lasts
	state      flags
	writers    writers
}

// flags are what the list can be narrowed down to.
type flags uint8

const (
	isLimited   flags = 1 << iota // a caller waits or is rejected
	isStuck                       // callers of Redisson fail
	isCooling                     // a cool-down
	isMalformed                   // the hash is not that of a limiter, or a key is of another type
	isPerClient
	isGone   // it was deleted after it was found
	isBroken // stuck, malformed, or the doctor has found something else; not kept in a row
)

// writers are who has written the members that were looked at.
type writers uint8

const (
	byGo writers = 1 << iota
	byJava
)

// writerOf tells who has written a member, if it is a grant.
func writerOf(m survey.Member) writers {
	if m.Mark() == 't' {
		return 0 // it is Go's mark on somebody's grant
	}
	switch m.Layout() {
	case wire.LayoutOurs:
		return byGo
	case wire.LayoutUnknown:
		return 0
	}
	if m.Mark() != 0 {
		return byGo
	}
	return byJava
}

func rowOf(l *survey.Limiter) row {
	r := row{name: l.Name, node: l.Node, rate: l.Rate, used: l.Used(), wait: l.Wait(), ttl: l.TTL, members: l.Members}
	if l.Problem != nil || l.Broken != nil {
		r.state |= isMalformed
	} else if l.Rate.Type == permit.PerClient {
		r.state |= isPerClient
	}
	if l.Limited() {
		r.state |= isLimited
	}
	if l.Stuck() {
		r.state |= isStuck
	}
	if at := l.CoolDown(); !at.IsZero() {
		r.state |= isCooling | isLimited
		r.cool = int32(min(at.Sub(l.Time)/time.Second+1, 1<<31-1))
	}
	for _, m := range l.Oldest {
		r.writers |= writerOf(m)
	}
	if l.Newest != nil {
		r.writers |= writerOf(*l.Newest)
	}
	return r
}

// limiter returns what Again needs to read the limiter of a row.
func (r row) limiter() *survey.Limiter { return &survey.Limiter{Name: r.name, Node: r.node} }

// share returns how much of the rate is used, from 0 to 1.
func (r row) share() float64 {
	if r.used <= 0 || r.rate.Permits <= 0 {
		return 0
	}
	return min(1, float64(r.used)/float64(r.rate.Permits))
}

// An order compares two rows. Rows that are equal by the column are in the order of their names.
type order func(a, b *row) int

// usualOrder is the order of a list whose address does not say another.
const usualOrder = "wait"

// orders are the columns by which the list can be sorted. Those of numbers begin with the largest.
var orders = map[string]order{
	"name": func(a, b *row) int { return strings.Compare(a.name, b.name) },
	"rate": func(a, b *row) int { return cmp.Compare(b.perSecond(), a.perSecond()) },
	"used": func(a, b *row) int {
		return cmp.Or(cmp.Compare(b.share(), a.share()), cmp.Compare(b.used, a.used))
	},
	"wait": func(a, b *row) int {
		const never = isStuck | isMalformed
		return cmp.Or(cmp.Compare(b.state&never, a.state&never), cmp.Compare(max(0, b.wait), max(0, a.wait)))
	},
	"ttl":     func(a, b *row) int { return cmp.Compare(b.ttl, a.ttl) },
	"members": func(a, b *row) int { return cmp.Compare(b.members, a.members) },
}

func (r row) perSecond() float64 {
	if r.rate.Interval <= 0 {
		return 0
	}
	return float64(r.rate.Permits) / r.rate.Interval.Seconds()
}

// matches reports whether name contains filter, in which * stands for any text. Upper and lower case are equal; filter is
// in lower case.
func matches(name, filter string) bool {
	if filter == "" {
		return true
	}
	name = strings.ToLower(name)
	for part := range strings.SplitSeq(filter, "*") {
		_, rest, ok := strings.Cut(name, part)
		if !ok {
			return false
		}
		name = rest
	}
	return true
}
