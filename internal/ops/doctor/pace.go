// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"math"
	"time"
)

// farOff is how long a cool-down takes at most that somebody can have meant: no platform bans for more than a year.
const farOff = 366 * 24 * time.Hour

// coolDown finds a cool-down. One that takes years is a mistake, such as one of seconds for milliseconds.
func (p *patient) coolDown() []Finding {
	at, reopen := p.main.CoolDown(), p.main.ReopenUntil()
	never := p.main.Time.Add(farOff)
	if at.IsZero() && !reopen.After(never) {
		return nil
	}
	s, found := Info, say("re-opening until %s", reopen.UTC().Format(time.RFC3339))
	if at.After(never) || reopen.After(never) {
		s = Warning
	}
	switch {
	case at.After(never): // a Duration has 292 years at most
		found = say("a cool-down until %s", at.UTC().Format(time.RFC3339))
	case !at.IsZero():
		found = say("a cool-down for another %v, until %s", at.Sub(p.main.Time).Round(time.Millisecond), at.UTC().Format(time.RFC3339))
	}
	if reopen.After(at) && !at.IsZero() {
		found = say("%s, then re-opening until %s", found, reopen.UTC().Format(time.RFC3339))
	}
	waiting := p.main.Waiting().Callers
	if waiting > 0 {
		found = say("%s; callers that wait: %d", found, waiting)
	}
	fix := run(p.rrl("lift", "--write")).onlyIf(word("it should end now"))
	if p.main.Problem != nil { // lift would end with an error
		fix = hashFirst
	}
	f := p.of(p.main, "cool-down", s, fix, "%s", found)
	f.waiting = waiting
	return []Finding{f}
}

// minGap finds a least gap with which callers that ask for one permit do not get the rate. A gap is a whole number of ms, so
// one that was rounded up is not meant.
func (p *patient) minGap() []Finding {
	if p.main.Problem != nil || p.main.Rate.MinGap <= 0 || p.reachesOthers() || p.shortKeepAlive() { // with a short one no rate can be set
		return nil
	}
	r := p.main.Rate
	if float64(r.Permits)*float64(r.MinGap-time.Millisecond) < float64(r.Interval) {
		return nil
	}
	gap := (r.Interval / time.Duration(min(r.Permits, math.MaxInt32))).Truncate(time.Millisecond)
	return []Finding{p.of(p.main, "min-gap", Warning, run(p.rrl("set-rate", "--min-gap "+gap.String(), "--write")).onlyIf(ConditionOf(r, p.main)),
		"with at least %v between permits, requests for one permit get %d of the %d permits in %v", r.MinGap, (r.Interval+r.MinGap-1)/r.MinGap, r.Permits, r.Interval)}
}
