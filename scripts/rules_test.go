// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAcquireAllTreatsLimitersAlike checks that the functions that acquire_all has for each limiter are the same
// but for the numbers: limiter i has KEYS[3i-2], KEYS[3i-1], KEYS[3i] and ARGV[4+i]. They exist once per limiter
// because a script names each key where it uses it.
func TestAcquireAllTreatsLimitersAlike(t *testing.T) {
	_, rest, ok := strings.Cut(text("acquire_all"), "\nlocal all = {\n")
	require.True(t, ok)
	list, _, ok := strings.Cut(rest, "\n}\n")
	require.True(t, ok)
	copies := strings.Split(list, "\n  },\n  {\n")
	require.Len(t, copies, 6)
	copies[0] = strings.TrimPrefix(copies[0], "  {\n")
	copies[5] = strings.TrimSuffix(copies[5], "\n  },")
	index := regexp.MustCompile(`(KEYS|ARGV)\[(\d+)\]`)
	for i, c := range copies {
		asFirst := index.ReplaceAllStringFunc(c, func(s string) string {
			m := index.FindStringSubmatch(s)
			n, err := strconv.Atoi(m[2])
			require.NoError(t, err)
			if m[1] == "KEYS" {
				return fmt.Sprintf("KEYS[%d]", n-3*i)
			}
			return fmt.Sprintf("ARGV[%d]", n-i)
		})
		require.Equal(t, copies[0], asFirst, "the functions of limiter %d", i+1)
	}
	for _, want := range []string{"KEYS[1]", "KEYS[2]", "KEYS[3]", "ARGV[5]"} {
		require.Contains(t, copies[0], want)
	}
}

// The tests below check rules that all scripts share, on states for which the scripts once differed.

// lostValues are values that INCRBY does not accept.
var lostValues = []string{"05", "+5", " 5", "5 ", "5.0", "5e0", "0x5", "-0", "-05", "nan", "x",
	"9007199254740993", "9007199254740994", "-9007199254740993", "9223372036854775807", "99999999999999999999"}

// TestValueThatIsNone checks that no script fails on a value that is not a whole number, least of all after it has
// written something. A script goes by the members instead, or leaves the repair to acquire.
func TestValueThatIsNone(t *testing.T) {
	for _, v := range append(lostValues, "") { // "" is no key
		before := state{hash: hash(), value: v, members: []member{{-100, m21("ab", 'a', 0, 4)}}}
		with := func(value string, members ...member) *state {
			return &state{hash: hash(), value: value, members: members}
		}
		free := before // together with what a cool-down had added
		free.members = append(free.members[:1:1], member{500, block(0, 6, false, "\x00\x00\x00")})
		check(t, []row{
			{"available", "", before, []any{now, "", 0, 0}, "0", "0 1 6 now", nil},
			{"release", "", before, []any{1, 0, now}, "0", "0 0 7", with("7", member{-100, m21("ab", 'a', 0, 3)})},
			{"heal", "", before, []any{"", now, 100}, "0", "0 restored 10 done", with("6", before.members...)},
			{"reserve", "", before, []any{2, own(0, 0), 0, "", now, 0}, "0", "0 0 10 1000", nil},
			{"reserve", "ahead", before, []any{2, own(0, 0), 0, "", now, 0, "me"}, "0", "0 0 10 1000 0 0 0", nil},
			{"acquire_all", "", before, []any{now, "", 0, own(0, 1), "", "", "", "", ""}, "0 1 0", "0 1", nil},
			{"give_back", "", before, []any{before.members[0].member, m21("ab", 'a', 0, 1), 3}, "0", "0 1", with(v, member{-100, m21("ab", 'a', 0, 1)})},
			{"lift_cool_down", "", free, []any{now}, "0", "0 1", with(v, before.members...)},
		})
	}
}

