// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// The parts of a history. Times are in ms by the clock of Redis.
type (
	historyKind int

	historyAsk struct {
		kind    historyKind
		client  int // of a request
		permits int64
		id      int // of a caller that left, below 64
	}

	historyAnswer struct {
		granted bool
		value   int64 // for a read
		// Redis decided the request at an instant from lo to hi. The two are equal where the reply tells the instant.
		lo, hi int64
	}

	// historyState is the state of the model: a limiter that is told of one operation after the other.
	historyState struct {
		used   int64  // where nothing expires
		grants string // where grants expire: lo, hi and permits of each
		clock  int64  // no operation is decided before the one that precedes it
		left   uint64 // ids of callers that left and whose permits are taken
	}
)

const (
	kindTake  historyKind = iota // granted or rejected
	kindRead                     // available permits
	kindLeave                    // may have been granted without anyone being told, now or later
	kindBack                     // what was granted that way may go back, now or later
)

// never is the return time of an operation of which nobody knows whether and when it took effect. One that had no
// effect is placed last, where nothing depends on it.
const never = math.MaxInt64

// historyModel accepts the replies that a limiter of that rate may give. Where interval is an hour, no grant ever
// expires and time does not matter.
//
// Otherwise each reply has bounds for its instant, and the model demands what holds at every instant within the
// bounds: a grant must fit beside the grants that are certainly in its window, and a rejection must be due to those
// that may be in it. With exact instants, which Allow tells, the model is exact.
func historyModel(rate int64, interval time.Duration) porcupine.Model {
	m := &historyRules{rate: rate, interval: interval.Milliseconds(), timeless: interval >= time.Hour}
	return porcupine.Model{
		Init: func() any { return historyState{} },
		Step: func(state, input, output any) (bool, any) {
			s := state.(historyState)
			ok := m.step(&s, input.(historyAsk), output.(historyAnswer))
			return ok, s
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v %+v", input, output) },
	}
}

type historyRules struct {
	rate, interval int64
	timeless       bool
}

func (m *historyRules) step(s *historyState, in historyAsk, out historyAnswer) bool {
	if !m.timeless {
		now := max(out.lo, s.clock)
		if now > out.hi {
			return in.kind == kindLeave
		}
		s.clock = now
		s.forget(m.interval)
	}
	certain, possible := s.used, s.used
	for _, g := range s.list() {
		if out.hi < g[0]+m.interval {
			certain += g[2]
		}
		possible += g[2] // forget has dropped the others
	}
	fits := certain+in.permits <= m.rate
	bit := uint64(1) << in.id
	switch in.kind {
	case kindTake:
		if !out.granted {
			return possible+in.permits > m.rate
		}
		m.take(s, in, out)
		return fits
	case kindRead:
		return m.rate-possible <= out.value && out.value <= m.rate-certain
	case kindLeave:
		if fits {
			m.take(s, in, out)
			s.left |= bit
		}
	case kindBack: // only where nothing expires
		if s.left&bit != 0 {
			s.used -= in.permits
			s.left &^= bit
		}
	}
	return true
}

// take keeps a grant with its bounds as they were recorded, and not as the clock narrows them. The state is then the
// same in whatever order the grants were added, and the checker recognizes a state that it has visited.
func (m *historyRules) take(s *historyState, in historyAsk, out historyAnswer) {
	if m.timeless {
		s.used += in.permits
	} else {
		s.set(append(s.list(), [3]int64{out.lo, out.hi, in.permits}))
	}
}

// list returns lo, hi and the permits of each grant.
func (s *historyState) list() (out [][3]int64) {
	for b := []byte(s.grants); len(b) > 0; b = b[24:] {
		var g [3]int64
		for i := range g {
			g[i] = int64(binary.BigEndian.Uint64(b[8*i:]))
		}
		out = append(out, g)
	}
	return out
}

// forget drops the grants that are no longer in any window.
func (s *historyState) forget(interval int64) {
	s.set(slices.DeleteFunc(s.list(), func(g [3]int64) bool { return g[1]+interval <= s.clock }))
}

// set stores the list in a canonical form, so that equal states compare as equal.
func (s *historyState) set(list [][3]int64) {
	slices.SortFunc(list, func(a, b [3]int64) int { return slices.Compare(a[:], b[:]) })
	var b []byte
	for _, g := range list {
		for _, n := range g {
			b = binary.BigEndian.AppendUint64(b, uint64(n))
		}
	}
	s.grants = string(b)
}
