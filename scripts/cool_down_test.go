// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestGivenBackInACoolDown checks that what is given back in a cool-down is left to nobody before that ends.
func TestGivenBackInACoolDown(t *testing.T) {
	cooling := hash("coolDown", at(300))
	set := func(value string, members ...member) state {
		return state{hash: cooling, value: value, members: members}
	}
	free := func(permits int64, n byte) member { return member{-700, joined(0, permits, n)} }
	five, two := own(0, 5), own(0, 2)
	long5 := long("abcdefgh", 5)
	check(t, []row{
		{"give_back", "all", set("0", free(5, 9), member{-100, five}), []any{five, "", 5, now}, "0", "0 1", after(set("0", free(5, 9), free(5, 0)))},
		{"give_back", "a part", set("0", free(5, 9), member{-100, five}), []any{five, two, 3, now}, "0", "0 1", after(set("0", free(5, 9), free(3, 0), member{-100, two}))},
		{"give_back", "as many as another of this instant", set("0", free(5, 0), member{-100, five}), []any{five, "", 5, now}, "0", "0 1", after(set("0", free(5, 0), free(5, 1)))},
		{"give_back", "what is owed comes first", set("-2", free(7, 9), member{-100, five}), []any{five, "", 5, now}, "0", "0 1", after(set("0", free(7, 9), free(3, 0)))},
		{"give_back", "more is owed than that", set("-7", free(7, 9), member{-100, five}), []any{five, "", 5, now}, "0", "0 1", after(set("-2", free(7, 9)))},
		{"give_back", "what a peer has released stays", set("3", free(5, 9), member{-100, five}), []any{five, "", 5, now}, "0", "0 1", after(set("3", free(5, 9), free(5, 0)))},
		{"give_back", "more is taken", set("0", free(8, 9), member{-100, two}), []any{two, five, -3, now}, "0", "0 1", after(set("-3", free(8, 9), member{-100, five}))},
		{"give_back", "of 20 bytes", set("0", free(5, 9), member{-100, long5}), []any{long5, "", 5, now}, "0", "0 1",
			after(set("0", free(5, 9), member{-700, long("~c\x80"+six(instant % (1 << 32))[1:], 5)}))},
		{"give_back", "the keys keep their TTL", state{hash: cooling, value: "0", members: []member{{-100, five}}, ttls: [3]time.Duration{0, time.Hour, time.Hour}},
			[]any{five, "", 5, now}, "0", "0 1", &state{hash: cooling, value: "0", members: []member{free(5, 0)}, ttls: [3]time.Duration{0, time.Hour, time.Hour}}},
		{"give_back", "when it is over", state{hash: hash("coolDown", at(0)), value: "0", members: []member{{-100, five}}},
			[]any{five, "", 5, now}, "0", "0 1", &state{hash: hash("coolDown", at(0)), value: "5"}},
		{"give_back", "a rate that is none", state{hash: hash("rate", "2.5"), value: "0", members: []member{{-100, five}}},
			[]any{five, "", 5, now}, "0", "0 1", &state{hash: hash("rate", "2.5"), value: "0"}},
		{"reserve", "a reservation", set("0", free(5, 9), member{-100, five}), []any{0, five, 5, "", now, 0}, "0", "0 0 10 1000", after(set("0", free(5, 9), free(5, 0)))},
		{"reserve", "one that goes on", set("-2", free(7, 9), member{-100, five}), []any{5, five, 5, "", now, 0, "me", 0}, "0", "0 0 10 1000 0 0 0", after(set("0", free(7, 9), free(3, 0)))},
		{"reserve", "of 20 bytes", set("0", free(5, 9), member{-100, long5}), []any{0, long5, 5, "", now, 0}, "0", "0 0 10 1000",
			after(set("0", free(5, 9), member{-700, long("~c\x80"+six(instant % (1 << 32))[1:], 5)}))},
		{"give_back", "a single permit", set("0", free(9, 9), member{-100, own(0, 1)}), []any{own(0, 1), "", 1, now}, "0", "0 1", after(set("0", free(9, 9), free(1, 0)))},
		{"release", "a release has no effect", set("0", free(5, 9), member{-100, five}), []any{5, 0, now}, "0", "0 0 0", nil},
		{"release", "and has one when it is over", state{hash: hash("coolDown", at(0)), value: "5", members: []member{{-100, five}}}, []any{5, 0, now}, "0", "0 0 10", &state{hash: hash("coolDown", at(0)), value: "10"}},
	})
}

