// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"strings"
	"testing"
	"time"
)

// healed returns the arguments of heal that follow the type.
func healed(words string, more ...any) []any { return append([]any{words, now, 1000}, more...) }

// healRows are calls of heal.
var healRows = []row{
	{"heal", "a value that is none", state{hash: hash(), value: "x", members: []member{{-100, java(4)}}}, healed(""), "0", "0 restored 10 done",
		&state{hash: hash(), value: "6", members: []member{{-100, java(4)}}}},
	{"heal", "a value that is lost has the TTL of the others", state{hash: hash(), members: []member{{-100, java(14)}}, ttls: [3]time.Duration{0, 0, time.Hour}},
		healed(""), "0", "0 restored 10 done",
		&state{hash: hash(), value: "-4", members: []member{{-100, java(14)}}, ttls: [3]time.Duration{0, time.Hour, time.Hour}}},
	{"heal", "nobody has used it yet", state{hash: hash()}, healed("check"), "0", "0 done", nil},
	{"heal", "more than the rate is left", state{hash: hash(), value: "14", members: []member{{-100, java(4)}}}, healed(""), "0", "0 surplus 8 done",
		&state{hash: hash(), value: "6", members: []member{{-100, java(4)}}}},
	{"heal", "permits were lost", state{hash: hash(), value: "3", members: []member{{-100, java(4)}}}, healed(""), "0", "0 lost 3 done",
		&state{hash: hash(), value: "6", members: []member{{-100, java(4)}}}},
	{"heal", "there are too many, the oldest go", state{hash: hash(), value: "8", members: []member{{-500, java(4)}, {-100, m21("ab", 'a', 0, 3)}}},
		healed("check"), "0", "0 surplus 5 done",
		&state{hash: hash(), value: "8", members: []member{{-100, m21("ab", 'a', 0, 2)}}}},
	{"heal", "the rate was lowered, value first", state{hash: hash(), value: "8", members: []member{{-500, java(4)}, {-100, m21("ab", 'a', 0, 3)}}},
		healed("check lowered"), "0", "0 surplus 5 done",
		&state{hash: hash(), value: "3", members: []member{{-500, java(4)}, {-100, m21("ab", 'a', 0, 3)}}}},
	{"heal", "the rate was lowered, then the oldest", state{hash: hash(), value: "-3", members: []member{{-500, java(4)}, {-100, m21("ab", 'a', 0, 9)}}},
		healed("check lowered"), "0", "0 done",
		&state{hash: hash(), value: "0", members: []member{{-500, java(1)}, {-100, m21("ab", 'a', 0, 9)}}}},

	{"heal", "ahead of the clock", state{hash: hash(), value: "6", members: []member{{500, java(4)}}}, healed("mark"), "0", "0 marked 4 done",
		&state{hash: hash(), value: "6", members: []member{{500, marked(0, 4, "\x00va")}}}},
	{"heal", "ahead of a clock that is not everybody's", state{hash: hash(), value: "6", members: []member{{500, java(4)}}}, healed(""), "0", "0 done", nil},
	{"heal", "an interval later a mark is spent", state{hash: hash(), value: "6", members: []member{{500, marked(-1000, 2, "\x00va")}, {800, marked(-900, 2, "\x00va")}}},
		healed("mark"), "0", "0 done",
		&state{hash: hash(), value: "8", members: []member{{800, marked(-900, 2, "\x00va")}}}},
	{"heal", "a mark that the clock has passed", state{hash: hash(), value: "6", members: []member{{-300, marked(-1000, 4, "\x00va")}}},
		healed(""), "0", "0 done", &state{hash: hash(), value: "10"}},

	{"heal", "a block of a cool-down that was lifted", state{hash: hash(), value: "6", members: []member{{-100, block(-700, 4, false, "\x00\x00\x00")}}},
		healed(""), "0", "0 done",
		&state{hash: hash(), value: "6", members: []member{{-700, "\x10~l~" + block(-700, 4, false, "\x00\x00\x00")[4:]}}}},
	{"heal", "a block of what was free", state{hash: hash(), value: "6", members: []member{{-200, java(2)}, {-100, block(0, 2, false, "\x00\x00\x00")}}},
		healed(""), "0", "0 done", &state{hash: hash(), value: "8", members: []member{{-200, java(2)}}}},
	{"heal", "the same in Redisson's longer format", state{hash: hash(), value: "6", members: []member{{-200, java(2)}, {-100, "\x08" + strings.Repeat("\x00", 7) + "~c" + six(0) + le32(2)}}},
		healed("long"), "0", "0 done", &state{hash: hash(), value: "8", members: []member{{-200, java(2)}}}},

	{"heal", "what expires before the end of a cool-down joins it", state{hash: hash("coolDown", at(5000)), value: "6", members: []member{{-400, java(4)}}},
		healed(""), "0", "0 done",
		&state{hash: hash("coolDown", at(5000)), value: "0", members: []member{
			{4000, block(0, 6, true, le32(instant % (1 << 32))[:3])}, {4000, block(-400, 4, true, "\x00\x00\x00")}}}},
	{"heal", "in a cool-down nothing is given back", state{hash: hash("coolDown", at(5000)), value: "4", members: []member{{4000, block(-400, 10, true, "\x00\x00\x00")}}},
		healed(""), "0", "0 surplus 4 done",
		&state{hash: hash("coolDown", at(5000)), value: "0", members: []member{{4000, block(-400, 10, true, "\x00\x00\x00")}}}},

	{"heal", "it goes on", state{hash: hash(), value: "3", members: []member{{-300, java(4)}, {-200, m21("ab", 'a', 0, 1)}, {-100, m21("ab", 'b', 0, 1)}}},
		healed("", 0, 0, m21("ab", 'a', 0, 1), m21("ab", 'a', 0, 1), 1, 1), "0", "0 lost 1 done",
		&state{hash: hash(), value: "4", members: []member{{-300, java(4)}, {-200, m21("ab", 'a', 0, 1)}, {-100, m21("ab", 'b', 0, 1)}}}},
	{"heal", "it starts over", state{hash: hash(), value: "3", members: []member{{-300, java(4)}, {-200, m21("ab", 'a', 0, 1)}}},
		healed("", 0, 0, m21("ab", 'a', 0, 1), m21("ab", 'a', 0, 1), 2, 2), "0", "5", nil},
}

// TestHealStates checks what heal makes of a state.
func TestHealStates(t *testing.T) { check(t, healRows) }
