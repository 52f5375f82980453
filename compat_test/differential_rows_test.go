// SPDX-License-Identifier: Apache-2.0

package compat_test

import "strconv"

// A twinRow is an entry of the closed list: a row of docs/compatibility.md. We must do exactly what the jar's script
// does, changed only by the entries that hold in the state before the operation.
type twinRow struct {
	id, title string
	// heals reports whether, in this state, we do what the jar does after value is set to rate − permits in the set.
	heals func(c twinCase) bool
	// alters turns what the jar does into what we do, and reports whether the two differ.
	alters func(c twinCase, w *twinOutcome) bool
}

// twinRows are applied in this order. A run that does not meet each of them fails.
var twinRows = []twinRow{
	{id: "1", title: "too little left, nothing in use: everything is free", heals: func(c twinCase) bool {
		s, expired, live := c.permits()
		if !s.has || len(live) > 0 || s.value+expired.total() >= c.before.number("rate") {
			return false
		}
		switch c.op.name {
		case "tryAcquire":
			return s.value+expired.total() < c.op.permits
		case "release":
			return len(expired) == 0
		}
		return c.op.name == "availablePermits"
	}},
	{id: "3", title: "value lost: rebuilt from the grants in the set", heals: func(c twinCase) bool {
		s, _, _ := c.permits()
		return c.op.usesPermits() && !s.has && len(s.members) > 0
	}},
	{id: "4", title: "lost permits come back, once an interval when somebody is rejected", heals: func(c twinCase) bool {
		s, expired, live := c.permits()
		if !s.has || len(live) == 0 || s.value+s.members.total() >= c.before.number("rate") {
			return false
		}
		if c.op.name == "tryAcquire" {
			return s.value+expired.total() < c.op.permits && (c.audits || c.outOfReach())
		}
		return c.op.name == "availablePermits"
	}},
	{id: "8, 12", title: "more left than the rate, after availablePermits or another client's setRate: the set decides", heals: func(c twinCase) bool {
		s, expired, _ := c.permits()
		if !s.has || s.value+expired.total() <= c.before.number("rate") {
			return false
		}
		// Since 3.16.2 Redisson makes this check itself when an acquire reclaims something.
		return c.op.name == "availablePermits" || c.op.name == "tryAcquire" && (len(expired) == 0 || !c.version.since("3.16.2"))
	}},
	{id: "10", title: "permits out of range: an error, and nothing changes", alters: func(c twinCase, w *twinOutcome) bool {
		return c.op.usesPermits() && c.op.outOfRange() && c.rejects(w)
	}},
	{id: "11", title: "rates and intervals out of range: an error, and nothing changes", alters: func(c twinCase, w *twinOutcome) bool {
		return !c.op.usesPermits() && c.op.outOfRange() && c.rejects(w)
	}},
	{id: "12", title: "setRate forgets the state of the other type too", alters: func(c twinCase, w *twinOutcome) bool {
		if !c.op.setsRate() || c.op.keep && c.before.hash["type"] == c.op.typ || c.op.keep && c.before.hash["type"] == "" ||
			w.answer.word != "null" && w.answer.word != "true" {
			return false
		}
		found := false
		for _, i := range []int{0, 1 + c.op.client} {
			s := &w.state.slots[i]
			found = found || s.has || len(s.members) > 0
			*s = twinSlot{valueTTL: noKey, permitsTTL: noKey}
		}
		return found
	}},
	{id: "19", title: "trySetRate that answers false changes nothing", alters: func(c twinCase, w *twinOutcome) bool {
		if c.op.name != "trySetRate" || !c.before.initialized() || c.before.hash["keepAliveTime"] != "" || w.state.hash["keepAliveTime"] == "" {
			return false
		}
		delete(w.state.hash, "keepAliveTime")
		return true
	}},
	{id: "5 (3 ms)", title: "the wait of the oldest grant is exact", alters: func(c twinCase, w *twinOutcome) bool {
		wait, members, _ := c.wait(w)
		if members != 1 || w.answer.wait == wait {
			return false
		}
		w.answer.wait -= 3
		return true
	}},
	{id: "5", title: "the wait is until that many permits are free", alters: func(c twinCase, w *twinOutcome) bool {
		wait, members, oldest := c.wait(w)
		if members < 2 || w.answer.wait != oldest {
			return false
		}
		w.answer.wait = wait
		return oldest != wait
	}},
	{id: "13", title: "a score ahead of the clock makes nobody wait longer than an interval", alters: func(c twinCase, w *twinOutcome) bool {
		interval := c.before.number("interval")
		if w.answer.word != rejected || w.answer.wait <= interval {
			return false
		}
		w.answer.wait = interval
		return true
	}},
	{id: "7", title: "a call reclaims so many grants and no more", alters: alterBounded},
	{id: "18", title: "a lower rate with the state kept: fewer than 0 permits are left", alters: func(c twinCase, w *twinOutcome) bool {
		if !c.keeps(w) {
			return false
		}
		s := &w.state.slots[c.slot]
		// Our permits in the order in which they lie in our set.
		_, live := c.before.slots[c.slot].split(c.now, c.op.interval)
		if live.total() <= c.op.rate || len(c.before.slots[c.slot].members) > setBound {
			return false
		}
		s.has, s.value = true, c.op.rate-live.total()
		return true
	}},
	{id: "12 (others)", title: "a lower rate, or a longer interval, fits the permits of the other clients", alters: alterOthers},
	{id: "8", title: "availablePermits reads, and answers 0 to rate", alters: func(c twinCase, w *twinOutcome) bool {
		if c.op.name != "availablePermits" || !c.before.initialized() {
			return false
		}
		n, err := strconv.ParseInt(w.answer.word, 10, 64)
		if err != nil {
			return false
		}
		changed := len(w.state.differs(c.before, c.began)) > 0
		if free := max(0, min(n, c.before.number("rate"))); free != n {
			w.answer.word, changed = strconv.FormatInt(free, 10), true
		}
		w.state = c.before.clone()
		return changed
	}},
	{id: "9", title: "release takes grants out of the set, newest first", alters: func(c twinCase, w *twinOutcome) bool {
		if c.op.name != "release" || w.answer.word != "null" {
			return false
		}
		was, s := c.healed.slots[c.slot], &w.state.slots[c.slot]
		used := was.members.total()
		if used == 0 {
			return false
		}
		back := min(c.op.permits, used)
		s.members = was.members.oldest(used - back)
		s.value = min(c.before.number("rate"), was.value+back)
		if len(s.members) == 0 {
			s.value, s.permitsTTL = c.before.number("rate"), noKey
		}
		return true
	}},
	{id: "17", title: "the keys of a PER_CLIENT client get a TTL and keep it", alters: func(c twinCase, w *twinOutcome) bool {
		return alterClientTTL(c, w, true)
	}},
	{id: "17 (kept)", title: "nor do our writes drop any other TTL that value has", alters: func(c twinCase, w *twinOutcome) bool {
		return alterClientTTL(c, w, false)
	}},
}

