// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"testing"
	"time"
)

// lists returns the arguments of acquire_all for a request of one limiter: 1 if it may have run before, the least TTL of a client,
// and the permits of its member.
func lists(replay, ttl int, permits int64) []any {
	return []any{now, replay, ttl, own(0, permits), "", "", "", "", ""}
}

// TestAcquireAllOfOneLimiter checks what acquire_all makes of a state. It decides alike for each of several limiters.
func TestAcquireAllOfOneLimiter(t *testing.T) {
	check(t, []row{
		{"acquire_all", "no rate", state{hash: hash("rate", "")}, lists(0, 0, 1), "0 1 0", "1 1", nil},
		{"acquire_all", "another type", state{hash: hash("type", "1"), value: "10"}, lists(0, 0, 1), "0 1 0", "2 1 1", nil},
		{"acquire_all", "a type that is none", state{hash: hash("type", "7"), value: "10"}, lists(0, 0, 1), "0 1 0", "2 1 -1", nil},
		{"acquire_all", "in a cool-down", state{hash: hash("coolDown", at(1)), value: "10"}, lists(0, 0, 1), "0 1 0", "0 1", nil},
		{"acquire_all", "at its end", state{hash: hash("coolDown", at(0)), value: "10"}, lists(0, 0, 1), "0 1 0", "0", &state{hash: hash("coolDown", at(0)), value: "9", members: []member{{0, own(0, 1)}}}},
		{"acquire_all", "the TTL of the hash", state{hash: hash(), value: "10", ttls: [3]time.Duration{20 * time.Minute}}, lists(0, 0, 1), "0 1 0", "0",
			&state{hash: hash(), value: "9", members: []member{{0, own(0, 1)}}, ttls: [3]time.Duration{20 * time.Minute, 20 * time.Minute, 20 * time.Minute}}},
		{"acquire_all", "sent again without our knowing", with("9", member{-10, own(0, 1)}), lists(0, 0, 1), "0 1 0", "0", nil},
		{"acquire_all", "the same, and too little is left", with("0", member{-20, java(9)}, member{-10, own(0, 1)}), lists(0, 0, 1), "0 1 0", "0", nil},
		{"acquire_all", "sent again, and too little is left", with("0", member{-20, java(9)}, member{-10, own(0, 1)}), lists(1, 0, 1), "0 1 0", "0", nil},
		{"acquire_all", "sent again, and it was not granted", with("0", member{-20, java(10)}), lists(1, 0, 1), "0 1 0", "0 1", nil},
	})
}