// TestCoolDownThatFollowsAnother checks what remains of a cool-down when another one begins, and that the keys outlive it.
func TestCoolDownThatFollowsAnother(t *testing.T) {
	stamp := func(till int64) string { return "\x00" + le32((instant + till) % (1 << 16))[:2] }
	one := []member{{0, block(0, 1, false, stamp(1000))}}
	opens, void := member{-100, block(0, 1, false, "abc")}, member{-50, block(0, 1, false, "def")}
	long := []member{{3_599_000, block(0, 1, false, stamp(3_600_000))}}
	check(t, []row{
		{"cool_down", "of the same end, that re-opens", state{hash: hash("rate", "1", "coolDown", at(1000)), value: "0", members: one}, []any{1000, 500, now, 21, 0}, "0",
			"0 " + at(1000) + " now", &state{hash: hash("rate", "1", "coolDown", at(1000), "reopenUntil", at(1500)), value: "0", members: one}},
		{"cool_down", "one in force is replaced, with its re-opening", state{hash: hash("rate", "2", "coolDown", at(100), "reopenUntil", at(5000)), value: "0",
			members: []member{{-900, block(0, 1, false, "abc")}, {4000, block(-200, 1, false, "abc")}}}, []any{300, 0, now, 21, 0}, "0", "0 " + at(300) + " now",
			&state{hash: hash("rate", "2", "coolDown", at(300)), value: "0", members: []member{{-700, block(0, 1, false, stamp(300))}, {-200, "\x10~l~" + block(-200, 1, false, stamp(300))[4:]}}}},
		{"cool_down", "one that re-opens still goes on doing so", state{hash: hash("rate", "3", "coolDown", at(-5), "reopenUntil", at(900)), value: "1", members: []member{opens, void}},
			[]any{300, 0, now, 21, 0}, "0", "0 " + at(300) + " now", &state{hash: hash("rate", "3", "coolDown", at(300), "reopenUntil", at(900)), value: "0",
				members: []member{{-700, block(0, 2, false, stamp(300))}, opens}}},
		{"cool_down", "a longer one stays, and the keys outlive that", state{hash: hash("rate", "1", "coolDown", at(3_600_000)), value: "0", members: long, ttls: [3]time.Duration{10 * time.Minute}},
			[]any{1000, 0, now, 21, 0}, "0", "0 " + at(3_600_000) + " now", &state{hash: hash("rate", "1", "coolDown", at(3_600_000)), value: "0", members: long,
				ttls: [3]time.Duration{61 * time.Minute, 61 * time.Minute, 61 * time.Minute}}},
		{"cool_down", "a longer one stays, of a client whose keys live forever", state{hash: hash("rate", "1", "type", "1", "coolDown", at(3_600_000)), value: "0", members: long, ttls: [3]time.Duration{0, time.Hour, time.Hour}},
			[]any{1000, 0, now, 21, 0}, "1", "0 " + at(3_600_000) + " now", &state{hash: hash("rate", "1", "type", "1", "coolDown", at(3_600_000)), value: "0", members: long}},
		{"cool_down", "the keys outlive it by an interval", state{hash: hash("rate", "1"), value: "1", ttls: [3]time.Duration{10 * time.Minute}},
			[]any{3_600_000, 0, now, 21, 0}, "0", "0 " + at(3_600_000) + " now", &state{hash: hash("rate", "1", "coolDown", at(3_600_000)), value: "0", members: long,
				ttls: [3]time.Duration{61 * time.Minute, 61 * time.Minute, 61 * time.Minute}}},
	})
}

