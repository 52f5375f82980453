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

// goesOn returns the arguments of a call that goes on with what one before has begun to add up.
func goesOn(words string, members int) []any { return paged(words, members, 0, 0, 1) }

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
	{"heal", "a value that is none keeps its TTL where all that was in the set has gone", state{hash: hash(), value: "x", members: []member{{-1000, java(4)}}, ttls: [3]time.Duration{0, time.Hour, time.Hour}},
		healed("reclaim"), "0", "0 restored 10 done", &state{hash: hash(), value: "10", ttls: [3]time.Duration{0, time.Hour, 0}}},
	{"heal", "or has that of the hash", state{hash: hash(), value: "x", members: []member{{-1000, java(4)}}, ttls: [3]time.Duration{time.Hour, 0, time.Hour}},
		healed("reclaim"), "0", "0 restored 10 done", &state{hash: hash(), value: "10", ttls: [3]time.Duration{time.Hour, time.Hour, 0}}},
	{"heal", "a tripwire goes, too", state{hash: hash(), value: "5", members: []member{{-instant, tripwire("ab", -100)}, {-100, java(4)}}},
		healed("check reclaim"), "0", "0 done", &state{hash: hash(), value: "6", members: []member{{-100, java(4)}}}},
	{"heal", "nobody has used it yet", state{hash: hash()}, healed("check"), "0", "0 done", nil},
	{"heal", "more than the rate is left", state{hash: hash(), value: "14", members: []member{{-100, java(4)}}}, healed(""), "0", "0 surplus 8 done",
		&state{hash: hash(), value: "6", members: []member{{-100, java(4)}}}},
	{"heal", "permits were lost", state{hash: hash(), value: "3", members: []member{{-100, java(4)}}}, healed(""), "0", "0 lost 3 done",
		&state{hash: hash(), value: "6", members: []member{{-100, java(4)}}}},
	{"heal", "there are too many, the oldest go", state{hash: hash(), value: "8", members: []member{{-500, java(4)}, {-100, m21("ab", 'a', 0, 3)}}},
		healed("check 10"), "0", "0 surplus 5 done",
		&state{hash: hash(), value: "8", members: []member{{-100, m21("ab", 'a', 0, 2)}}}},
	{"heal", "what has expired goes if it is to", state{hash: hash(), value: "3", members: []member{{-2000, java(2)}, {-1000, m21("ab", 'a', 0, 1)}, {-999, java(4)}}},
		healed("check reclaim"), "0", "0 done", &state{hash: hash(), value: "6", members: []member{{-999, java(4)}}}},
	{"heal", "with a byte of a mark or a block, too", state{hash: hash(), value: "7", members: []member{{-1000, "\x08~java000" + le32(1)}, {-999, "\x08java000~" + le32(2)}}},
		healed("check reclaim"), "0", "0 done", &state{hash: hash(), value: "8", members: []member{{-999, "\x08java000~" + le32(2)}}}},
	{"heal", "and stays otherwise", state{hash: hash(), value: "3", members: []member{{-2000, java(2)}, {-1000, m21("ab", 'a', 0, 1)}, {-999, java(4)}}},
		healed("check"), "0", "0 done", nil},
	{"heal", "what has expired of a set that takes several calls", state{hash: hash(), value: "7", members: append(each(400, -1000, ofJava), member{-999, java(3)})},
		healed("check reclaim"), "0", "0 next 192 0 0", &state{hash: hash(), value: "199", members: append(each(400, -1000, ofJava)[192:], member{-999, java(3)})}},
	{"heal", "the rate was lowered, value first", state{hash: hash(), value: "8", members: []member{{-500, java(4)}, {-100, m21("ab", 'a', 0, 3)}}},
		healed("check"), "0", "0 surplus 5 done",
		&state{hash: hash(), value: "3", members: []member{{-500, java(4)}, {-100, m21("ab", 'a', 0, 3)}}}},
	{"heal", "the rate is lower than the one that is known", state{hash: hash(), value: "8", members: []member{{-500, java(4)}, {-100, m21("ab", 'a', 0, 3)}}},
		healed("check 11"), "0", "0 surplus 5 done",
		&state{hash: hash(), value: "3", members: []member{{-500, java(4)}, {-100, m21("ab", 'a', 0, 3)}}}},
	{"heal", "the rate is higher than the one that is known", state{hash: hash(), value: "8", members: []member{{-500, java(4)}, {-100, m21("ab", 'a', 0, 3)}}},
		healed("check 9"), "0", "0 surplus 5 done",
		&state{hash: hash(), value: "3", members: []member{{-500, java(4)}, {-100, m21("ab", 'a', 0, 3)}}}},
	{"heal", "the rate was another one, under which grants may be in use", state{hash: hash("keptUntil", at(1)), value: "8", members: []member{{-500, java(4)}, {-100, m21("ab", 'a', 0, 3)}}},
		healed("check 10"), "0", "0 surplus 5 done",
		&state{hash: hash("keptUntil", at(1)), value: "3", members: []member{{-500, java(4)}, {-100, m21("ab", 'a', 0, 3)}}}},
	{"heal", "none of which is in use any more", state{hash: hash("keptUntil", at(0)), value: "8", members: []member{{-500, java(4)}, {-100, m21("ab", 'a', 0, 3)}}},
		healed("check 10"), "0", "0 surplus 5 done",
		&state{hash: hash("keptUntil", at(0)), value: "8", members: []member{{-100, m21("ab", 'a', 0, 2)}}}},
	{"heal", "it is not known which", state{hash: hash(), value: "8", members: []member{{-1000, java(1)}, {-500, java(3)}, {-100, m21("ab", 'a', 0, 3)}}},
		healed("check leave"), "0", "0 done", nil},
	{"heal", "which does not matter for a value beyond the rate", state{hash: hash(), value: "11", members: []member{{-500, java(4)}}},
		healed("check leave"), "0", "0 surplus 5 done", &state{hash: hash(), value: "6", members: []member{{-500, java(4)}}}},
	{"heal", "nor in a cool-down", state{hash: hash("coolDown", at(900)), value: "8", members: []member{{-50, java(4)}}},
		healed("check leave"), "0", "0 surplus 2 done", &state{hash: hash("coolDown", at(900)), value: "0", members: []member{{-100, joined(0, 6, 0)}, {-50, java(4)}}}},
	{"heal", "the rate was lowered, and value is below 0 already", state{hash: hash(), value: "-3", members: []member{{-500, java(4)}, {-100, m21("ab", 'a', 0, 9)}}},
		healed("check"), "0", "0 done", nil},
	{"heal", "the rate was lowered below what is in use", state{hash: hash(), value: "3", members: []member{{-500, java(4)}, {-100, m21("ab", 'a', 0, 9)}}},
		healed("check"), "0", "0 surplus 6 done",
		&state{hash: hash(), value: "-3", members: []member{{-500, java(4)}, {-100, m21("ab", 'a', 0, 9)}}}},

	{"heal", "ahead of the clock", state{hash: hash(), value: "6", members: []member{{500, java(4)}}}, healed("mark"), "0", "0 marked 4 done",
		&state{hash: hash(), value: "6", members: []member{{500, marked(0, 4, "\x00va")}}}},
	{"heal", "where a mark of this instant is the same, another place does", state{hash: hash(), value: "2", members: []member{{400, marked(0, 4, "\x00va")}, {500, java(4)}}},
		healed("mark"), "0", "0 marked 4 done", &state{hash: hash(), value: "2", members: []member{{400, marked(0, 4, "\x00va")}, {500, marked(0, 4, "Yva")}}}},
	{"heal", "a mark of an instant that is yet to come, whose permits are not new", state{hash: hash(), value: "6", members: []member{{500, marked(200, 4, "\x00va")}}},
		healed("mark"), "0", "0 done", &state{hash: hash(), value: "6", members: []member{{500, marked(0, 4, "\x00va")}}}},
	{"heal", "ahead of a clock that is not everybody's", state{hash: hash(), value: "6", members: []member{{500, java(4)}}}, healed(""), "0", "0 done", nil},
	{"heal", "an interval later a mark is spent, and one permit was lost", state{hash: hash(), value: "5", members: []member{{500, marked(-1000, 2, "\x00va")}, {800, marked(-900, 2, "\x00va")}}},
		healed("mark"), "0", "0 lost 1 done",
		&state{hash: hash(), value: "8", members: []member{{800, marked(-900, 2, "\x00va")}}}},
	{"heal", "a mark that the clock has passed", state{hash: hash(), value: "6", members: []member{{-300, marked(-1000, 4, "\x00va")}}},
		healed(""), "0", "0 done", &state{hash: hash(), value: "10"}},

	{"heal", "a block of a cool-down that was lifted", state{hash: hash(), value: "6", members: []member{{-100, block(-700, 4, false, "\x00\x00\x00")}}},
		healed(""), "0", "0 done",
		&state{hash: hash(), value: "6", members: []member{{-700, "\x10~l~" + block(-700, 4, false, "\x00\x00\x00")[4:]}}}},
	{"heal", "a block at the end of a cool-down", state{hash: hash("coolDown", at(0)), value: "6", members: []member{{-100, block(-700, 4, false, "\x00\x00\x00")}}},
		healed(""), "0", "0 done",
		&state{hash: hash("coolDown", at(0)), value: "6", members: []member{{-700, "\x10~l~" + block(-700, 4, false, "\x00\x00\x00")[4:]}}}},
	{"heal", "a block of what was free", state{hash: hash(), value: "6", members: []member{{-200, java(2)}, {-100, block(0, 2, false, "\x00\x00\x00")}}},
		healed(""), "0", "0 done", &state{hash: hash(), value: "8", members: []member{{-200, java(2)}}}},
	{"heal", "the same in Redisson's longer format", state{hash: hash(), value: "6", members: []member{{-200, java(2)}, {-100, "\x08" + strings.Repeat("\x00", 7) + "~c" + six(0) + le32(2)}}},
		healed("long"), "0", "0 done", &state{hash: hash(), value: "8", members: []member{{-200, java(2)}}}},

	{"heal", "what expires before the end of a cool-down joins it", state{hash: hash("coolDown", at(5000)), value: "6", members: []member{{-400, java(4)}}},
		healed(""), "0", "0 done",
		&state{hash: hash("coolDown", at(5000)), value: "0", members: []member{
			{4000, block(0, 6, true, le32(instant % (1 << 32))[:3])}, {4000, block(-400, 4, true, "\x00\x00\x00")}}}},
	{"heal", "and is free if it has expired by then", state{hash: hash("coolDown", at(5000)), value: "0", members: []member{{-1000, java(4)}, {4000, block(0, 6, true, "\x00\x00\x00")}}},
		healed(""), "0", "0 done", &state{hash: hash("coolDown", at(5000)), value: "0", members: []member{
			{4000, block(0, 6, true, "\x00\x00\x00")}, {4000, block(0, 4, true, le32(instant % (1 << 32))[:3])}}}},
	{"heal", "a mark joins a cool-down with the instant at which it was first seen", state{hash: hash("coolDown", at(5000)), value: "0",
		members: []member{{500, marked(-300, 4, "\x00va")}, {4000, block(0, 6, true, "\x00\x00\x00")}}}, healed(""), "0", "0 done",
		&state{hash: hash("coolDown", at(5000)), value: "0", members: []member{{4000, block(0, 6, true, "\x00\x00\x00")}, {4000, block(-300, 4, true, "\x00\x00\x00")}}}},
	{"heal", "what is ahead of the clock joins it with that of the call", state{hash: hash("coolDown", at(5000)), value: "0",
		members: []member{{500, java(4)}, {4000, block(0, 6, true, "\x00\x00\x00")}}}, healed(""), "0", "0 done",
		&state{hash: hash("coolDown", at(5000)), value: "0", members: []member{{4000, block(0, 6, true, "\x00\x00\x00")}, {4000, "\x10~c~" + le32(4) + six(1<<47|instant) + "\x00\x00\x00" + le32(4)}}}},
	{"heal", "a mark of an instant that is yet to come joins it with that of the call", state{hash: hash("coolDown", at(5000)), value: "0",
		members: []member{{500, marked(200, 4, "\x00va")}, {4000, block(0, 6, true, "\x00\x00\x00")}}}, healed(""), "0", "0 done",
		&state{hash: hash("coolDown", at(5000)), value: "0", members: []member{{4000, block(0, 6, true, "\x00\x00\x00")}, {4000, "\x10~c~" + le32(4) + six(1<<47|instant) + "\x00\x00\x00" + le32(4)}}}},
	{"heal", "a block joins it with its own", state{hash: hash("coolDown", at(5000)), value: "0",
		members: []member{{3000, block(-200, 4, false, "\x00\x00\x00")}, {4000, block(0, 6, true, "\x00\x00\x00")}}}, healed(""), "0", "0 done",
		&state{hash: hash("coolDown", at(5000)), value: "0", members: []member{{4000, block(0, 6, true, "\x00\x00\x00")}, {4000, block(-200, 4, true, "\x00\x00\x00")}}}},
	{"heal", "in a cool-down nothing is given back", state{hash: hash("coolDown", at(5000)), value: "4", members: []member{{4000, block(-400, 10, true, "\x00\x00\x00")}}},
		healed(""), "0", "0 surplus 4 done",
		&state{hash: hash("coolDown", at(5000)), value: "0", members: []member{{4000, block(-400, 10, true, "\x00\x00\x00")}}}},

	{"heal", "it goes on", state{hash: counted(1, 1, letter(0), letter(0)), value: "3", members: []member{{-300, java(4)}, {-200, letter(0)}, {-100, letter(1)}}},
		goesOn("", 1000), "0", "0 lost 1 done",
		&state{hash: hash(), value: "4", members: []member{{-300, java(4)}, {-200, letter(0)}, {-100, letter(1)}}}},
	{"heal", "another caller goes on with the same sum", state{hash: counted(1, 1, letter(0), letter(0)), value: "3", members: []member{{-300, java(4)}, {-200, letter(0)}, {-100, letter(1)}}},
		paged("", 1), "0", "0 next 0 0 1", &state{hash: counted(2, 5, java(4), letter(0)), value: "3", members: []member{{-300, java(4)}, {-200, letter(0)}, {-100, letter(1)}}}},
	{"heal", "a call counts from the newest member down", state{hash: hash(), value: "5", members: lettered(5)}, paged("", 2), "0",
		"0 next 0 0 1", &state{hash: counted(2, 2, letter(3), letter(4)), value: "5", members: lettered(5)}},
	{"heal", "down to the oldest", state{hash: counted(1, 1, letter(2), letter(2)), value: "6", members: lettered(4)}, goesOn("", 2), "0",
		"0 next 0 0 1", &state{hash: counted(3, 3, letter(0), letter(2)), value: "6", members: lettered(4)}},
	{"heal", "then up", state{hash: counted(1, 1, letter(0), letter(0)), value: "7", members: lettered(3)}, goesOn("", 1), "0",
		"0 next 0 0 1", &state{hash: counted(2, 2, letter(0), letter(1)), value: "7", members: lettered(3)}},
	{"heal", "up to the newest", state{hash: counted(2, 2, letter(0), letter(1)), value: "7", members: lettered(3)}, goesOn("", 1), "0", "0 done",
		&state{hash: hash(), value: "7", members: lettered(3)}},
	{"heal", "tripwires are counted in the end", state{hash: counted(2, 2, letter(0), letter(1)), value: "6", members: append([]member{{-instant, tripwire("cd", -100)}}, lettered(2)...)},
		goesOn("", 1), "0", "0 lost 1 done",
		&state{hash: hash(), value: "7", members: append([]member{{-instant, tripwire("cd", -100)}}, lettered(2)...)}},
	{"heal", "and are no part of the range", state{hash: hash(), value: "7", members: append([]member{{-instant, tripwire("cd", -100)}}, lettered(2)...)},
		paged("", 1), "0", "0 next 0 0 1", &state{hash: counted(1, 1, letter(1), letter(1)), value: "7", members: append([]member{{-instant, tripwire("cd", -100)}}, lettered(2)...)}},
	{"heal", "there are tripwires only", state{hash: hash(), value: "8", members: []member{{-instant, tripwire("cd", -100)}}}, healed("check"), "0", "0 lost 1 done",
		&state{hash: hash(), value: "9", members: []member{{-instant, tripwire("cd", -100)}}}},
	{"heal", "what is done for a page below is done before it is counted", state{hash: counted(1, 1, letter(1), letter(1)), value: "7", members: []member{{-300, spentMark(0)}, {-200, letter(1)}}},
		goesOn("", 9), "0", "0 next 1 0 1",
		&state{hash: counted(1, 1, letter(1), letter(1)), value: "8", members: []member{{-200, letter(1)}}}},
	{"heal", "and for one above", state{hash: counted(1, 1, letter(1), letter(1)), value: "7", members: []member{{-300, letter(1)}, {-200, spentMark(0)}}},
		goesOn("", 9), "0", "0 next 1 0 1",
		&state{hash: counted(1, 1, letter(1), letter(1)), value: "8", members: []member{{-300, letter(1)}}}},
	{"heal", "a caller that begins spends a mark that another has counted", state{hash: counted(2, 2, spentMark(0), letter(2)), value: "7", members: []member{{-300, letter(1)}, {-250, spentMark(0)}, {-200, letter(2)}}},
		paged("check", 1), "0", "0 next 1 0 1",
		&state{hash: counted(1, 1, letter(2), letter(2)), value: "8", members: []member{{-300, letter(1)}, {-200, letter(2)}}}},
	{"heal", "where it has done something it leaves a large set", state{hash: hash(), value: "0", members: append(lettered(3), member{-600, spentMark(0)})},
		paged("", 1), "0", "0 done", &state{hash: hash(), value: "1", members: lettered(3)}},
	{"heal", "it looks at the 512 oldest", state{hash: hash(), value: "-291", members: append(each(300, -500, ofJava), member{-300, spentMark(0)})}, healed(""), "0",
		"0 done", &state{hash: hash(), value: "-290", members: each(300, -500, ofJava)}},
	{"heal", "it does 192 things a call", state{hash: hash(), value: "-190", members: each(200, 1, spentMark)}, healed("check"), "0", "0 next 192 0 0",
		&state{hash: hash(), value: "2", members: each(8, 1, spentMark)}},
	{"heal", "even of a value that is none, to which it adds nothing", state{hash: hash(), value: "x", members: each(200, 1, spentMark)}, healed("check"), "0", "0 next 192 0 0",
		&state{hash: hash(), value: "x", members: each(8, 1, spentMark)}},
	{"heal", "it looks at a page ahead of the clock", state{hash: hash(), value: "-290", members: each(300, 1, freshMark)}, paged("", 256), "0", "0 next 0 256 0", nil},
	{"heal", "256 join a cool-down in a call", state{hash: hash("coolDown", at(5000)), value: "-290", members: each(300, -400, ofJava)}, healed(""), "0",
		"0 next 0 0 0", &state{hash: hash("coolDown", at(5000)), value: "-290", members: append(each(300, -400, ofJava)[256:],
			member{4000, block(-400, 256, true, "\x00\x00\x00")})}},
	{"heal", "it starts over", state{hash: counted(2, 2, letter(0), letter(0)), value: "3", members: []member{{-300, java(4)}, {-200, letter(0)}}},
		goesOn("", 1000), "0", "5", &state{hash: hash(), value: "3", members: []member{{-300, java(4)}, {-200, letter(0)}}}},
	{"heal", "if the sum is gone, too", state{hash: hash(), value: "3", members: []member{{-300, java(4)}}}, goesOn("", 1000), "0", "5", nil},
	{"heal", "a caller that begins does so by itself", state{hash: counted(2, 2, letter(0), letter(0)), value: "3", members: []member{{-300, java(4)}, {-200, letter(0)}}},
		healed(""), "0", "0 lost 2 done", &state{hash: hash(), value: "5", members: []member{{-300, java(4)}, {-200, letter(0)}}}},

	{"release", "the newest, and no part of the one before", state{hash: hash(), value: "7", members: lettered(3)}, []any{2, 0, now}, "0", "0 0 9",
		&state{hash: hash(), value: "9", members: lettered(1)}},
	{"release", "a part of the newest, and nothing that is older, of however few bytes", state{hash: hash(), value: "6", members: []member{{-500, "short"}, {-400, "shorter"}, {-300, java(4)}}}, []any{2, 0, now}, "0", "0 0 8",
		&state{hash: hash(), value: "8", members: []member{{-500, "short"}, {-400, "shorter"}, {-300, java(2)}}}},
	{"release", "blocks are left where they are", state{hash: hash(), value: "3", members: []member{{-400, java(2)}, {-300, letter(0)},
		{-200, block(-700, 3, false, "\x00\x00\x00")}, {-100, letter(1)}}}, []any{3, 0, now}, "0", "0 0 6",
		&state{hash: hash(), value: "6", members: []member{{-400, java(1)}, {-200, block(-700, 3, false, "\x00\x00\x00")}}}},
	{"release", "behind as many as it gives back, too", state{hash: hash(), value: "3", members: []member{{-300, java(4)},
		{-200, block(-700, 2, false, "\x00\x00\x00")}}}, []any{1, 0, now}, "0", "0 0 4",
		&state{hash: hash(), value: "4", members: []member{{-300, java(3)}, {-200, block(-700, 2, false, "\x00\x00\x00")}}}},
	{"release", "more than is in use beside blocks, which a further call finds out", state{hash: hash("rate", "3", "coolDown", at(-100), "reopenUntil", at(5000)), value: "0", members: []member{
		{-50, own(0, 1)}, {900, block(0, 1, false, "\x00\x00\x00")}, {1900, block(0, 1, false, "\x01\x00\x00")}}}, []any{3, 0, now}, "0", "0 2 1",
		&state{hash: hash("rate", "3", "coolDown", at(-100), "reopenUntil", at(5000)), value: "1", members: []member{
			{900, block(0, 1, false, "\x00\x00\x00")}, {1900, block(0, 1, false, "\x01\x00\x00")}}}},
	{"release", "blocks only", state{hash: hash(), value: "6", members: []member{{-100, block(-700, 4, false, "\x00\x00\x00")}}}, []any{2, 0, now}, "0", "0 0 6", nil},
	{"release", "more than is in use, and what was lost", state{hash: hash(), value: "3", members: lettered(1)}, []any{5, 0, now}, "0", "0 0 10", &state{hash: hash(), value: "10"}},
	{"release", "a value that is lost is that of 512 members", state{hash: hash(), members: each(512, -700, ofJava)}, []any{1, 0, now}, "0", "0 0 0",
		&state{hash: hash(), value: "-501", members: each(511, -700, ofJava)}},
	{"release", "that of more is not known", state{hash: hash(), members: each(513, -700, ofJava)}, []any{1, 0, now}, "0", "0 0 1",
		&state{hash: hash(), value: "1", members: each(512, -700, ofJava)}},
	{"release", "no more than the rate is left", state{hash: hash(), value: "8", members: []member{{-300, java(4)}, {-100, letter(1)}}}, []any{4, 0, now}, "0", "0 0 10",
		&state{hash: hash(), value: "10", members: []member{{-300, java(1)}}}},
	{"release", "512 members a call", state{hash: hash(), value: "-590", members: each(600, -700, ofJava)}, []any{550, 0, now}, "0", "0 38 0",
		&state{hash: hash(), value: "-78", members: each(600, -700, ofJava)[:88]}},
}

