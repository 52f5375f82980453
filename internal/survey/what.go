// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"encoding/hex"
	"regexp"
	"strconv"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
)

// Reserved is what [State.What] says of a reservation.
const Reserved = "reserved ahead"

// What says what a member is if it is not just a grant: what [Marks] say, or Reserved for the permits that a caller takes
// ahead of their return.
func (st *State) What(m Member) string {
	if what := Marks[m.Mark()]; what != "" {
		return what
	}
	for _, id := range st.reserving() {
		if string(redisson.Member(len(m.Raw) == 20, id, m.Permits)) == m.Raw {
			return Reserved
		}
	}
	return ""
}

var reservation = regexp.MustCompile(`([0-9a-f]{32}) (\d+) \d+`)

// reserving returns the ids of those that take permits ahead and whose time has not ended.
func (st *State) reserving() (ids []permit.ID) {
	for _, match := range reservation.FindAllStringSubmatch(st.ahead, -1) {
		if ends, err := strconv.ParseInt(match[2], 10, 64); err != nil || ends <= st.Time.UnixMilli() {
			continue
		}
		var id permit.ID
		_, _ = hex.Decode(id[:], []byte(match[1]))
		ids = append(ids, id)
	}
	return ids
}

// Granted returns when the permits of m were granted. It reports false for permits that nobody was granted: those of a
// tripwire, and those that were free when a cool-down blocked them.
func (m Member) Granted() (at time.Time, ok bool) {
	if t, _, block := blockOf(m.Raw); block {
		return time.UnixMilli(int64(t)), t > 0
	}
	return m.Time(), m.Mark() != 'w'
}

// LastGrant returns when the newest of the grants that were read was made. It reports false if there is none.
func (st *State) LastGrant() (newest time.Time, ok bool) {
	for _, m := range st.Members {
		if at, granted := m.Granted(); granted && (!ok || at.After(newest)) {
			newest, ok = at, true
		}
	}
	return newest, ok
}