// TestReopening checks when which permits are back that a cool-down gives back one after another: those that were free first, then
// the oldest, in 64 steps at most, of which some have one permit more than others.
func TestReopening(t *testing.T) {
	set := func(rate, value string, members ...member) state {
		return state{hash: hash("rate", rate), value: value, members: members}
	}
	then := func(rate string, over int64, members []member) *state {
		return &state{hash: hash("rate", rate, "coolDown", at(300), "reopenUntil", at(300+over)), value: "0", members: members}
	}
	var each, long20, large []member
	stamp := le32((instant + 300) % (1 << 16))[:2]
	for i, t := range []int64{0, 0, -900, -900, -900} {
		n := int64(i % 2) // the number among those that are alike
		if t != 0 {
			n = int64(i - 2)
		}
		score := -700 + 20*int64(i)
		each = append(each, member{score, block(t, 1, false, string([]byte{byte(n)})+stamp)})
		if t != 0 {
			t = instant + t + n<<42
		} else {
			t = (instant + 300 + n) % (1 << 32)
		}
		long20 = append(long20, member{score, long("~c"+six(t), 1)})
	}
	twos, threes := 0, 0
	for i := range int64(64) {
		n, k := int64(2), &twos
		if i%32 == 31 {
			n, k = 3, &threes
		}
		large = append(large, member{-700 + 10*i, block(0, n, false, string([]byte{byte(*k)})+stamp)})
		*k++
	}
	reply := "0 " + at(300) + " now"
	check(t, []row{
		{"cool_down", "one by one", set("5", "2", member{-900, own(0, 3)}), []any{300, 100, now, 21, 0}, "0", reply, then("5", 100, each)},
		{"cool_down", "of 20 bytes", set("5", "2", member{-900, own(0, 3)}), []any{300, 100, now, 20, 0}, "0", reply, then("5", 100, long20)},
		{"cool_down", "64 steps", set("130", "130"), []any{300, 640, now, 21, 0}, "0", reply, then("130", 640, large)},
	})
}

// TestCoolDownOfALargeSet checks what becomes of more members than one call reads. If only some of them expire before the end, each
// becomes a block of its own instant, and the others stay. If more do, all of them become blocks of the ends of 128ths of the interval.
func TestCoolDownOfALargeSet(t *testing.T) {
	stamp := func(till int64) string { return "\x00" + le32((instant + till) % (1 << 16))[:2] }
	set := func(rate, value string, members ...member) state {
		return state{hash: hash("rate", rate), value: value, members: members}
	}
	then := func(rate string, till int64, value string, members ...member) *state {
		return &state{hash: hash("rate", rate, "coolDown", at(till)), value: value, members: members}
	}
	some := []member{{-950, java(2)}, {-1000, own(0, 3)}}
	cools, reply := []any{5000, 0, now, 21, 0}, "0 "+at(5000)+" now"
	later, soon := each(511, -700, ofJava), "0 "+at(100)+" now"
	all := func(t, permits int64) member { return member{4000, block(t, permits, false, stamp(5000))} }
	early := func(t, permits int64) member { return member{-900, block(t, permits, false, stamp(100))} }
	check(t, []row{
		{"cool_down", "some expire before its end", set("600", "84", slices.Concat(some, later)...), []any{100, 0, now, 21, 0}, "0", soon,
			then("600", 100, "0", append(slices.Clip(later), early(0, 87), early(-950, 2))...)},
		{"cool_down", "one does, and permits are owed", set("513", "-3", append(slices.Clip(later), some[0], member{-800, java(3)})...), []any{100, 0, now, 21, 0}, "0", soon,
			then("513", 100, "-3", append(slices.Clip(later), early(-950, 2), member{-800, java(3)})...)},
		{"cool_down", "512 are added up, whatever is left", set("600", "1", each(512, -700, ofJava)...), cools, "0", reply, then("600", 5000, "0", all(0, 88), all(-700, 512))},
		{"cool_down", "513 expire before its end", set("600", "87", each(513, -700, ofJava)...), cools, "0", reply, then("600", 5000, "0", all(0, 87), all(-696, 513))},
		{"cool_down", "none was free", set("513", "0", each(513, -700, ofJava)...), cools, "0", reply, then("513", 5000, "0", all(-696, 513))},
		{"cool_down", "the newest hold what each has more than one", set("1000", "74", append(each(413, -700, twice), each(100, -100, ofAjav)...)...), cools, "0", reply,
			then("1000", 5000, "0", all(0, 74), all(-696, 413), all(-94, 513))},
		{"cool_down", "the value is lost", set("513", "", each(513, -700, ofJava)...), cools, "0", reply, then("513", 5000, "0", all(-696, 513))},
		{"cool_down", "the newest is one by itself", set("600", "87", append(each(512, -700, ofJava), member{-100, ofAjav(0)})...), cools, "0", reply,
			then("600", 5000, "0", all(0, 87), all(-696, 512), all(-94, 1))},
		{"cool_down", "what has expired is free", set("700", "88", append(each(512, -700, ofJava), each(100, -1000, ofAjav)...)...), cools, "0", reply,
			then("700", 5000, "0", all(0, 188), all(-696, 512))},
		{"cool_down", "more is owed than that", set("513", "-7", each(513, -700, ofJava)...), cools, "0", reply, then("513", 5000, "-7", all(-696, 520))},
	})
}

