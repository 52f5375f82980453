// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/test/grantlog"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/wire"
)

// Where a grant was granted by. What nobody has seen is in the set after the server died before it reported the grant.
const oursUnseen, javas, javasUnseen = "unseen", "Java", "Java, unseen"

// scored returns the instant of a score. A grant of a monitor begins at its score, by the clock of the side that granted,
// and ends with the execution, by the clock of Redis, unless that is not known.
func scored(score float64) time.Time {
	whole, part := math.Modf(score)
	return time.UnixMilli(int64(whole)).Add(time.Duration(part * float64(time.Millisecond)))
}

func isJava(g grantlog.Grant) bool { return strings.HasPrefix(g.By, javas) }

// A place is where a grant is among the grants, -1 for what is not granted yet, and its score.
type place struct {
	index int
	score time.Time
}

// The scripts of ours that do more than grant: one refunds grants whose callers have left, and by the other a list holds
// permits until it has all of them. What a reserve removes is not granted, and what it adds is.
const giveBackScript, reserveScript = "give_back", "reserve"

// moreThanGrants are these scripts as they are sent.
var moreThanGrants = sync.OnceValue(func() []*dispatch.Script {
	return slices.DeleteFunc(dispatch.Loaded(), func(s *dispatch.Script) bool { return s.Name != giveBackScript && s.Name != reserveScript })
})

// scriptWords are the name of a script and the words of its call.
type scriptWords []string

// The words of a give_back, whose grant counts as never made but for what it becomes, and those of a reserve.
const (
	backMember, backSmaller   = 7, 8
	reserveQueue, reserveName = 6, 14
)

// of returns a word of the call if it runs that script.
func (c scriptWords) of(script string, word int) string {
	if len(c) <= word+1 || c[0] != script {
		return ""
	}
	return c[word+1]
}

func (c scriptWords) runs(script string) bool { return len(c) > 0 && c[0] == script }

// lacks reports whether some of the permits that a reserve takes have not come back yet. Such a reservation is nobody's
// grant: its caller goes on only after a reserve which finds that nothing lacks. Until then its name is the first.
func (m *monitor) lacks() bool {
	name := m.call.of(reserveScript, reserveName)
	return name != "" && strings.HasPrefix(m.queues[m.call.of(reserveScript, reserveQueue)], name+" ")
}

// zrem takes out what a reserve moves and a give_back refunds. What others remove was granted all the same.
func (m *monitor) zrem(w []string) {
	if len(w) != 3 {
		return
	}
	key, member := w[1], w[2]
	left := int64(0)
	at, ok := m.last[key+member]
	ok = ok && at.index >= 0
	switch {
	case m.call.runs(reserveScript) && !strings.HasPrefix(member, "\x10~t~"): // otherwise a mark that is spent, which was a grant
		delete(m.last, key+member)
		if ok {
			m.grants[key][at.index].Permits = 0
		}
	case ok && member == m.call.of(giveBackScript, backMember):
		if smaller := m.call.of(giveBackScript, backSmaller); smaller != "" {
			left = permitsOfMember(smaller)
			m.last[key+smaller] = place{at.index, at.score}
		}
		m.grants[key][at.index].Permits = left
	}
}

func (m *monitor) zadd(stamp string, w []string) {
	nx := len(w) == 5
	switch {
	case nx && strings.EqualFold(w[2], "XX"):
		return // the probe of an outage, which changes nothing
	case nx:
		w = append(w[:2:2], w[3:]...)
	case len(w) != 4:
		m.t.Errorf("monitor: %q", w)
		return
	case w[3] == m.call.of(giveBackScript, backSmaller):
		return // what is left of a grant
	}
	key, member := w[1], w[3]
	score, err := strconv.ParseFloat(w[2], 64)
	seconds, micros, _ := strings.Cut(stamp, ".")
	s, err2 := strconv.ParseInt(seconds, 10, 64)
	us, err3 := strconv.ParseInt(micros, 10, 64)
	if err != nil || err2 != nil || err3 != nil || len(member) < 8 {
		m.t.Errorf("monitor: %q at %q", w, stamp)
		return
	}
	reserves, g := m.call.runs(reserveScript), grantlog.Grant{Begin: scored(score), End: time.Unix(s, us*1000)}
	if !nx && !reserves { // our scripts use NX, except for what a reserve moves
		g.By = javas
	}
	switch {
	case isBlock(member) || score == 0: // a block of a cool-down, or the tripwire of waiting callers
	case m.lacks():
		m.last[key+member], m.ids[key+idOf(member)] = place{-1, g.Begin}, g.Begin
	case g.By == javas && m.shrinks(key, member, g.Begin):
	default:
		m.add(key, member, g)
	}
}

// shrinks reports whether the member is a grant that is already there, made smaller because part of it has expired or
// was taken out. It was granted all the same.
func (m *monitor) shrinks(key, member string, score time.Time) bool {
	before, ok := m.ids[key+idOf(member)]
	return ok && before == score
}

// idOf returns the random part of a member, which the member keeps when it becomes smaller.
func idOf(member string) string {
	if n := len(member); n == 21 && member[4:8] == member[17:] {
		return member[:4] + member[8:17]
	}
	return member[:len(member)-4]
}

// add adds a grant unless it is not new: one of ours whose member is there already, or one of Java's with the same
// member and score, which was sent again. Java's 8-byte members repeat by chance now and then.
func (m *monitor) add(key, member string, g grantlog.Grant) {
	g.Permits = permitsOfMember(member)
	if before, ok := m.last[key+member]; ok && (before.score == g.Begin || !isJava(g)) {
		return
	}
	m.last[key+member] = place{len(m.grants[key]), g.Begin}
	m.ids[key+idOf(member)] = g.Begin
	m.grants[key] = append(m.grants[key], g)
}

// permitsOfMember returns the permits of a grant, which every layout has at its end.
func permitsOfMember(member string) int64 {
	return int64(binary.LittleEndian.Uint32([]byte(member[len(member)-4:])))
}

// reconcile adds the grants of the set that the monitor has not seen, because the server died after it wrote a grant
// and before it reported it. Their time of execution is unknown. A grant that became smaller then has been seen.
func (m *monitor) reconcile(key string) (missed int) {
	m.t.Helper()
	members := redistest.Must(m.rdb.ZRangeWithScores(m.t.Context(), key, 0, -1).Result())(m.t)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, z := range members {
		member := z.Member.(string)
		if _, ok := m.last[key+member]; !ok && !m.shrinks(key, member, scored(z.Score)) {
			missed++
			g := grantlog.At(scored(z.Score), 0)
			g.By = oursUnseen
			if w, _ := wire.ParseMember([]byte(member)); w.Format != wire.FormatBc0I || member[4:8] != member[len(member)-4:] {
				g.By = javasUnseen
			}
			m.add(key, member, g)
		}
	}
	return missed
}

// isBlock reports whether m is a block added by a cool-down of ours, and not a grant.
func isBlock(m string) bool {
	return len(m) == 21 && (m[:4] == "\x10~c~" || m[:4] == "\x10~l~") || len(m) == 20 && (m[8:10] == "~c" || m[8:10] == "~l")
}
