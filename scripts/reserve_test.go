// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"fmt"
	"strings"
	"testing"
)

// TestMarksAreSpentWhateverTheirScore checks that the permits of a mark are back an interval after it was first seen,
// whether its score still lies ahead of the clock or no longer does, and for a caller that takes permits ahead of their
// return, too.
func TestMarksAreSpentWhateverTheirScore(t *testing.T) {
	const hour, vvv, www = 3_600_000, "vvv", "www"
	wants := func(permits, held int64) []any { return []any{permits, own(0, held), held, "", now, 0, "me"} }
	grant := func(letter byte, permits int64) string { return m21("cd", letter, 0, permits) }
	set := func(ahead, value string, members ...member) state {
		return state{hash: hash(), ahead: ahead, value: value, members: members}
	}
	then := func(ahead, value string, members ...member) *state { return after(set(ahead, value, members...)) }
	mine, pause := "me "+at(1000)+" 0", "0 "+at(1000)+" 0"
	var many, rest []member
	for i := range 130 {
		many = append(many, member{hour + int64(i), marked(-1000, 1, fmt.Sprintf("%03d", i))})
	}
	rest = append(rest, member{0, own(0, 200)}, many[128], many[129])
	var passed []member
	for _, m := range many {
		passed = append(passed, member{-100, m.member})
	}
	for i := range 70 {
		passed = append(passed, member{-50, marked(-1000, 1, fmt.Sprintf("_%02d", i))})
	}
	large := func(s *state) *state {
		s.hash["rate"] = "200"
		return s
	}
	check(t, []row{
		{"acquire_rest", "14. heal comes first", set("", "6", member{-100, marked(-1000, 4, vvv)}),
			asked(7, 1, ""), "0", "0 now granted 0 wait 1 available 6 rate 10 interval 1000 again 2 walked 1 walkedPermits 4", nil},
		{"acquire_rest", "14. of callers that wait", set("", "6", member{-100, marked(-1000, 4, vvv)}),
			waits(7, "order", fmt.Sprint("120 0 ", tagAB, " 0 0")), "0", "0 now granted 0 wait 120 available 6 rate 10 interval 1000 again 2 walked 1 walkedPermits 4 soon 120 stands 1",
			then("", "5", member{-instant, tripwire("ab", 0)}, member{-100, marked(-1000, 4, vvv)})},
		{"acquire_rest", "14. a moment too early", set("", "6", member{-100, marked(-999, 4, vvv)}),
			asked(7, 1, ""), "0", "0 now granted 0 wait 1 available 6 rate 10 interval 1000 walked 1 walkedPermits 4", nil},
		{"heal", "behind a grant", set("", "2", member{-300, grant('a', 4)}, member{-100, marked(-1000, 4, vvv)}),
			healed(""), "0", "0 done", then("", "6", member{-300, grant('a', 4)})},
		{"heal", "192 in a call", *large(then("", "0", passed...)),
			healed(""), "0", "0 next 192 0 0", large(then("", "192", passed[192:]...))},
		{"available", "", set("", "6", member{-100, marked(-1000, 4, vvv)}), []any{now, "", 0, 0}, "0", "0 1 10 now", nil},
		{"available", "a moment too early", set("", "6", member{-100, marked(-999, 4, vvv)}), []any{now, "", 0, 0}, "0", "0 1 6 now", nil},
		{"available", "ahead", set("", "6", member{hour, marked(-1000, 4, vvv)}), []any{now, "", 0, 0}, "0", "0 1 10 now", nil},
		{"reserve", "the score has passed", set("", "6", member{-100, marked(-1000, 4, vvv)}),
			wants(7, 0), "0", "0 7 10 1000 0 0 1", then(pause, "3", member{0, own(0, 7)})},
		{"reserve", "the score is ahead", set("", "6", member{hour, marked(-1000, 4, vvv)}),
			wants(7, 0), "0", "0 7 10 1000 0 0 1", then(pause, "3", member{0, own(0, 7)})},
		{"reserve", "most of the rate", set("", "8", member{-100, grant('a', 2)}),
			wants(8, 0), "0", "0 8 10 1000 0 0 1", then("0 "+at(1025)+" 0", "0", member{-100, grant('a', 2)}, member{0, own(0, 8)})},
		{"reserve", "little of the rate", set("", "2", member{-100, grant('a', 8)}),
			wants(2, 0), "0", "0 2 10 1000 0 0 1", then("0 "+at(800)+" 0", "0", member{-100, grant('a', 8)}, member{0, own(0, 2)})},
		{"reserve", "a part of several", set("", "2", member{-100, grant('a', 8)}),
			[]any{2, own(0, 0), 0, "part", now, 0, "me"}, "0", "0 2 10 1000 0 0 1",
			then("0 "+at(200)+" 0", "0", member{-100, grant('a', 8)}, member{0, own(0, 2)})},
		{"reserve", "no more than it wants", set("", "6", member{-100, marked(-1000, 2, vvv)}, member{hour, marked(-1000, 2, www)}),
			wants(7, 0), "0", "0 7 10 1000 0 0 1", then(pause, "1", member{0, own(0, 7)}, member{hour, marked(-1000, 2, www)})},
		{"reserve", "what lacked has come back", set(mine, "-1", member{-900, own(0, 7)}, member{-100, marked(-1000, 4, vvv)}),
			wants(7, 7), "0", "0 7 10 1000 0 0 1", then(pause, "3", member{0, own(0, 7)})},
		{"reserve", "it waits for the mark and not for the score", set("", "6", member{-100, marked(-900, 4, vvv)}),
			wants(7, 0), "0", "0 7 10 1000 1 100 1", then(mine, "-1", member{-100, marked(-900, 4, vvv)}, member{0, own(0, 7)})},
		{"reserve", "so it does if the score is ahead", set("", "6", member{hour, marked(-900, 4, vvv)}),
			wants(7, 0), "0", "0 7 10 1000 1 100 1", then(mine, "-1", member{0, own(0, 7)}, member{hour, marked(-900, 4, vvv)})},
		{"reserve", "the clock was set back", set("", "6", member{hour, marked(900, 4, vvv)}),
			wants(7, 0), "0", "0 7 10 1000 1 1000 1", then(mine, "-1", member{0, own(0, 7)}, member{hour, marked(900, 4, vvv)})},
		{"reserve", "the expired and the spent count once", set("", "0", member{-1000, own(0, 5)},
			member{-1000, marked(-2000, 3, vvv)}, member{-100, grant('a', 2)}),
			wants(10, 5), "0", "0 10 10 1000 2 900 1", then(mine, "-2", member{-100, grant('a', 2)}, member{0, own(0, 10)})},
		{"reserve", "128 in a call", *large(then("", "0", many...)),
			wants(200, 0), "0", "0 200 200 1000 72 1 1", large(then(mine, "-72", rest...))},
	})
}

