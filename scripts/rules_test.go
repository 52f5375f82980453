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
var lostValues = []string{"05", "+5", " 5", "5 ", "5.0", "5e0", "0x5", "-0", "-05", "nan", "x", "9007199254740994", "99999999999999999999"}

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
			{"reserve", "ahead", before, []any{2, own(0, 0), 0, "", now, 0, "me"}, "0", "0 0 10 1000 0 0 0 0", nil},
			{"acquire_all", "", before, []any{now, 0, 0, own(0, 1), "", "", "", "", ""}, "0 1 0", "0 1", nil},
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
			{"acquire_all", "", before, []any{now, 0, 0, own(0, 1), "", "", "", "", ""}, "0 1 0", "0", after},
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
		test(name, "acquire_all", fields, "0 1 0", "4 1", now, 0, 0, own(0, 1), "", "", "", "", "")
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
		{"give_back", "gone", set("3", member{-100, two}), []any{five, two, 3}, "0", "0 0", nil},
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
		{"acquire_all", "", before, []any{now, 0, 0, own(0, 1), "", "", "", "", ""}, "0 1 0", "0 1", nil},
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
			{"acquire_all", "", before, []any{now, 0, 3_600_000, own(0, 1), "", "", "", "", ""}, "1 1 0", "0", &after},
			{"reserve", "", before, []any{1, own(0, 0), 0, "", now, 3_600_000}, "1", "0 1 10 1000", &after},
			{"release", "", before, []any{1, 3_600_000, now}, "1", "0 0 7", &smaller},
		})
	}
}

// TestFloorOfAcquireAll checks that a part of a lower class is granted only if its floor stays free.
func TestFloorOfAcquireAll(t *testing.T) {
	before := state{hash: hash(), value: "6", members: []member{{-100, m21("ab", 'a', 0, 4)}}}
	args := []any{now, 0, 0, own(0, 2), "", "", "", "", ""}
	check(t, []row{
		{"acquire_all", "it stays free", before, args, "0 2 4", "0", &state{hash: hash(), value: "4", members: append(before.members, member{0, own(0, 2)})}},
		{"acquire_all", "it would not", before, args, "0 2 5", "0 1", nil},
		{"acquire_all", "it cannot", before, args, "0 2 9", "3 1 10", nil},
	})
}
