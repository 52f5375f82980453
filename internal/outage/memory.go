// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// A Memory holds the ledgers of limiters by their keys. It never keeps more than the limits below, even if there is no
// end of new names. While there is room, it keeps ledgers that are not needed; without room, it does not keep a new
// ledger. It is not safe for concurrent use.
type Memory struct {
	ledgers map[string]*Ledger
	keys    []string // of ledgers, in no order
	hand    int      // the index in keys of the next one that is looked at
}

const (
	// maxIdle is how many limiters a Memory keeps that are neither in use nor needed.
	maxIdle = 64
	// MaxLedgers is the largest number of limiters that a Memory keeps because they are in use, have granted permits of
	// their own, or are in a cool-down. Cool-downs that this process sets have another MaxLedgers places, because an
	// outage must not end them.
	MaxLedgers = 128
	// looks is how many of the kept limiters are examined when a new one comes. So a new name costs the same, however
	// many are kept.
	looks = 4
)

// ErrNoMemory is the error of a request whose limiter cannot be remembered.
var ErrNoMemory = fmt.Errorf("the local quotas of %d limiters whose keys hash alike are in use, and no more are counted", MaxLedgers)

// Find returns the ledger of the limiter with the given key, or nil.
func (m *Memory) Find(key string) *Ledger {
	if len(m.keys) == 0 {
		return nil
	}
	return m.ledgers[key]
}

// Ledger returns the ledger of the limiter with the given key. If there is none, it makes one with the rate r; it
// returns nil if most ledgers are kept already. The function inUse reports whether the process uses a limiter, whose
// ledger then stays.
func (m *Memory) Ledger(key string, most int, r permit.Rate, inUse func(key string) bool) *Ledger {
	s := m.Find(key)
	if s == nil {
		m.forget(inUse)
		if len(m.keys) >= most {
			return nil
		}
		if m.ledgers == nil {
			m.ledgers = map[string]*Ledger{}
		}
		s = NewLedger(r)
		m.ledgers[key] = s
		m.keys = append(m.keys, key)
	}
	return s
}

// Len returns how many limiters the Memory keeps.
func (m *Memory) Len() int { return len(m.keys) }

// forget drops those that nobody needs among the next few limiters.
func (m *Memory) forget(inUse func(key string) bool) {
	now := time.Now()
	for i := 0; i < looks && len(m.keys) >= maxIdle; i++ {
		if m.hand >= len(m.keys) {
			m.hand = 0
		}
		key := m.keys[m.hand]
		if !m.ledgers[key].Empty(now) || inUse(key) {
			m.hand++
			continue
		}
		delete(m.ledgers, key)
		last := len(m.keys) - 1
		m.keys[m.hand] = m.keys[last]
		m.keys[last] = ""
		m.keys = m.keys[:last]
	}
}
