// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// healed returns the arguments of heal that follow the type.
func healed(words string, more ...any) []any { return paged(words, 1000, more...) }

// paged returns the arguments of heal in a call that reads that many members, and some or none of those that go on.
func paged(words string, members int, more ...any) []any {
	return append([]any{words, now, members}, more...)
}

// each returns n members of one permit with the score of an instant, which their bytes put in order.
func each(n int, at int64, of func(i int) string) (list []member) {
	for i := range n {
		list = append(list, member{at, of(i)})
	}
	return list
}

func spentMark(i int) string  { return marked(-1000, 1, fmt.Sprintf("%03d", i)) }
func freshMark(i int) string  { return marked(-100, 1, fmt.Sprintf("%03d", i)) }
func ofJava(i int) string     { return fmt.Sprintf("\x08java%04d", i) + le32(1) }
func letter(n int) string     { return m21("ab", byte('a'+n), 0, 1) }
func lettered(n int) []member { return each(n, -500, letter) }

// healRows are calls of heal and of release.
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
	{"heal", "an interval later a mark is spent, and one permit was lost", state{hash: hash(), value: "5", members: []member{{500, marked(-1000, 2, "\x00va")}, {800, marked(-900, 2, "\x00va")}}},
		healed("mark"), "0", "0 lost 1 done",
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
	{"heal", "a call counts from the newest member down", state{hash: hash(), value: "5", members: lettered(5)}, paged("", 2), "0",
		"0 next 0 0 " + letter(3) + " " + letter(4) + " 2 2", nil},
	{"heal", "down to the oldest", state{hash: hash(), value: "6", members: lettered(4)}, paged("", 2, 0, 0, letter(2), letter(2), 1, 1), "0",
		"0 next 0 0 " + letter(0) + " " + letter(2) + " 3 3", nil},
	{"heal", "then up", state{hash: hash(), value: "7", members: lettered(3)}, paged("", 1, 0, 0, letter(0), letter(0), 1, 1), "0",
		"0 next 0 0 " + letter(0) + " " + letter(1) + " 2 2", nil},
	{"heal", "up to the newest", state{hash: hash(), value: "7", members: lettered(3)}, paged("", 1, 0, 0, letter(0), letter(1), 2, 2), "0", "0 done", nil},
	{"heal", "what is done for a page below is done before it is counted", state{hash: hash(), value: "7", members: []member{{-300, spentMark(0)}, {-200, letter(1)}}},
		paged("", 9, 0, 0, letter(1), letter(1), 1, 1), "0", "0 next 1 0 " + letter(1) + " " + letter(1) + " 1 1",
		&state{hash: hash(), value: "8", members: []member{{-200, letter(1)}}}},
	{"heal", "and for one above", state{hash: hash(), value: "7", members: []member{{-300, letter(1)}, {-200, spentMark(0)}}},
		paged("", 9, 0, 0, letter(1), letter(1), 1, 1), "0", "0 next 1 0 " + letter(1) + " " + letter(1) + " 1 1",
		&state{hash: hash(), value: "8", members: []member{{-300, letter(1)}}}},
	{"heal", "where it has done something it leaves a large set", state{hash: hash(), value: "0", members: append(lettered(3), member{-600, spentMark(0)})},
		paged("", 1), "0", "0 done", &state{hash: hash(), value: "1", members: lettered(3)}},
	{"heal", "it looks at the 512 oldest", state{hash: hash(), value: "-291", members: append(each(300, -500, ofJava), member{-300, spentMark(0)})}, healed(""), "0",
		"0 done", &state{hash: hash(), value: "-290", members: each(300, -500, ofJava)}},
	{"heal", "it does 192 things a call", state{hash: hash(), value: "-190", members: each(200, 1, spentMark)}, healed("check"), "0", "0 next 192 0   -1 0",
		&state{hash: hash(), value: "2", members: each(8, 1, spentMark)}},
	{"heal", "it looks at a page ahead of the clock", state{hash: hash(), value: "-290", members: each(300, 1, freshMark)}, paged("", 256), "0", "0 next 0 256   -1 0", nil},
	{"heal", "256 join a cool-down in a call", state{hash: hash("coolDown", at(5000)), value: "-290", members: each(300, -400, ofJava)}, healed(""), "0",
		"0 next 0 0   -1 0", &state{hash: hash("coolDown", at(5000)), value: "-290", members: append(each(300, -400, ofJava)[256:],
			member{4000, block(-400, 256, true, "\x00\x00\x00")})}},
	{"heal", "a call trims a page", state{hash: hash(), value: "-1091", members: append(each(1100, -700, ofJava), member{-800, spentMark(0)})},
		paged("check lowered", 2000), "0", "0 next 1 0 " + ofJava(0) + " " + ofJava(1099) + " -2 1100",
		&state{hash: hash(), value: "-66", members: each(1100, -700, ofJava)[1024:]}},
	{"heal", "the next one another", state{hash: hash(), value: "-1100", members: each(1101, -700, ofJava)}, paged("check lowered", 9, 0, 0, "a", "b", -2, 9), "0",
		"0 next 0 0 a b -2 9", &state{hash: hash(), value: "-76", members: each(1101, -700, ofJava)[1024:]}},
	{"heal", "the last one the rest", state{hash: hash(), value: "-2", members: lettered(3)}, paged("check lowered", 9, 0, 0, "a", "b", -2, 9), "0", "0 done",
		&state{hash: hash(), value: "0", members: lettered(3)[2:]}},
	{"heal", "or finds nothing any more", state{hash: hash(), value: "-2"}, paged("check lowered", 9, 0, 0, "a", "b", -2, 9), "0", "0 done", nil},
	{"heal", "it starts over", state{hash: hash(), value: "3", members: []member{{-300, java(4)}, {-200, m21("ab", 'a', 0, 1)}}},
		healed("", 0, 0, m21("ab", 'a', 0, 1), m21("ab", 'a', 0, 1), 2, 2), "0", "5", nil},

	{"release", "the newest, and no part of the one before", state{hash: hash(), value: "7", members: lettered(3)}, []any{2, 0, now}, "0", "0 0 9",
		&state{hash: hash(), value: "9", members: lettered(1)}},
	{"release", "blocks are left where they are", state{hash: hash(), value: "3", members: []member{{-400, java(2)}, {-300, letter(0)},
		{-200, block(-700, 3, false, "\x00\x00\x00")}, {-100, letter(1)}}}, []any{3, 0, now}, "0", "0 0 6",
		&state{hash: hash(), value: "6", members: []member{{-400, java(1)}, {-200, block(-700, 3, false, "\x00\x00\x00")}}}},
	{"release", "behind as many as it gives back, too", state{hash: hash(), value: "3", members: []member{{-300, java(4)},
		{-200, block(-700, 2, false, "\x00\x00\x00")}}}, []any{1, 0, now}, "0", "0 0 4",
		&state{hash: hash(), value: "4", members: []member{{-300, java(3)}, {-200, block(-700, 2, false, "\x00\x00\x00")}}}},
	{"release", "blocks only", state{hash: hash(), value: "6", members: []member{{-100, block(-700, 4, false, "\x00\x00\x00")}}}, []any{2, 0, now}, "0", "0 0 6", nil},
	{"release", "more than is in use, and what was lost", state{hash: hash(), value: "3", members: lettered(1)}, []any{5, 0, now}, "0", "0 0 10", &state{hash: hash(), value: "10"}},
	{"release", "a value that is lost is that of 512 members", state{hash: hash(), members: each(512, -700, ofJava)}, []any{1, 0, now}, "0", "0 0 0",
		&state{hash: hash(), value: "-501", members: each(511, -700, ofJava)}},
	{"release", "512 members a call", state{hash: hash(), value: "-590", members: each(600, -700, ofJava)}, []any{550, 0, now}, "0", "0 38 0",
		&state{hash: hash(), value: "-78", members: each(600, -700, ofJava)[:88]}},
}

// TestHealStates checks what heal and release make of a state.
func TestHealStates(t *testing.T) { check(t, healRows) }