// TestValueOfAnySize checks that all scripts accept a valid value, even one as large as the largest rate.
func TestValueOfAnySize(t *testing.T) {
	const rate = "9007199254740992"
	for v, less := range map[string]string{
		"999999999999999":  "999999999999998",
		"1000000000000000": "999999999999999",
		"9007199254740992": "9007199254740991",
	} {
		before := state{hash: hash("rate", rate), value: v}
		after := &state{hash: hash("rate", rate), value: less, members: []member{{0, own(0, 1)}}}
		check(t, []row{
			{"acquire", "", before, asks(1, 1, 0), "0", fmt.Sprintf("0 %s now %s 1000 0 0", less, rate), after},
			{"acquire_rest", "", before, asked(1, 1, ""), "0", fmt.Sprintf("0 now granted 1 available %s rate %s interval 1000", less, rate), after},
			{"acquire_all", "", before, []any{now, "", 0, own(0, 1), "", "", "", "", ""}, "0 1 0", "0", after},
			{"reserve", "", before, []any{1, own(0, 0), 0, "", now, 0}, "0", fmt.Sprintf("0 1 %s 1000", rate), after},
		})
	}
}

// TestMalformedForAll checks that all scripts report a malformed limiter before they write anything.
func TestMalformedForAll(t *testing.T) {
	always := map[string]map[string]string{
		"half a permit": hash("rate", "2.5"), "no permit": hash("rate", "0"), "beyond 2^53": hash("rate", "9007199254740994"),
		"no interval": hash("interval", "0"), "a longer one than any": hash("interval", "9007199254740994"),
	}
	keeping := map[string]map[string]string{
		"half a ms": hash("keepAliveTime", "1.5"), "a longer TTL than any": hash("keepAliveTime", "9007199254740994"),
	}
	var rows []row
	test := func(name, script string, fields map[string]string, typ, reply string, args ...any) {
		rows = append(rows, row{script, name, state{hash: fields, value: "6", members: []member{{-100, m21("ab", 'a', 0, 4)}}}, args, typ, reply, nil})
	}
	for name, fields := range always {
		test(name, "available", fields, "0", "4", now, "", 0, 0)
		test(name, "heal", fields, "0", "4", "", now, 100)
		test(name, "cool_down", fields, "0", "4", 1000, 0, now, 21, 0)
		test(name, "lift_cool_down", fields, "0", "4", now)
		keeping[name] = fields
	}
	for name, fields := range keeping {
		test(name, "acquire", fields, "0", "4", asks(1, 1, 0)...)
		test(name, "acquire_rest", fields, "0", "4", asked(1, 1, "")...)
		test(name, "acquire_all", fields, "0 1 0", "4 1", now, "", 0, own(0, 1), "", "", "", "", "")
		test(name, "reserve", fields, "0", "4", 2, own(0, 0), 0, "", now, 0)
		test(name, "release", fields, "0", "4", 1, 0, now)
	}
	for _, script := range []string{"heal", "give_back"} {
		args := map[string][]any{"heal": {"", now, 100}, "give_back": {m21("ab", 'a', 0, 4), "", 4}}[script]
		test("no interval at all", script, hash("interval", ""), "0", "1", args...)
	}
	check(t, rows)
}