// setBound is the number of members that our scripts look at in one call, and that acquire_rest reclaims if it needs them.
// acquire reclaims a page of pageBound after another until it has enough, pagesBound at most, and acquire_rest a page if it
// has enough without them.
const setBound, pageBound, pagesBound = 512, 64, 1024

// reclaimed returns how many of the expired grants our acquire of so many permits reclaims.
func (c twinCase) reclaimed(was twinSlot, expired twinMembers) (taken int) {
	value, before := was.value, c.before.slots[c.slot]
	usual := before.has && before.value == was.value && !c.checks
	for {
		if usual {
			v, n := value, taken
			for end := taken + pagesBound; n < end && (n == taken || v < c.op.permits); {
				page := min(pageBound, len(expired)-n)
				v += expired[n : n+page].total()
				if n += page; page < pageBound {
					break
				}
			}
			if (v >= c.op.permits || n == len(expired)) && v <= c.before.number("rate") {
				return n
			} // otherwise acquire has changed nothing
		}
		bound := setBound
		if value >= c.op.permits {
			bound = pageBound
		}
		n := min(bound, len(expired)-taken)
		value += expired[taken : taken+n].total()
		taken += n
		if value >= c.op.permits || n < bound {
			return taken
		}
	}
}

// alterBounded explains what is left in the set: it has expired, and comes back later.
func alterBounded(c twinCase, w *twinOutcome) bool {
	switch {
	case c.op.name == "tryAcquire" && w.answer.word == granted:
		was, s := c.healed.slots[c.slot], &w.state.slots[c.slot]
		expired, live := was.split(c.now, c.before.number("interval"))
		if !was.has {
			return false
		}
		left := expired[c.reclaimed(was, expired):]
		if len(left) == 0 {
			return false
		}
		s.members = append(left[:len(left):len(left)], s.members...)
		s.value -= left.total()
		if len(live) == 0 && s.permitsTTL == noTTL {
			s.permitsTTL = was.permitsTTL // the set was not emptied
		}
		return true
	case c.keeps(w) && len(c.before.slots[c.slot].members) > setBound:
		was, s := c.before.slots[c.slot], &w.state.slots[c.slot]
		s.members = was.members
		s.value = c.op.rate - s.members.total()
		if s.permitsTTL == noKey { // all were expired
			if s.permitsTTL = w.state.hashTTL; s.permitsTTL < 0 {
				s.permitsTTL = c.before.slots[c.slot].permitsTTL
			}
		}
		return true
	}
	return false
}

