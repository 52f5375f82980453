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
	noTTLUntil time.Time // until when the hash is assumed to have no TTL
	checks     checkSchedule
}

// trustNoTTL is how long the hash is assumed to have no TTL after it was found to have none. Whoever gives it a TTL
// gives one to the other keys, too, so only a key that is created within this time could lack it.
const trustNoTTL = time.Second

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
		h.checks.learn(h.rate, a.Rate, sent)
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
func (h *hints) learnType(typ permit.Type) {
	h.locked(func() { h.typ, h.checks.nextAudit, h.noTTLUntil = typ, time.Time{}, time.Time{} })
}

// forgetTTL records that the limiter may have got a TTL.
func (h *hints) forgetTTL() { h.locked(func() { h.noTTLUntil = time.Time{} }) }

// healed records that a heal for the given cause, which began at the given instant, has ended.
func (h *hints) healed(c permit.HealCause, began time.Time) {
	if c != permit.Unchecked { // adding up a large set takes no more than 1 % of the time
		h.locked(func() { h.checks.postpone(began.Add(max(checkEvery(h.rate.Interval), 100*time.Since(began)))) })
	}
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