// TestGiveBackKnowsItsBounds checks that a refund gives nothing back if the grant is already gone, and never lifts the free
// permits above the rate.
func TestGiveBackKnowsItsBounds(t *testing.T) {
	five, two := own(0, 5), own(0, 2)
	set := func(value string, members ...member) state {
		return state{hash: hash(), value: value, members: members}
	}
	check(t, []row{
		{"give_back", "a part", set("5", member{-100, five}), []any{five, two, 3}, "0", "0 1", after(set("8", member{-100, two}))},
		{"give_back", "all", set("3", member{-100, two}), []any{two, "", 2}, "0", "0 1", after(set("5"))},
		{"give_back", "too many are free", set("8", member{-100, five}), []any{five, two, 3}, "0", "0 1", after(set("10", member{-100, two}))},
		{"give_back", "too many are free by far", set("10", member{-100, five}), []any{five, two, 3}, "0", "0 1", after(set("10", member{-100, two}))},
		{"give_back", "more was used than was asked for", set("8", member{-100, two}), []any{two, five, -3}, "0", "0 1", after(set("5", member{-100, five}))},
		{"give_back", "more was used, and all are free", set("10", member{-100, two}), []any{two, five, -3}, "0", "0 1", after(set("7", member{-100, five}))},
		{"give_back", "more was used, and none is free", set("0", member{-100, two}), []any{two, five, -3}, "0", "0 1", after(set("-3", member{-100, five}))},
		{"give_back", "gone", set("3", member{-100, two}), []any{five, two, 3}, "0", "0 0", nil},
	})
}

// TestCoolDownKeepsWhatIsOwed checks that a cool-down forgets no grant for one that may be given back: a reservation
// that holds what is yet to expire, or a grant settled to more. What a peer has released and left in the set goes, the
// oldest first.
func TestCoolDownKeepsWhatIsOwed(t *testing.T) {
	till := instant + 300
	taken := func(t, permits int64) member {
		return member{-700, block(t, permits, false, string([]byte{0, byte(till), byte(till >> 8)}))}
	}
	cools := []any{300, 0, now, 21, 0}
	fields := hash("coolDown", at(300))
	set := func(value string, members ...member) state {
		return state{hash: hash(), value: value, members: members}
	}
	then := func(value string, members ...member) *state {
		return &state{hash: fields, value: value, members: members}
	}
	three, four, nine := own(0, 3), own(0, 4), own(0, 9)
	reply := "0 " + at(300) + " now"
	check(t, []row{
		{"cool_down", "a reservation", set("-3", member{-900, four}, member{-100, nine}), cools, "0", reply, then("-3", taken(-900, 4), member{-100, nine})},
		{"cool_down", "that joins the cool-down", set("-3", member{-900, four}, member{-800, nine}), cools, "0", reply, then("-3", taken(-900, 4), taken(-800, 9))},
		{"cool_down", "a part of what it lacks has expired", set("-3", member{-1000, java(1)}, member{-900, three}, member{-100, nine}), cools, "0", reply, then("-2", taken(-900, 3), member{-100, nine})},
		{"cool_down", "and value was lost", set("", member{-900, four}, member{-100, nine}), cools, "0", reply, then("-3", taken(-900, 4), member{-100, nine})},
		{"cool_down", "and less is in use than that", set("-3", member{-100, nine}), cools, "0", reply, then("0", taken(0, 1), member{-100, nine})},
		{"cool_down", "too many are in use, and nothing is owed", set("0", member{-900, four}, member{-100, nine}), cools, "0", reply, then("-3", taken(-900, 4), member{-100, nine})},
		{"cool_down", "too many are in use besides", set("-1", member{-900, four}, member{-100, nine}), cools, "0", reply, then("-3", taken(-900, 4), member{-100, nine})},
		{"cool_down", "one too many, of which the oldest is behind another", set("0", member{-900, own(0, 5)}, member{-800, marked(-950, 6, "vvv")}), cools, "0", reply,
			then("-1", taken(-950, 6), taken(-900, 5))},
		{"cool_down", "a peer has released, which is free no more", set("3", member{-900, four}, member{-100, nine}), cools, "0", reply, then("-3", taken(-900, 4), member{-100, nine})},
	})
}

