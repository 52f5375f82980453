// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// A Memory holds the shares of limiters by their keys. It is bounded, whatever the names of the limiters are: as long as
// there is room, those that are not needed may stay; a new one that finds no room is not kept. It is not safe for concurrent
// use.
type Memory struct {
	shares map[string]*Share
	keys   []string // of shares, in no order
	hand   int      // the index in keys of the next one that is looked at
}

const (
	// maxIdle is how many limiters a Memory keeps that are neither in use nor needed.
	maxIdle = 64
	// MaxShares is how many limiters a Memory keeps at most, because they are in use, or have granted permits of their own,
	// or are in a cool-down. Cool-downs that this process sets have as many places again, because an outage must not end
	// them.
	MaxShares = 128
	// looks is how many of the limiters that a Memory keeps are looked at when another one comes, so that a new name costs
	// the same whatever it keeps.
	looks = 4
)

// ErrNoMemory is the error of a request whose limiter cannot be remembered.
var ErrNoMemory = fmt.Errorf("the local quotas of %d limiters whose keys hash alike are in use, and no more are counted", MaxShares)

// Find returns the share of the limiter with that key, or nil.
func (m *Memory) Find(key string) *Share {
	if len(m.keys) == 0 {
		return nil
	}
	return m.shares[key]
}

// Share returns the share of the limiter with that key, and makes it if need be, with the rate r. It is nil if there is no
// room for it beside most others. The function inUse reports whether the process uses a limiter, whose share then stays.
func (m *Memory) Share(key string, most int, r permit.Rate, inUse func(key string) bool) *Share {
	s := m.Find(key)
	if s == nil {
		m.forget(inUse)
		if len(m.keys) >= most {
			return nil
		}
		if m.shares == nil {
			m.shares = map[string]*Share{}
		}
		s = NewShare(r)
		m.shares[key] = s
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
		if !m.shares[key].Empty(now) || inUse(key) {
			m.hand++
			continue
		}
		delete(m.shares, key)
		last := len(m.keys) - 1
		m.keys[m.hand] = m.keys[last]
		m.keys[last] = ""
		m.keys = m.keys[:last]
	}
}
