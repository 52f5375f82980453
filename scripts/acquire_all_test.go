// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"testing"
	"time"
)

// lists returns the arguments of acquire_all for a request of one limiter: its words, the least TTL of a client, and the permits of its
// member.
func lists(words string, ttl int, permits int64) []any {
	return []any{now, words, ttl, own(0, permits), "", "", "", "", ""}
}

// TestAcquireAllOfOneLimiter checks what acquire_all makes of a state. It decides alike for each of several limiters.
func TestAcquireAllOfOneLimiter(t *testing.T) {
	ahead := func(m member) state { return state{hash: hash("minGap", "100"), value: "9", members: []member{m}} }
	took := func(m member) *state {
		return &state{hash: hash("minGap", "100"), value: "8", members: []member{{0, own(0, 1)}, m}}
	}
	check(t, []row{
		{"acquire_all", "no rate", state{hash: hash("rate", "")}, lists("", 0, 1), "0 1 0", "1 1", nil},
		{"acquire_all", "another type", state{hash: hash("type", "1"), value: "10"}, lists("", 0, 1), "0 1 0", "2 1 1", nil},
		{"acquire_all", "a type that is none", state{hash: hash("type", "7"), value: "10"}, lists("", 0, 1), "0 1 0", "2 1 -1", nil},
		{"acquire_all", "in a cool-down", state{hash: hash("coolDown", at(1)), value: "10"}, lists("", 0, 1), "0 1 0", "0 1", nil},
		{"acquire_all", "at its end", state{hash: hash("coolDown", at(0)), value: "10"}, lists("", 0, 1), "0 1 0", "0", &state{hash: hash("coolDown", at(0)), value: "9", members: []member{{0, own(0, 1)}}}},
		{"acquire_all", "within the gap", ahead(member{-99, java(1)}), lists("mark", 0, 1), "0 1 0", "0 1", nil},
		{"acquire_all", "a grant ahead of the clock", ahead(member{50, java(1)}), lists("mark", 0, 1), "0 1 0", "0 1", nil},
		{"acquire_all", "a mark", ahead(member{50, marked(-99, 1, "\x00va")}), lists("mark", 0, 1), "0 1 0", "0 1", nil},
		{"acquire_all", "a mark with a clock of its own", ahead(member{50, marked(-99, 1, "\x00va")}), lists("", 0, 1), "0 1 0", "0 1", nil},
		{"acquire_all", "a mark of long ago", ahead(member{50, marked(-100, 1, "\x00va")}), lists("mark", 0, 1), "0 1 0", "0", took(member{50, marked(-100, 1, "\x00va")})},
		{"acquire_all", "a grant ahead of a clock of its own", ahead(member{50, java(1)}), lists("", 0, 1), "0 1 0", "0", took(member{50, java(1)})},
		{"acquire_all", "the TTL of the hash", state{hash: hash(), value: "10", ttls: [3]time.Duration{20 * time.Minute}}, lists("", 0, 1), "0 1 0", "0",
			&state{hash: hash(), value: "9", members: []member{{0, own(0, 1)}}, ttls: [3]time.Duration{20 * time.Minute, 20 * time.Minute, 20 * time.Minute}}},
		{"acquire_all", "sent again without our knowing", with("9", member{-10, own(0, 1)}), lists("", 0, 1), "0 1 0", "0", nil},
		{"acquire_all", "the same, and too little is left", with("0", member{-20, java(9)}, member{-10, own(0, 1)}), lists("", 0, 1), "0 1 0", "0", nil},
		{"acquire_all", "sent again, and too little is left", with("0", member{-20, java(9)}, member{-10, own(0, 1)}), lists("replay", 0, 1), "0 1 0", "0", nil},
		{"acquire_all", "sent again, and it was not granted", with("0", member{-20, java(10)}), lists("replay", 0, 1), "0 1 0", "0 1", nil},
	})
}
