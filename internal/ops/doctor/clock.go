// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"time"

	"github.com/goredisson/ratelimiter/internal/ops/survey"
)

// clockTolerance is how far ahead of Redis a grant may be dated without a finding: what a clock that is set by NTP
// differs.
const clockTolerance = 50 * time.Millisecond

// clock finds grants that are dated ahead of Redis and, with a second look, those that came late with an early date.
func (p *patient) clock() (list []Finding) {
	for _, st := range p.states() {
		if f, ok := p.ahead(st); ok {
			list = append(list, f)
		}
	}
	if p.later == nil || p.main.Problem != nil || int64(len(p.main.Members)) != p.main.Count {
		return list
	}
	had := map[string]bool{}
	for _, m := range p.main.Members {
		had[m.Raw] = true
	}
	var behind time.Duration
	var worst survey.Member
	for _, m := range p.later.Members {
		if had[m.Raw] || m.Mark() != 0 {
			continue
		}
		if d := p.main.Time.Sub(m.Time()); d > behind {
			behind, worst = d, m
		}
	}
	// A member that was made smaller is a new one with the date of the old; such members have the same score.
	for _, m := range p.main.Members {
		if m.Score == worst.Score {
			return list
		}
	}
	if behind > clockTolerance {
		list = append(list, p.of(p.main, "clock", Warning, say("set the clocks by NTP; the grant is by %s", word(worst.Writers())),
			"a grant that came within the last moment is dated %v before it", behind.Round(time.Millisecond)))
	}
	return list
}

// ahead finds grants that are dated ahead of Redis. Their permits come back an interval after Go, or rrl heal, has met and
// marked them, and Redisson waits for their dates until they are taken out then. Who wrote a marked one is not known.
func (p *patient) ahead(st *survey.State) (Finding, bool) {
	var worst survey.Member
	ahead, n, marked := clockTolerance, 0, 0
	var wait time.Duration // until the last of them can be taken out
	var now bool           // whether something can be done before
	for _, m := range st.Members {
		if mark := m.Mark(); mark == 'c' || mark == 'l' || mark == 'w' || !m.Known() {
			continue
		}
		d := m.Time().Sub(st.Time)
		if d <= clockTolerance {
			continue
		}
		n++
		back := st.Rate.Interval
		if seen, ok := m.Seen(); ok {
			marked++
			back = max(0, seen.Add(back).Sub(st.Time))
			now = now || back == 0
		} else {
			now, worst = true, m
		}
		ahead, wait = max(ahead, d), max(wait, back)
	}
	if n == 0 {
		return Finding{}, false
	}
	heal, after := p.healing(st), (wait + time.Millisecond).Round(time.Millisecond)
	fix := say("give the permits back: %s", heal)
	switch {
	case now && wait > 0:
		fix = say("mark the grants: %s; after %v, give the permits back: %s", heal, after, run(heal).after(after))
	case wait > 0:
		fix = say("after %v, give the permits back: %s", after, run(heal).after(after))
	}
	by := word(survey.FastWriter)
	if worst.Raw != "" {
		by = word(worst.Writers())
	}
	switch {
	case p.main.Problem != nil || st.WrongType() != nil || strange(st): // heal would end with an error, or touch what is not ours; that is a finding of its own
		fix = say("set the clocks by NTP; the grant is by %s", by)
	case p.healable().String() != "":
		when := p.healable()
		fix = say("set the clocks by NTP: the grants are by %s; once %s: %s", by, when, fix.only(when))
	default:
		fix = say("%s; set the clocks by NTP: the grants are by %s", fix, by)
	}
	f := p.of(st, "clock", Warning, fix, "the dates of %s are up to %v ahead of the clock of Redis", Counted(n, "member"), ahead.Round(time.Millisecond))
	if marked > 0 {
		f = p.of(st, "clock", Warning, fix, "the dates of %s, of which Go has marked %d, are up to %v ahead of the clock of Redis", Counted(n, "member"), marked, ahead.Round(time.Millisecond))
	}
	return f, true
}
