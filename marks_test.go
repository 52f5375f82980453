package ratelimiter_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMarksAreSpentWhateverTheirScore checks that the permits of a mark are back an interval after it was first seen,
// whether its score still lies ahead of the clock or no longer does, and for a caller that takes permits ahead of their
// return, too.
func TestMarksAreSpentWhateverTheirScore(t *testing.T) {
	const hour, vvv, www = 3_600_000, "vvv", "www"
	wants := func(permits, held int64) []any { return []any{permits, own(0, held), held, "", now, 0, "me"} }
	grant := func(letter byte, permits int64) string { return m21("cd", letter, 0, permits) }
	state := func(ahead, value string, members ...phaseMember) phaseState {
		return phaseState{hash: hash(), ahead: ahead, value: value, members: members}
	}
	after := func(ahead, value string, members ...phaseMember) *phaseState {
		s := state(ahead, value, members...)
		return &s
	}
	mine, pause := "me "+at(1000)+" 0", "0 "+at(1000)+" 0"
	var many, rest []phaseMember
	for i := range 130 {
		many = append(many, phaseMember{hour + int64(i), marked(-1000, 1, fmt.Sprintf("%03d", i))})
	}
	rest = append(rest, phaseMember{0, own(0, 200)}, many[128], many[129])
	var passed []phaseMember
	for _, m := range many {
		passed = append(passed, phaseMember{-100, m.member})
	}
	for i := range 70 {
		passed = append(passed, phaseMember{-50, marked(-1000, 1, fmt.Sprintf("_%02d", i))})
	}
	large := func(s *phaseState) *phaseState {
		s.hash["rate"] = "200"
		return s
	}
	inPhases(t, func(t *testing.T, run func(row *phaseRow, src string) error) {
		for _, c := range []struct {
			script string
			row    phaseRow
		}{
			// The score has passed.
			{"acquire_rest", phaseRow{14, "heal comes first", state("", "6", phaseMember{-100, marked(-1000, 4, vvv)}),
				asked(7, 1, ""), "0", "0 0 1 6 now 10 1000 0 2 1 4 0 0 0", nil}},
			{"acquire_rest", phaseRow{14, "of callers that wait", state("", "6", phaseMember{-100, marked(-1000, 4, vvv)}),
				waits(7, "order", fmt.Sprint("120 0 -1 ", tagAB, " 0 0")), "0", "0 0 120 6 now 10 1000 0 2 1 4 0 0 0 120 0 0 1 0 0 0 0 0",
				after("", "5", phaseMember{-phaseNow, wire("ab", 0, 0)}, phaseMember{-100, marked(-1000, 4, vvv)})}},
			{"acquire_rest", phaseRow{14, "a moment too early", state("", "6", phaseMember{-100, marked(-999, 4, vvv)}),
				asked(7, 1, ""), "0", "0 0 1 6 now 10 1000 0 0 1 4 0 0 0", nil}},
			{"heal", phaseRow{0, "behind a grant", state("", "2", phaseMember{-300, grant('a', 4)}, phaseMember{-100, marked(-1000, 4, vvv)}),
				healed(""), "0", "0 1 0 0 0 0", after("", "6", phaseMember{-300, grant('a', 4)})}},
			{"heal", phaseRow{0, "192 in a call", *large(after("", "0", passed...)),
				healed(""), "0", "0 0 0 0 0 0 192 0   -1 0", large(after("", "192", passed[192:]...))}},
			{"available", phaseRow{0, "", state("", "6", phaseMember{-100, marked(-1000, 4, vvv)}), []any{now, "", 0, 0}, "0", "0 1 10 now", nil}},
			{"available", phaseRow{0, "a moment too early", state("", "6", phaseMember{-100, marked(-999, 4, vvv)}), []any{now, "", 0, 0}, "0", "0 1 6 now", nil}},
			{"available", phaseRow{0, "ahead", state("", "6", phaseMember{hour, marked(-1000, 4, vvv)}), []any{now, "", 0, 0}, "0", "0 1 10 now", nil}},
			{"reserve", phaseRow{0, "the score has passed", state("", "6", phaseMember{-100, marked(-1000, 4, vvv)}),
				wants(7, 0), "0", "0 7 10 1000 0 0 1 0", after(pause, "3", phaseMember{0, own(0, 7)})}},
			{"reserve", phaseRow{0, "the score is ahead", state("", "6", phaseMember{hour, marked(-1000, 4, vvv)}),
				wants(7, 0), "0", "0 7 10 1000 0 0 1 0", after(pause, "3", phaseMember{0, own(0, 7)})}},
			{"reserve", phaseRow{0, "no more than it wants", state("", "6", phaseMember{-100, marked(-1000, 2, vvv)}, phaseMember{hour, marked(-1000, 2, www)}),
				wants(7, 0), "0", "0 7 10 1000 0 0 1 0", after(pause, "1", phaseMember{0, own(0, 7)}, phaseMember{hour, marked(-1000, 2, www)})}},
			{"reserve", phaseRow{0, "what lacked has come back", state(mine, "-1", phaseMember{-900, own(0, 7)}, phaseMember{-100, marked(-1000, 4, vvv)}),
				wants(7, 7), "0", "0 7 10 1000 0 0 1 0", after(pause, "3", phaseMember{0, own(0, 7)})}},
			{"reserve", phaseRow{0, "it waits for the mark and not for the score", state("", "6", phaseMember{-100, marked(-900, 4, vvv)}),
				wants(7, 0), "0", "0 7 10 1000 1 100 1 0", after(mine, "-1", phaseMember{-100, marked(-900, 4, vvv)}, phaseMember{0, own(0, 7)})}},
			{"reserve", phaseRow{0, "so it does if the score is ahead", state("", "6", phaseMember{hour, marked(-900, 4, vvv)}),
				wants(7, 0), "0", "0 7 10 1000 1 100 1 0", after(mine, "-1", phaseMember{0, own(0, 7)}, phaseMember{hour, marked(-900, 4, vvv)})}},
			{"reserve", phaseRow{0, "the clock was set back", state("", "6", phaseMember{hour, marked(900, 4, vvv)}),
				wants(7, 0), "0", "0 7 10 1000 1 1000 1 0", after(mine, "-1", phaseMember{0, own(0, 7)}, phaseMember{hour, marked(900, 4, vvv)})}},
			{"reserve", phaseRow{0, "the expired and the spent count once", state("", "0", phaseMember{-1000, own(0, 5)},
				phaseMember{-1000, marked(-2000, 3, vvv)}, phaseMember{-100, grant('a', 2)}),
				wants(10, 5), "0", "0 10 10 1000 2 900 1 0", after(mine, "-2", phaseMember{-100, grant('a', 2)}, phaseMember{0, own(0, 10)})}},
			{"reserve", phaseRow{0, "128 in a call", *large(after("", "0", many...)),
				wants(200, 0), "0", "0 200 200 1000 72 1 1 0", large(after(mine, "-72", rest...))}},
		} {
			require.NoError(t, run(&c.row, scriptText(t, c.script)), "%s: %s", c.script, c.row.name)
		}
	})
}