// TestWhoTakesPermitsAheadFirst checks in which order callers take permits ahead of their return: whoever has waited longest
// comes first, and by name of those that have waited as long. Nobody comes before one that has begun. An entry may be that of a
// caller that was first and had not begun, which other versions wrote.
func TestWhoTakesPermitsAheadFirst(t *testing.T) {
	ago := func(d int) int64 { return int64(instant - d) }
	entry := func(name string, end int, since int64) string { return fmt.Sprint(name, " ", instant+end, " ", since) }
	set := func(ahead string) state {
		return state{hash: hash(), ahead: ahead, value: "0", members: []member{{-100, java(10)}}}
	}
	arrives := func(waited int) []any { return []any{4, own(0, 0), 0, "", now, 0, "me", waited} }
	thirtyTwo := strings.TrimSpace(strings.Repeat(entry("a", 500, ago(60))+" ", 32))
	var rows []row
	for _, c := range []struct {
		name   string
		before string
		args   []any
		reply  string // held, and after the rate lacking, wait and place
		after  string
	}{
		{"nobody else", "", arrives(50), "4 10 1000 4 900 1", entry("me", 1000, 0)},
		{"behind one who has waited longer", entry("a", 500, ago(60)), arrives(50), "0 10 1000 4 50 2",
			entry("a", 500, ago(60)) + " " + entry("me", 1000, ago(50))},
		{"behind one who has come at the same instant, by name", entry("a", 500, ago(0)), arrives(50)[:7], "0 10 1000 4 50 2",
			entry("a", 500, ago(0)) + " " + entry("me", 1000, ago(0))},
		{"behind 32, who are all that the queue holds", thirtyTwo, arrives(50), "0 10 1000 0 0 0", thirtyTwo},
		{"before one who has waited less", entry("a", 500, ago(40)), arrives(50), "4 10 1000 4 900 1",
			entry("me", 1000, 0) + " " + entry("a", 500, ago(40))},
		{"as long, by name", entry("a", 500, ago(50)) + " " + entry("z", 500, ago(50)), arrives(50), "0 10 1000 4 50 2",
			entry("a", 500, ago(50)) + " " + entry("me", 1000, ago(50)) + " " + entry("z", 500, ago(50))},
		{"behind one that has begun", entry("a", 500, 0), arrives(50), "0 10 1000 4 50 2",
			entry("a", 500, 0) + " " + entry("me", 1000, ago(50))},
		{"behind a pause", entry("0", 500, 0), arrives(50), "0 10 1000 4 500 2",
			entry("0", 500, 0) + " " + entry("me", 1000, ago(50))},
		{"one whose entry has ended", entry("a", 0, 0), arrives(50), "4 10 1000 4 900 1", entry("me", 1000, 0)},
		{"its entry counts", entry("a", 500, ago(60)) + " " + entry("me", 500, ago(50)), arrives(70), "0 10 1000 4 50 2",
			entry("a", 500, ago(60)) + " " + entry("me", 1000, ago(50))},
		{"it begins", entry("me", 500, ago(50)) + " " + entry("a", 500, ago(40)), arrives(0), "4 10 1000 4 900 1",
			entry("me", 1000, 0) + " " + entry("a", 500, ago(40))},
		{"whoever leaves", entry("a", 500, 0) + " " + entry("me", 500, ago(50)), []any{0, own(0, 0), 0, "", now, 0, "me", 0},
			"0 10 1000 0 0 0", entry("a", 500, 0)},
	} {
		after := set(c.after)
		if c.reply[0] == '4' {
			after.value, after.members = "-4", append(after.members, member{0, own(0, 4)})
		}
		rows = append(rows, row{"reserve", c.name, set(c.before), c.args, "0", "0 " + c.reply, &after})
	}
	one := set(entry("me", 1000, 0))
	one.value, one.members = "-1", append(one.members, member{0, own(0, 1)})
	rows = append(rows, row{"reserve", "a single permit", set(""), []any{1, own(0, 0), 0, "", now, 0, "me", 0}, "0", "0 1 10 1000 1 900 1", &one})
	check(t, rows)
}

