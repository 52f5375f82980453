// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
)

// A Peek is what a caller would be told now.
type Peek struct {
	Available int64         // permits that are left; after a grant those that were asked for still count
	Wait      time.Duration // until the permits are granted if nobody else takes them; 0 for at once
	Known     bool          // false if it would take more members than were read, or the keys of a client
	Why       string        // what the caller waits for, in words; empty if it does not wait
}

// Granted reports whether the caller would be granted its permits at once.
func (p Peek) Granted() bool { return p.Known && p.Wait == 0 }

// A held is a member with the permits that it holds.
type held struct {
	raw     string
	score   float64 // in ms
	due     float64 // when its interval begins: an interval later the permits are back
	permits int64
	block   bool // of a cool-down
}

// peek returns what a caller that asks for that many permits would be told. It does what scripts/acquire_rest.lua does for a
// call that takes nothing, and what a caller does that is rejected: it asks once more, with a check that makes value and
// members add up. TestPeekTellsWhatCallersAreTold compares both.
//
// The script itself could run on a copy of the keys in an embedded Redis. That takes 1 to 4 ms for a limiter with ten members, where
// this takes 2 µs and a list has 100,000 limiters, and it puts an interpreter of Lua, 3.3 MB, into every program with a page.
func (st *State) peek(permits int64) (Peek, error) {
	if permits < 1 || permits > permit.Max {
		return Peek{}, fmt.Errorf("%w: %d permits; ask for 1 to %d", permit.ErrInvalidArgument, permits, int64(permit.Max))
	}
	if permits > st.Rate.Permits {
		return Peek{}, permit.Exceeds(st.Name, permits, 0, st.Rate.Permits)
	}
	now := float64(st.Time.UnixMilli())
	till := redisson.Instant(st.Fields["coolDown"])
	if till > now {
		return Peek{Wait: wait(till - now), Known: true, Why: "the cool-down"}, nil
	}
	if st.Rate.Type == permit.PerClient && st.ClientID == "" {
		return Peek{}, nil
	}
	ends := 0.0 // of the re-opening after a cool-down
	if _, ok := st.Fields["coolDown"]; ok {
		ends = max(till, redisson.Instant(st.Fields["reopenUntil"]))
	}

	// What is left by the value, if that can be believed, and what has expired.
	rate := st.Rate.Permits
	live, freed, ok := st.reclaim(now)
	if !ok {
		if _, newest := st.parts(); len(newest) > 0 && newest[len(newest)-1].Score <= now-st.interval() { // all of them have expired
			return Peek{Available: rate, Known: true}, nil
		}
		return Peek{}, nil
	}
	left, sound := whole(st.Value)
	if left += freed; !st.HasValue || !sound || left > rate {
		if !st.Whole {
			return Peek{}, nil
		}
		left = rate - sumOf(live)
	}
	gap, unmarked, ok := st.gapLeft(live, now)
	if !ok {
		return Peek{}, nil
	}
	enough := left >= permits
	if enough && gap <= 0 {
		return Peek{Available: left, Known: true}, nil
	}

	// The repair: marks and blocks that hold nothing any more, and grants that are ahead of the clock.
	before := sumOf(live)
	live = st.settle(live, now, till, ends)
	left += before - sumOf(live)
	beyond := left > rate
	if left = min(rate, left); st.Whole && len(live) == 0 {
		left = rate
	}
	if !enough || unmarked {
		gap, _, _ = st.gapLeft(live, now)
	}
	if left >= permits && gap <= 0 {
		return Peek{Available: left, Known: true}, nil
	}
	if over := left + sumOf(live) - rate; st.Whole && (over < 0 || beyond) {
		left -= over // what was lost comes back, and a value beyond the rate is not believed; what else is too much a new process leaves
	}
	pk := Peek{Available: max(0, left), Known: true}
	if left < permits { // the wait until enough members have expired
		free, last := left, 0.0
		for _, m := range live {
			free, last = free+m.permits, max(last, m.due)
			if free < permits {
				continue
			}
			if pk.Wait, pk.Why = max(time.Millisecond, wait(last+st.interval()-now)), "the permits in use"; m.block {
				pk.Why = "the cool-down"
			}
			break
		}
		if pk.Wait == 0 {
			return Peek{Available: pk.Available}, nil // the rest was not read
		}
	}
	if gap > 0 && wait(gap) >= pk.Wait {
		pk.Wait, pk.Why = wait(gap), "the least gap between permits"
	}
	return pk, nil
}