func ofAjav(i int) string { return fmt.Sprintf("\x08ajav%04d", i) + le32(1) }

// TestLiftCoolDown checks what is free once a cool-down is lifted, and what is in use again.
func TestLiftCoolDown(t *testing.T) {
	cooling := hash("coolDown", at(5000), "reopenUntil", at(6000))
	set := func(value string, members ...member) state {
		return state{hash: cooling, value: value, members: members}
	}
	then := func(value string, members ...member) *state {
		return &state{hash: hash(), value: value, members: members}
	}
	lifted := func(m string) string { return m[:1] + "~l~" + m[4:] }
	taken, old, ahead := block(-300, 4, false, "abc"), block(-1000, 4, false, "abc"), block(20, 4, false, "abc")
	chance, later := block(-63244805000, 4, false, "abc"), block(33, 4, false, "abc")
	check(t, []row{
		{"lift_cool_down", "what was in use, and what was free", set("0", member{4000, taken}, member{4500, block(0, 6, false, "abc")}), []any{now}, "0", "0 1",
			then("6", member{-300, lifted(taken)})},
		{"lift_cool_down", "of 20 bytes", set("0", member{4000, long("~c"+six(instant-300), 4)}, member{4500, long("~c"+six(7), 6)}), []any{now}, "0", "0 1",
			then("6", member{-300, long("~l"+six(instant-300), 4)})},
		{"lift_cool_down", "what joined it", set("0", member{4000, joined(0, 6, 0)}, member{4000, long("~c\x80"+six(7)[1:], 4)}), []any{now}, "0", "0 1", then("10")},
		{"lift_cool_down", "what would have expired", set("0", member{4000, old}), []any{now}, "0", "0 1", then("4")},
		{"lift_cool_down", "no more than the rate", set("8", member{4000, block(0, 6, false, "abc")}), []any{now}, "0", "0 1", then("10")},
		{"lift_cool_down", "equal blocks have their instants apart", set("0", member{4000, ahead}), []any{now}, "0", "0 1", then("0", member{0, lifted(ahead)})},
		{"lift_cool_down", "no blocks", set("0", member{4000, chance}, member{4001, later}), []any{now}, "0", "0 1", then("0", member{4000, chance}, member{4001, later})},
		{"lift_cool_down", "it re-opens", state{hash: hash("coolDown", at(-5), "reopenUntil", at(5)), value: "0"}, []any{now}, "0", "0 1", then("0")},
		{"lift_cool_down", "it is over", state{hash: hash("coolDown", at(-5), "reopenUntil", at(0)), value: "3", members: []member{{-1000, taken}}}, []any{now}, "0", "0 0",
			then("3", member{-1000, taken})},
		{"lift_cool_down", "what has expired is left", state{hash: hash(), value: "3", members: []member{{-1000, block(0, 7, false, "abc")}}}, []any{now}, "0", "0 0", nil},
		{"lift_cool_down", "a block of another cool-down among many", state{hash: hash("rate", "110", "coolDown", at(5000)), value: "9",
			members: append(each(100, -700, ofJava), member{3000, block(0, 1, false, "abc")})}, []any{now}, "0", "0 1", &state{hash: hash("rate", "110"), value: "10", members: each(100, -700, ofJava)}},
		{"lift_cool_down", "640 members", state{hash: hash("rate", "700"), value: "60", members: append(each(639, -700, ofJava), member{-750, block(0, 1, false, "abc")})}, []any{now}, "0", "0 1",
			&state{hash: hash("rate", "700"), value: "61", members: each(639, -700, ofJava)}},
		{"lift_cool_down", "of more the newest", state{hash: hash("rate", "700"), value: "0", members: append(append([]member{{-650, block(0, 1, false, "abc")}}, each(511, -600, ofJava)...), each(129, -700, ofAjav)...)},
			[]any{now}, "0", "0 1", &state{hash: hash("rate", "700"), value: "1", members: append(each(511, -600, ofJava), each(129, -700, ofAjav)...)}},
	})
}