// TestGapOfAReservation checks that a reservation takes nothing in the gap behind another's grant, which may be ahead of the clock.
func TestGapOfAReservation(t *testing.T) {
	before := func(m ...member) state { return state{hash: hash("minGap", "100"), value: "7", members: m} }
	none, mine := "0 0 10 1000", member{50, own(0, 1)}
	rejects := func(name, words string, m member) row {
		return row{"reserve", name, before(m, member{-500, java(2)}), []any{1, own(0, 0), 0, words, now, 0}, "0", none, nil}
	}
	check(t, []row{
		rejects("within it", "mark", member{-99, java(1)}),
		rejects("a grant ahead of the clock", "mark", member{50, java(1)}),
		rejects("a mark", "mark", member{50, marked(-99, 1, "\x00va")}),
		rejects("a mark with a clock of its own", "", member{50, marked(-99, 1, "\x00va")}),
		{"reserve", "a grant ahead of a clock of its own", before(member{-500, java(2)}, member{50, java(1)}), []any{1, own(0, 0), 0, "", now, 0}, "0", "0 1 10 1000",
			&state{hash: hash("minGap", "100"), value: "6", members: []member{{-500, java(2)}, {0, own(0, 1)}, {50, java(1)}}}},
		{"reserve", "its own ahead of the clock", before(member{-500, java(2)}, mine), []any{1, own(0, 1), 1, "mark", now, 0}, "0", "0 1 10 1000",
			&state{hash: hash("minGap", "100"), value: "7", members: []member{{-500, java(2)}, {0, own(0, 1)}}}},
	})
}

// TestGapBelowZeroIsNone checks that a minGap that somebody wrote by hand keeps nobody from taking permits ahead, if it is
// below 0 and so is no gap.
func TestGapBelowZeroIsNone(t *testing.T) {
	for _, gap := range []string{"", "0", "-5"} {
		before := state{hash: hash("minGap", gap), value: "0", members: []member{{-100, java(10)}}}
		then := before
		then.value, then.members = "-4", []member{{-100, java(10)}, {0, own(0, 4)}}
		then.ahead = "a " + at(1000) + " 0"
		check(t, []row{{"reserve", gap, before, []any{4, own(0, 0), 0, "", now, 0, "a"}, "0", "0 4 10 1000 4 900 1", &then}})
	}
}
