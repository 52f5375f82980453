// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// A hints is what replies have said about a limiter. It helps to choose the call that is most likely needed next.
// Hints may be wrong; the scripts notice that. A nil hints says nothing and learns nothing.
type hints struct {
	mu         sync.Mutex
	typ        permit.Type
	rate       permit.Rate
	trust      trust
	noTTLUntil time.Time // until when the hash is assumed to have no TTL
	noted      time.Time // when a call last noted who waits, of a PER_CLIENT limiter
	checks     checkSchedule
}

// trustNoTTL is how long the hash is assumed to have no TTL after it was found to have none. Whoever gives it a TTL
// gives one to the other keys, too, so only a key that is created within this time could lack it.
const trustNoTTL = time.Second

// noteEvery is how often a call notes at most who waits for a PER_CLIENT limiter, since acquire does not do so. A call of a lower
// class is not one for acquire, and the note is that of another queue.
const noteEvery = time.Second

// prepare fills in the type of b, and whether it checks. It reports whether acquire can skip the look for a TTL, and
// whether the limiter has a gap.
func (h *hints) prepare(b *permit.Batch, now time.Time) (noTTL, gap bool) {
	if h == nil {
		return false, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !b.Replay { // a replay asks for the same again
		b.Type = h.typ
		if b.Allowance.NoteFor > 0 && b.Type == permit.PerClient && b.Floor == 0 {
			if now.Sub(h.noted) < noteEvery {
				b.Allowance.NoteFor = 0
			} else {
				h.noted = now
			}
		}
		switch {
		case b.Healed:
			b.Check = permit.Unchecked
		case b.Check == permit.Unchecked && !b.DryRun && b.Cursor.Members == 0 && b.At.IsZero():
			b.Check = h.checks.take(now, h.rate, b.Runs[0].Permits*b.Runs[0].Count, CheckSample, true)
		}
	}
	return now.Before(h.noTTLUntil), h.rate.MinGap > 0
}

// learn records the reply to b, which was sent at the given instant. If the reply grants nothing, permits may have
// been lost: now and then learn asks the caller to go on with a check.
func (h *hints) learn(b *permit.Batch, a *reading, sent time.Time) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.typ = b.Type
	if a.noTTL {
		h.noTTLUntil = sent.Add(trustNoTTL)
	}
	if a.Rate.Interval > 0 {
		last := h.rate
		changed := last.Interval > 0 && (a.Rate.Permits != last.Permits || a.Rate.Interval != last.Interval)
		h.trust.learn(changed, a.Rate.Interval, sent)
		if b.Check != permit.Unchecked && a.Next == permit.Done {
			h.trust.fits = true
		}
		if changed {
			// The state may not fit the new rate: the permits of a PER_CLIENT client stay when another client sets it. If this reply is a
			// rejection, the check follows it.
			h.checks.nextAudit = time.Time{}
			h.checks.suspect = true
		}
		if h.checks.nextCheck.IsZero() {
			h.checks.nextCheck = sent.Add(checkEvery(a.Rate.Interval))
		}
		h.rate = a.Rate
	}
	if a.Next != permit.Done || !b.At.IsZero() {
		return
	}
	h.checks.rejected = slices.Max(a.Granted) == 0 // nothing was granted, and not only because it exceeds the rate
	if h.checks.rejected && !b.Healed && !sent.Before(h.checks.nextAudit) {
		h.checks.postpone(sent.Add(checkEvery(a.Rate.Interval)))
		if b.Check == permit.Unchecked {
			a.Next, a.Cursor, b.Check = permit.On, permit.Cursor{}, permit.Checked
		}
	}
}

func (h *hints) locked(f func()) {
	if h != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		f()
	}
}

// learnType records that the limiter has a new rate, or another type than expected. The next rejection may look for lost
// permits again.
func (h *hints) learnType(typ permit.Type) { h.locked(func() { h.learnTypeLocked(typ) }) }

func (h *hints) learnTypeLocked(typ permit.Type) {
	h.typ, h.checks.nextAudit, h.noTTLUntil = typ, time.Time{}, time.Time{}
}

// learnRate records the rate that this process has set. The state fits it.
func (h *hints) learnRate(r permit.Rate) {
	h.locked(func() {
		h.rate, h.trust, h.checks.suspect = r, trust{fits: true, seen: time.Now()}, false
		h.learnTypeLocked(r.Type)
	})
}

// forgetTTL records that the limiter may have got a TTL.
func (h *hints) forgetTTL() { h.locked(func() { h.noTTLUntil = time.Time{} }) }

// healed records that a heal for the given cause, which began at the given instant, has ended, and whether all adds up now.
func (h *hints) healed(c permit.HealCause, began time.Time, whole bool) {
	if c == permit.Unchecked {
		return // it need not have added up
	}
	h.locked(func() { // adding up a large set takes no more than 1 % of the time
		h.checks.postpone(began.Add(max(checkEvery(h.rate.Interval), 100*time.Since(began))))
		h.trust.fits = h.trust.fits || whole && !h.trust.since.After(began)
	})
}

// A surplus says what becomes of permits that are too many.
type surplus int