// TestGrantThatBeginsLikeABlock checks that a member that begins like a block but does not repeat its permits is
// treated as an ordinary grant.
func TestGrantThatBeginsLikeABlock(t *testing.T) {
	grant := "\x10~c~" + "xxxx" + six(instant-50) + "\x00\x00\x00" + le32(4)
	state := func(gap, value string, members ...member) *state {
		return &state{hash: hash("minGap", gap), value: value, members: members}
	}
	before := *state("100", "6", member{-100, grant})
	check(t, []row{
		{"acquire_rest", "", before, asked(1, 1, ""), "0", "0 now granted 0 wait 300 available 6 rate 10 interval 1000 minGap 100", nil},
		{"acquire_all", "", before, []any{now, "", 0, own(0, 1), "", "", "", "", ""}, "0 1 0", "0 1", nil},
		{"reserve", "", before, []any{1, own(0, 0), 0, "", now, 0}, "0", "0 0 10 1000", nil},
		{"release", "", before, []any{4, 0, now}, "0", "0 0 10", state("100", "10")},
	})
}

// TestClientTTLIsNotMadeShorter checks that the TTL of a client's keys is renewed when half of it has passed, and
// never shortened, because permits that re-open after a cool-down may need a longer one.
func TestClientTTLIsNotMadeShorter(t *testing.T) {
	for ttl, then := range map[time.Duration]time.Duration{
		3 * time.Hour:    3 * time.Hour,
		31 * time.Minute: 31 * time.Minute,
		29 * time.Minute: time.Hour,
	} {
		state := func(value string, ttl time.Duration, m ...member) state {
			return state{hash: hash("type", "1"), value: value, members: append(m, member{-100, java(4)}), ttls: [3]time.Duration{0, ttl, ttl}}
		}
		before, after, smaller := state("6", ttl), state("5", then, member{0, own(0, 1)}), state("7", then)
		smaller.members[0].member = java(3)
		check(t, []row{
			{"acquire", "", before, asks(1, 1, 0, 3_600_000), "1", "0 5 now 10 1000 0 0", &after},
			{"acquire_rest", "", before, asked(1, 1, "", "", 3_600_000, "", ""), "1", "0 now granted 1 available 5 rate 10 interval 1000", &after},
			{"acquire_all", "", before, []any{now, "", 3_600_000, own(0, 1), "", "", "", "", ""}, "1 1 0", "0", &after},
			{"reserve", "", before, []any{1, own(0, 0), 0, "", now, 3_600_000}, "1", "0 1 10 1000", &after},
			{"release", "", before, []any{1, 3_600_000, now}, "1", "0 0 7", &smaller},
		})
	}
}

// TestFloorOfAcquireAll checks that a part of a lower class is granted only if its floor stays free.
func TestFloorOfAcquireAll(t *testing.T) {
	before := state{hash: hash(), value: "6", members: []member{{-100, m21("ab", 'a', 0, 4)}}}
	args := []any{now, "", 0, own(0, 2), "", "", "", "", ""}
	check(t, []row{
		{"acquire_all", "it stays free", before, args, "0 2 4", "0", &state{hash: hash(), value: "4", members: append(before.members, member{0, own(0, 2)})}},
		{"acquire_all", "it would not", before, args, "0 2 5", "0 1", nil},
		{"acquire_all", "it cannot", before, args, "0 2 9", "3 1 10", nil},
	})
}

