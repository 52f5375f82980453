// SPDX-License-Identifier: Apache-2.0

package retry

import "sync"

// A Settlement is a call that only one caller at a time may make, and with only one number, until it has succeeded. A
// call that failed may have been executed, so it may be repeated, but only with the same number. The zero value has
// no number yet.
type Settlement struct {
	mu     sync.Mutex
	chosen bool
	number int64
	busy   bool // a call is on its way
	done   bool
}

// Begin reports whether the call may be made with the given number now, and whether it is the first. If ok is true,
// the caller has to call End.
func (s *Settlement) Begin(number int64) (first, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy || s.done || s.chosen && s.number != number {
		return false, false
	}
	first = !s.chosen
	s.chosen, s.number, s.busy = true, number, true
	return first, true
}

// End records that the call has ended with err.
func (s *Settlement) End(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy, s.done = false, err == nil
}