// alterOthers explains what a rate of ours that is lower than before, whose hash was lost, or that keeps the state for a longer
// interval makes of the permits of the other clients of a PER_CLIENT limiter.
func alterOthers(c twinCase, w *twinOutcome) bool {
	typ, old := c.before.hash["type"], c.before.number("rate")
	longer := c.op.keep && c.before.number("interval") < c.op.interval
	if !c.op.setsRate() || c.op.typ != "1" || w.answer.word != "null" && w.answer.word != "true" ||
		typ == "" && old == 0 && !c.op.keep || typ == "1" && 0 < old && old <= c.op.rate && !longer {
		return false
	}
	changed := false
	for i := 1; i < len(w.state.slots); i++ {
		s, members := &w.state.slots[i], c.before.slots[i].members // in the order in which they lie in our set
		used := members.total()
		if i == 1+c.op.client || !s.has && len(members) == 0 {
			continue
		}
		if !s.has && s.permitsTTL >= 0 {
			s.valueTTL = s.permitsTTL
		} else if !s.has {
			s.valueTTL = noTTL
		}
		left := c.op.rate - members.total()
		changed = changed || !s.has || s.value != left || used > c.op.rate
		s.has, s.value, s.members = true, left, members
		// What has a TTL lives for as long as the permits in use, but no longer than the hash.
		stay := c.op.interval
		if w.state.hashTTL >= 0 {
			stay = min(stay, w.state.hashTTL)
		}
		for _, ttl := range []*int64{&s.valueTTL, &s.permitsTTL} {
			if *ttl >= 0 && *ttl < stay {
				*ttl, changed = stay, true
			}
		}
	}
	return changed
}

// alterClientTTL explains a TTL that Redisson drops: the SET of a reclaim or a release removes the TTL of value, and
// where the limiter has none nothing restores it.
func alterClientTTL(c twinCase, w *twinOutcome, given bool) bool {
	if c.slot < 0 || given != (c.slot > 0 && c.clientTTL > 0) || w.state.hashTTL >= 0 || w.state.number("keepAliveTime") > 0 {
		return false // otherwise the limiter's TTL applies
	}
	was, s := c.before.slots[c.slot], &w.state.slots[c.slot]
	value, permits := s.valueTTL, s.permitsTTL
	acquired := c.op.name == "tryAcquire" && (w.answer.word == granted || w.answer.word == rejected)
	applied := acquired || c.op.name == "release" && w.answer.word == "null"
	if was.has && applied {
		value = was.valueTTL
	}
	if idle := max(c.clientTTL, 2*c.before.number("interval")); applied && given && min(value, permits) <= idle/2 { // one of an interval, which has begun to pass, is renewed
		value, permits = idle, idle
		if len(s.members) == 0 {
			permits = noKey
		}
	}
	if applied && c.slot > 0 && c.clientTTL == 0 { // keys that live forever lose a TTL that they have
		if value > 0 {
			value = noTTL
		}
		if permits > 0 {
			permits = noTTL
		}
	}
	changed := value != s.valueTTL || permits != s.permitsTTL
	s.valueTTL, s.permitsTTL = value, permits
	return changed
}