// TestClientTTLOutlivesTwoIntervals checks that the keys of a client live for two intervals at least, whatever WithClientKeyTTL
// says: state that expires before the permits in use are back would be a second burst.
func TestClientTTLOutlivesTwoIntervals(t *testing.T) {
	const hour = 3_600_000
	state := func(ttl time.Duration, value string, m ...member) state {
		return state{hash: hash("type", "1", "interval", fmt.Sprint(hour)), value: value, members: append(m, member{-100, java(4)}), ttls: [3]time.Duration{0, ttl, ttl}}
	}
	before, after, smaller := state(0, "6"), state(2*time.Hour, "5", member{0, own(0, 1)}), state(2*time.Hour, "7")
	smaller.members[0].member = java(3)
	till := le32((instant + 1000) % (1 << 32))[:2]
	cooled := state(2*time.Hour, "0", member{1000 - hour, block(0, 6, false, "\x00"+till)})
	cooled.hash["coolDown"] = at(1000)
	check(t, []row{
		{"acquire", "", before, asks(1, 1, 0, 60_000), "1", "0 5 now 10 3600000 0 0", &after},
		{"acquire_rest", "", before, asked(1, 1, "", "", 60_000, "", ""), "1", "0 now granted 1 available 5 rate 10 interval 3600000", &after},
		{"acquire_all", "", before, []any{now, "", 60_000, own(0, 1), "", "", "", "", ""}, "1 1 0", "0", &after},
		{"reserve", "", before, []any{1, own(0, 0), 0, "", now, 60_000}, "1", "0 1 10 3600000", &after},
		{"release", "", before, []any{1, 60_000, now}, "1", "0 0 7", &smaller},
		{"cool_down", "", before, []any{1000, 0, now, 21, 60_000}, "1", fmt.Sprint("0 ", at(1000), " now"), &cooled},
	})
}

// TestClientKeysLiveForever checks that a TTL of a client's keys goes if the hash has none and the client says that its keys live
// forever: another client has removed that of the hash, and could not name these.
func TestClientKeysLiveForever(t *testing.T) {
	state := func(ttl time.Duration, value string, m ...member) state {
		return state{hash: hash("type", "1"), value: value, members: append(m, member{-100, java(4)}), ttls: [3]time.Duration{0, ttl, ttl}}
	}
	before, after, smaller := state(time.Hour, "6"), state(0, "5", member{0, own(0, 1)}), state(0, "7")
	smaller.members[0].member = java(3)
	till := le32((instant + 1000) % (1 << 32))[:2]
	cooled := state(0, "0", member{0, block(0, 6, false, "\x00"+till)})
	cooled.hash["coolDown"], cooled.members[1] = at(1000), member{0, block(-100, 4, false, "\x00"+till)}
	check(t, []row{
		{"acquire", "", before, asks(1, 1, 0, 0), "1", "0 5 now 10 1000 0 0", &after},
		{"acquire_rest", "", before, asked(1, 1, "", "", 0, "", ""), "1", "0 now granted 1 available 5 rate 10 interval 1000", &after},
		{"acquire_all", "", before, lists("", 0, 1), "1 1 0", "0", &after},
		{"reserve", "", before, []any{1, own(0, 0), 0, "", now, 0}, "1", "0 1 10 1000", &after},
		{"release", "", before, []any{1, 0, now}, "1", "0 0 7", &smaller},
		{"cool_down", "", before, []any{1000, 0, now, 21, 0}, "1", fmt.Sprint("0 ", at(1000), " now"), &cooled},
	})
}

// TestAvailableKnowsItsBounds checks that no fewer than 0 and no more than the rate are available.
func TestAvailableKnowsItsBounds(t *testing.T) {
	many := func(n int, permits int64, value string) state {
		return state{hash: hash("rate", "1500"), value: value, members: each(n, -100, func(i int) string { return fmt.Sprintf("\x08java%04d", i) + le32(permits) })}
	}
	args := []any{now, "", 0, 0}
	check(t, []row{
		{"available", "more is in use than the rate", with("-3", member{-100, java(13)}), args, "0", "0 1 0 now", nil},
		{"available", "more than that is left", with("-1", member{-100, java(13)}), args, "0", "0 1 0 now", nil},
		{"available", "nothing is in use", with("14"), args, "0", "0 1 10 now", nil},
		{"available", "more is left than the rate", with("14", member{-100, java(4)}), args, "0", "0 1 6 now", nil},
		{"available", "of a large set", many(1001, 2, "-502"), []any{now, "u", 1000, 2000}, "0", "0 1 0 now", nil},
		{"available", "of a large set, by value", many(1001, 2, "-502"), args, "0", "0 1 0 now", nil},
	})
}