// blocked returns the permits that a cool-down holds, or has given back, and that nobody was granted in the last interval.
func (st *State) blocked() (n int64) {
	for _, m := range st.Members {
		mark := m.Mark()
		if at, granted := m.Granted(); (mark == 'c' || mark == 'l') && !m.Expired(st.Time, st.Rate.Interval) && (!granted || mark == 'l' || st.Time.Sub(at) >= st.Rate.Interval) {
			n += int64(m.Permits)
		}
	}
	return n
}

func (st *State) interval() float64 { return float64(st.Rate.Interval.Milliseconds()) }

// wait returns a number of ms as a duration.
func wait(ms float64) time.Duration {
	return time.Duration(min(ms, float64(math.MaxInt64/time.Millisecond))) * time.Millisecond
}

// reclaim returns the members that have not expired, and the permits of those that have. It reports false if there may be
// more of those than were read.
func (st *State) reclaim(now float64) (live []held, freed int64, ok bool) {
	oldest, _ := st.parts()
	for _, m := range oldest {
		if m.Score <= now-st.interval() {
			freed += int64(m.Permits)
		} else {
			live = append(live, held{m.Raw, m.Score, m.Score, int64(m.Permits), false})
		}
	}
	return live, freed, st.Whole || len(live) > 0
}

func sumOf(live []held) (n int64) {
	for _, m := range live {
		n += m.permits
	}
	return n
}

// gapLeft returns for how many ms nothing is granted after the newest grant, as scripts/shared/gap.lua does, and whether there are
// grants to be marked. It reports false if the newest grant was not read.
func (st *State) gapLeft(live []held, now float64) (left float64, unmarked, ok bool) {
	if st.Rate.MinGap <= 0 {
		return 0, false, true
	}
	if !st.Whole {
		live = nil
		_, newest := st.parts()
		for _, m := range newest {
			live = append(live, held{m.Raw, m.Score, m.Score, int64(m.Permits), false})
		}
	}
	newest := math.Inf(-1)
	for _, m := range slices.Backward(live) {
		if _, _, block := blockOf(m.raw); block || m.permits == 0 {
			continue
		}
		at := m.score
		seen, marked := seenAt(m.raw)
		if marked {
			at = min(at, seen)
		}
		if at > now {
			at, unmarked = now, true
		}
		if at > newest {
			newest, left = at, at+min(float64(st.Rate.MinGap.Milliseconds())*float64(m.permits), st.interval())-now
		}
		if m.score <= now && !marked {
			return left, unmarked, true
		}
	}
	return left, unmarked, st.Whole
}

// settle returns the members as a call leaves them that has too few permits: without those that hold nothing any more,
// and with the instants from which the others do.
func (st *State) settle(live []held, now, till, ends float64) []held {
	kept := make([]held, 0, len(live))
	for _, m := range live {
		if t, joined, ok := blockOf(m.raw); ok {
			over := ends
			if joined {
				over = till
			}
			m.block = true
			if m.score+st.interval() > max(now, over) && (t == 0 || t <= now+32 && t <= m.score+32 && t >= m.score-63244800000) {
				if t = min(t, now); t <= now-st.interval() {
					continue
				}
				m = held{"", t, t, m.permits, false} // a grant again
			}
			kept = append(kept, m)
			continue
		}
		seen, marked := seenAt(m.raw)
		if marked && seen+st.interval() <= now {
			continue
		}
		if m.due = min(m.score, now); marked {
			m.due = min(m.due, seen)
		}
		kept = append(kept, m)
	}
	slices.SortStableFunc(kept, func(a, b held) int { return cmp.Compare(a.score, b.score) })
	return kept
}

// instantOf returns six bytes as an instant in ms. The first of them has flags of the member, which mask leaves out.
func instantOf(raw string, mask byte) float64 {
	return float64(binary.BigEndian.Uint64([]byte{0, 0, raw[0] & mask, raw[1], raw[2], raw[3], raw[4], raw[5]}))
}

// seenAt returns when acquire first saw a member that it then marked, because it was ahead of the clock.
func seenAt(raw string) (float64, bool) {
	if len(raw) != 21 || !strings.HasPrefix(raw, "\x10~t~") {
		return 0, false
	}
	return instantOf(raw[8:], 0xff), true
}

// blockOf returns the instant of the grants whose place a block of a cool-down took, 0 for permits that were free, and
// whether it joined a cool-down that was there.
func blockOf(raw string) (t float64, joined, ok bool) {
	switch {
	case len(raw) == 21 && strings.HasPrefix(raw, "\x10~c~") && raw[4:8] == raw[17:]:
		raw = raw[8:]
	case len(raw) == 20 && raw[8:10] == "~c":
		raw = raw[10:]
	default:
		return 0, false, false
	}
	if t = instantOf(raw, 3); t < 1<<32 {
		t = 0
	}
	return t, raw[0] >= 128, true
}