// TestWhoTakesPermitsAheadFirst checks in which order callers take permits ahead of their return: whoever has waited longest
// comes first, and by name of those that have waited as long, until the first begins or says that nobody is to come before it.
func TestWhoTakesPermitsAheadFirst(t *testing.T) {
	const stand = "stand"
	ago := func(d int) int64 { return int64(phaseNow - d) }
	entry := func(name string, end int, since int64) string { return fmt.Sprint(name, " ", phaseNow+end, " ", since) }
	state := func(ahead string) phaseState {
		return phaseState{hash: hash(), ahead: ahead, value: "0", members: []phaseMember{{-100, java(10)}}}
	}
	asks := func(words string, since int64) []any { return []any{4, own(0, 0), 0, words, now, 0, "me", since} }
	inPhases(t, func(t *testing.T, run func(row *phaseRow, src string) error) {
		for _, c := range []struct {
			name   string
			before string
			args   []any
			reply  string // lacking, wait, place and since
			after  string
		}{
			{"nobody else", "", asks(stand, -50), fmt.Sprint("4 900 1 ", ago(50)), entry("me", 1000, ago(50))},
			{"behind one who has waited longer", entry("a", 500, ago(60)), asks(stand, -50),
				fmt.Sprint("4 50 2 ", ago(50)), entry("a", 500, ago(60)) + " " + entry("me", 1000, ago(50))},
			{"before one who has waited less", entry("a", 500, ago(40)), asks(stand, ago(50)),
				fmt.Sprint("4 900 1 ", ago(50)), entry("me", 1000, ago(50)) + " " + entry("a", 500, ago(40))},
			{"as long, by name", entry("a", 500, ago(50)) + " " + entry("z", 500, ago(50)), asks(stand, ago(50)),
				fmt.Sprint("4 50 2 ", ago(50)), entry("a", 500, ago(50)) + " " + entry("me", 1000, ago(50)) + " " + entry("z", 500, ago(50))},
			{"behind one before whom nobody comes", entry("a", 500, 0), asks(stand, ago(50)),
				fmt.Sprint("4 50 2 ", ago(50)), entry("a", 500, 0) + " " + entry("me", 1000, ago(50))},
			{"behind a pause", entry("0", 500, 0), asks(stand, ago(50)),
				fmt.Sprint("4 500 2 ", ago(50)), entry("0", 500, 0) + " " + entry("me", 1000, ago(50))},
			{"one whose entry has ended", entry("a", 0, 0), asks(stand, -50), fmt.Sprint("4 900 1 ", ago(50)), entry("me", 1000, ago(50))},
			{"the first claims its place", entry("me", 500, ago(50)) + " " + entry("a", 500, ago(40)), asks(stand, 0),
				"4 900 1 0", entry("me", 1000, 0) + " " + entry("a", 500, ago(40))},
			{"another cannot", entry("a", 500, ago(60)) + " " + entry("me", 500, ago(50)), asks(stand, 0),
				fmt.Sprint("4 50 2 ", ago(50)), entry("a", 500, ago(60)) + " " + entry("me", 1000, ago(50))},
			{"what was claimed goes back", entry("me", 500, 0) + " " + entry("a", 500, ago(60)), asks(stand, ago(50)),
				fmt.Sprint("4 50 2 ", ago(50)), entry("a", 500, ago(60)) + " " + entry("me", 1000, ago(50))},
			{"whoever leaves", entry("a", 500, 0) + " " + entry("me", 500, ago(50)), []any{0, own(0, 0), 0, "", now, 0, "me", 0},
				"0 0 0 0", entry("a", 500, 0)},
		} {
			after := state(c.after)
			row := phaseRow{0, "", state(c.before), c.args, "0", "0 0 10 1000 " + c.reply, &after}
			require.NoError(t, run(&row, scriptText(t, "reserve")), c.name)
		}
	})
}