const (
	offValue  surplus = iota // all grants are believed
	ofRelease                // they are what Java released: the oldest grants go
	stays                    // it is not known which of them
)

// surplus returns what becomes of permits that are too many, and the rate that the state is known to have been of. Without hints the grants
// are believed.
func (h *hints) surplus() (s surplus, rate int64) {
	h.locked(func() { s, rate = h.trust.surplus(h.rate.Interval), h.rate.Permits })
	return s, rate
}

// A trust is what a process knows of how the state came to be: whether what is too much there can be what Java released.
type trust struct {
	fits  bool      // value and the permits in use have added up to the rate since it was last seen to change
	saw   bool      // it has been seen to change: then grants of another one may be in use
	since time.Time // since when replies have had it, and no two calls have been further apart than its interval
	seen  time.Time // when the last of these calls was sent
}

// learn records that the reply to a call sent at the given instant has a rate with that interval, and whether the one before had another.
// Between two calls another client may have set a rate and another one; the hash knows of those set with KeepState.
func (t *trust) learn(changed bool, interval time.Duration, sent time.Time) {
	if changed || sent.Sub(t.seen) > interval { // the first has been seen at the zero time
		*t = trust{saw: changed, since: time.Now()}
	}
	t.seen = sent
}

func (t *trust) surplus(interval time.Duration) surplus {
	switch {
	case t.fits:
		return ofRelease
	case interval == 0 || t.saw || t.seen.Sub(t.since) >= checkEvery(interval):
		return offValue // after an interval what Java had released has expired; and processes that end sooner must not leave it for ever
	}
	return stays
}

// A hintTable has the hints of recently used limiters, in a fixed number of places.
type hintTable struct {
	seed  maphash.Seed
	mu    sync.Mutex
	slots [512]struct {
		key   string
		hints *hints
	}
}

// of returns the hints that handles of the limiter with that key share. They are replaced when a limiter whose key
// hashes alike is used.
func (t *hintTable) of(key string) *hints {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.slots[maphash.String(t.seed, key)%uint64(len(t.slots))]
	if s.key != key || s.hints == nil {
		s.key, s.hints = key, &hints{checks: checkSchedule{calls: rand.Uint32N(CheckSample)}}
	}
	return s.hints
}

// A checkSchedule decides when a limiter's state in Redis is checked for permits that are lost or too many.
type checkSchedule struct {
	nextAudit time.Time // the next check, after a rejection
	nextCheck time.Time // the next check, in a call that may be granted
	suspect   bool      // the rate has changed, so the next call checks
	rejected  bool      // the last reply granted nothing, so the next one may reject, too
	calls     uint32    // since the last check
	permits   int64     // that these asked for
}

// checkEvery returns how often to look for permits that are lost or too many: once an interval, but at most every 50
// ms, and at least every minute, because another client may have set a rate with a shorter interval.
func checkEvery(interval time.Duration) time.Duration {
	return min(max(interval, 50*time.Millisecond), time.Minute)
}

// CheckSample bounds the share of calls that check the state: at most one in CheckSample calls of a limiter does,
// however often it is asked and however many limiters there are. There is one exception. If fewer calls than
// CheckSample have asked for as many permits as the rate has, the next one may check, because a window may hold more
// than the rate if there are too many permits.
//
// A limiter that is new to this process starts at a random count. Otherwise none of many limiters that are asked once
// would ever be checked.
const CheckSample = 64

// take decides whether the call that leaves now, for the given number of permits, checks that the permits left and
// those in use add up to the rate, even if nothing is rejected. It returns Checked, or Unchecked if the call does not check. After a
// check, no other call needs to check for an interval.
//
// With audits, a call after a rejection checks at once if a check would have to follow its own rejection. That saves
// the second call.
func (c *checkSchedule) take(now time.Time, r permit.Rate, permits int64, sample uint32, audits bool) permit.HealCause {
	c.calls, c.permits = c.calls+1, c.permits+permits
	early := now.Before(c.nextCheck)
	if r.Permits == 0 { // no reply has reported the rate, as none of a list does: a second call finds it out
		early = early || c.nextCheck.IsZero() && c.calls < sample
	} else {
		early = early || c.calls < sample && c.permits < r.Permits
	}
	if early && !c.suspect && !(audits && c.rejected && !now.Before(c.nextAudit)) {
		return permit.Unchecked
	}
	c.suspect, c.calls, c.permits = false, 0, 0
	c.nextCheck = now.Add(checkEvery(r.Interval))
	return permit.Checked
}

// postpone prevents checks before the given instant.
func (c *checkSchedule) postpone(until time.Time) { c.nextAudit, c.nextCheck = until, until }

// CheckDue returns why the state should be checked now, or Unchecked if it should not. It is for a caller of the given
// number of permits whose own calls check nothing. Each such check is a call of its own.
func (l *Limiter) CheckDue(permits int64) (cause permit.HealCause) {
	h, now := l.hints, time.Now()
	h.locked(func() {
		cause = h.checks.take(now, h.rate, permits, 4*CheckSample, false)
		if h.checks.nextCheck.IsZero() {
			h.checks.nextCheck = now.Add(time.Second) // no reply has reported the interval
		}
	})
	return cause
}