// TestAvailableOfMembers checks what counts as available: what is left, and what has expired or has no effect any more.
func TestAvailableOfMembers(t *testing.T) {
	asks := []any{now, "", 0, 0}
	free := func(joins bool) member { return member{-100, block(0, 3, joins, "abc")} }
	cooled := func(cool, reopen, value string, members ...member) state {
		return state{hash: hash("coolDown", cool, "reopenUntil", reopen), value: value, members: members}
	}
	thousand := func(n int, value string) state {
		return state{hash: hash("rate", "3000"), value: value, members: append(each(n, -1000, ofJava), each(1100, -100, ofAjav)...)}
	}
	check(t, []row{
		{"available", "in a cool-down", cooled(at(1), "", "10"), asks, "0", "0 1 0 now", nil},
		{"available", "at its end", cooled(at(0), "", "10"), asks, "0", "0 1 10 now", nil},
		{"available", "blocks without a cool-down are void", with("7", free(false)), asks, "0", "0 1 10 now", nil},
		{"available", "a re-opening alone is none", state{hash: hash("reopenUntil", at(5000)), value: "7", members: []member{free(false)}}, asks, "0", "0 1 10 now", nil},
		{"available", "those of a re-opening are not", cooled(at(-5), at(900), "7", free(false)), asks, "0", "0 1 7 now", nil},
		{"available", "unless they joined", cooled(at(-5), at(900), "7", free(true)), asks, "0", "0 1 10 now", nil},
		{"available", "nor before its end", cooled(at(-5), at(899), "7", free(false)), asks, "0", "0 1 10 now", nil},
		{"available", "blocks of grants that have expired meanwhile are void", with("7", member{-100, block(-1000, 3, false, "abc")}), asks, "0", "0 1 10 now", nil},
		{"available", "those of others are grants", with("7", member{-100, block(-999, 3, false, "abc")}), asks, "0", "0 1 7 now", nil},
		{"available", "no block by chance", with("7", member{-100, block(-63244805000, 3, false, "abc")}), asks, "0", "0 1 7 now", nil},
		{"available", "permits that were lost", with("1", member{-100, java(4)}), asks, "0", "0 1 6 now", nil},
		{"available", "what has expired", with("1", member{-1000, java(5)}, member{-100, java(4)}), asks, "0", "0 1 6 now", nil},
		{"available", "the expired are fewer", thousand(50, "1850"), asks, "0", "0 1 1900 now", nil},
		{"available", "many are", thousand(1050, "850"), asks, "0", fmt.Sprint("0 0 e 1000 1000 ", instant), nil},
		{"available", "one more than a call counts", thousand(1001, "899"), asks, "0", fmt.Sprint("0 0 e 1000 1000 ", instant), nil},
		{"available", "it goes on", thousand(1050, "850"), []any{now, "e", 1000, 1000}, "0", "0 1 1900 now", nil},
		{"available", "not more than the others leave", thousand(1050, "2800"), []any{now, "e", 1000, 1000}, "0", "0 1 1900 now", nil},
		{"available", "fewer have expired than were counted", thousand(50, "1850"), []any{now, "e", 51, 51}, "0", "5", nil},
		{"available", "without a value it counts those in use", thousand(50, ""), asks, "0", fmt.Sprint("0 0 u 1000 1000 ", instant), nil},
		{"available", "to the end", thousand(50, ""), []any{now, "u", 1000, 1000}, "0", "0 1 1900 now", nil},
	})
}

// TestHealKeepsTheKeysAlive checks that keys which have a TTL live for as long as the permits in use, but no longer than the hash.
func TestHealKeepsTheKeysAlive(t *testing.T) {
	state := func(fields map[string]string, ttls ...time.Duration) state {
		s := state{hash: fields, value: "6", members: []member{{-100, java(4)}}}
		copy(s.ttls[:], ttls)
		return s
	}
	const minute, hour = time.Minute, time.Hour
	day := hash("interval", "86400000")
	long, limited, longer := state(day, 0, 24*hour, 24*hour), state(day, 3*hour, 3*hour, 3*hour), state(day, 0, 48*hour, 0)
	check(t, []row{
		{"heal", "", state(day, 0, minute, minute), healed(""), "0", "0 done", &long},
		{"heal", "as the hash does", state(day, 3*hour, minute, minute), healed(""), "0", "0 done", &limited},
		{"heal", "no TTL stays none, and a longer one", longer, healed(""), "0", "0 done", nil},
	})
}