// replaceRows are calls that put a member in the place of one that heal may have counted, or none.
var replaceRows = []row{
	{"give_back", "in the middle", state{hash: counted(3, 9, java(4), letter(1)), value: "1", members: []member{{-300, java(4)}, {-200, m21("ab", 'x', 0, 4)}, {-100, letter(1)}}},
		[]any{own(0, 4), own(0, 1), 3}, "0", "0 1", &state{hash: counted(3, 6, java(4), letter(1)), value: "4", members: []member{{-300, java(4)}, {-200, own(0, 1)}, {-100, letter(1)}}}},
	{"give_back", "all of one in the middle", state{hash: counted(3, 9, java(4), letter(1)), value: "1", members: []member{{-300, java(4)}, {-200, own(0, 4)}, {-100, letter(1)}}},
		[]any{own(0, 4), "", 4}, "0", "0 1", &state{hash: counted(2, 5, java(4), letter(1)), value: "5", members: []member{{-300, java(4)}, {-100, letter(1)}}}},
	{"give_back", "more than was granted", state{hash: counted(2, 5, own(0, 4), letter(1)), value: "5", members: []member{{-200, own(0, 4)}, {-100, letter(1)}}},
		[]any{own(0, 4), own(0, 6), -2}, "0", "0 1", &state{hash: counted(2, 7, own(0, 6), letter(1)), value: "3", members: []member{{-200, own(0, 6)}, {-100, letter(1)}}}},
	{"give_back", "the newest that is counted", state{hash: counted(2, 8, java(4), own(0, 4)), value: "1", members: []member{{-300, java(4)}, {-200, own(0, 4)}, {-100, letter(1)}}},
		[]any{own(0, 4), own(0, 1), 3}, "0", "0 1", &state{hash: counted(2, 5, java(4), own(0, 1)), value: "4", members: []member{{-300, java(4)}, {-200, own(0, 1)}, {-100, letter(1)}}}},
	{"give_back", "all of it", state{hash: counted(2, 8, java(4), own(0, 4)), value: "1", members: []member{{-300, java(4)}, {-200, own(0, 4)}}},
		[]any{own(0, 4), "", 4}, "0", "0 1", &state{hash: hash(), value: "5", members: []member{{-300, java(4)}}}},
	{"give_back", "one of which a part is gone", state{hash: counted(2, 7, own(0, 3), java(4)), value: "0", members: []member{{-200, own(0, 3)}, {-100, java(4)}}},
		[]any{own(0, 5), own(0, 1), 4}, "0", "0 1", &state{hash: counted(2, 5, own(0, 1), java(4)), value: "2", members: []member{{-200, own(0, 1)}, {-100, java(4)}}}},
	{"give_back", "all that is left of it", state{hash: hash(), value: "0", members: []member{{-200, own(0, 3)}, {-100, java(4)}}},
		[]any{own(0, 5), "", 5}, "0", "0 1", &state{hash: hash(), value: "3", members: []member{{-100, java(4)}}}},
	{"give_back", "no more is left than it is to be", state{hash: hash(), value: "0", members: []member{{-200, own(0, 3)}, {-100, java(4)}}},
		[]any{own(0, 5), own(0, 3), 2}, "0", "0 0", nil},
	{"give_back", "it is to be more, and has been made so", state{hash: hash(), value: "0", members: []member{{-200, own(0, 7)}, {-100, java(4)}}},
		[]any{own(0, 5), own(0, 7), -2}, "0", "0 0", nil},
	{"give_back", "one that is not counted", state{hash: counted(1, 4, java(4), java(4)), value: "1", members: []member{{-300, java(4)}, {-200, own(0, 4)}}},
		[]any{own(0, 4), own(0, 1), 3}, "0", "0 1", &state{hash: counted(1, 4, java(4), java(4)), value: "4", members: []member{{-300, java(4)}, {-200, own(0, 1)}}}},
	{"give_back", "from below the range", state{hash: counted(1, 1, letter(1), letter(1)), value: "1", members: []member{{-200, own(0, 4)}, {-100, letter(1)}}},
		[]any{own(0, 4), "", 4}, "0", "0 1", &state{hash: counted(1, 1, letter(1), letter(1)), value: "5", members: []member{{-100, letter(1)}}}},
	{"give_back", "the range is another already", state{hash: counted(1, 1, java(4), letter(1)), value: "1", members: []member{{-300, java(4)}, {-200, own(0, 4)}, {-100, letter(1)}}},
		[]any{own(0, 4), "", 4}, "0", "0 1", &state{hash: hash(), value: "5", members: []member{{-300, java(4)}, {-100, letter(1)}}}},
	{"give_back", "the new one is not in the range", state{hash: counted(2, 5, letter(0), own(0, 4)), value: "1", members: []member{{-100, letter(0)}, {-100, own(0, 4)}, {-100, own(0, 5)}}},
		[]any{own(0, 4), own(0, 6), -2}, "0", "0 1", &state{hash: hash(), value: "-1", members: []member{{-100, letter(0)}, {-100, own(0, 5)}, {-100, own(0, 6)}}}},
	{"release", "a part of the newest", state{hash: counted(2, 6, letter(0), own(0, 5)), value: "4", members: []member{{-200, letter(0)}, {-100, own(0, 5)}}},
		[]any{2, 0, now}, "0", "0 0 6", &state{hash: counted(2, 4, letter(0), own(0, 3)), value: "6", members: []member{{-200, letter(0)}, {-100, own(0, 3)}}}},
	{"release", "below a block", state{hash: counted(3, 5, letter(0), block(-700, 3, false, "\x00\x00\x00")), value: "5", members: []member{{-300, letter(0)}, {-200, letter(1)},
		{-100, block(-700, 3, false, "\x00\x00\x00")}}},
		[]any{1, 0, now}, "0", "0 0 6", &state{hash: counted(2, 4, letter(0), block(-700, 3, false, "\x00\x00\x00")), value: "6", members: []member{{-300, letter(0)},
			{-100, block(-700, 3, false, "\x00\x00\x00")}}}},
	{"reserve", "its own moves to now", state{hash: counted(3, 6, letter(0), letter(1)), value: "4", members: []member{{-300, letter(0)}, {-200, own(0, 4)}, {-100, letter(1)}}},
		[]any{5, own(0, 4), 4, "", now, 0}, "0", "0 5 10 1000", &state{hash: counted(2, 2, letter(0), letter(1)), value: "3", members: []member{{-300, letter(0)}, {-100, letter(1)}, {0, own(0, 5)}}}},
	{"cool_down", "heal adds up anew", state{hash: counted(1, 4, java(4), java(4)), value: "6", members: []member{{-100, java(4)}}}, []any{1000, 0, now, 21, 0}, "0",
		"0 " + at(1000) + " now", &state{hash: hash("coolDown", at(1000)), value: "0", members: []member{
			{0, block(0, 6, false, "\x00"+le32((instant + 1000) % (1 << 16))[:2])}, {0, block(-100, 4, false, "\x00"+le32((instant + 1000) % (1 << 16))[:2])}}}},
	{"lift_cool_down", "heal adds up anew", state{hash: counted(1, 4, java(4), java(4)), value: "6", members: []member{{-100, java(4)}}}, []any{now}, "0", "0 0",
		&state{hash: hash(), value: "6", members: []member{{-100, java(4)}}}},
}

// TestHealStates checks what heal and release make of a state.
func TestHealStates(t *testing.T) { check(t, healRows) }

// TestReplaceWhatIsCounted checks that a sum that is carried is right after a member has been replaced.
func TestReplaceWhatIsCounted(t *testing.T) { check(t, replaceRows) }
