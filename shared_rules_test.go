package ratelimiter_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestSharedFragments checks that what stands in scripts/shared is shared.
func TestSharedFragments(t *testing.T) { redistest.SharedFragments(t) }

// TestAcquireAllTreatsLimitersAlike checks that the functions that acquire_all has for each limiter are the same
// but for the numbers: limiter i has KEYS[3i-2], KEYS[3i-1], KEYS[3i] and ARGV[4+i]. They exist once per limiter
// because a script names each key where it uses it.
func TestAcquireAllTreatsLimitersAlike(t *testing.T) {
	_, rest, ok := strings.Cut(scriptText(t, "acquire_all"), "\nlocal all = {\n")
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
	inPhases(t, func(t *testing.T, run func(row *phaseRow, src string) error) {
		for _, v := range append(lostValues, "") { // "" is no key
			before := phaseState{hash: hash(), value: v, members: []phaseMember{{-100, m21("ab", 'a', 0, 4)}}}
			with := func(value string, members ...phaseMember) *phaseState {
				return &phaseState{hash: hash(), value: value, members: members}
			}
			free := before // together with what a cool-down had added
			free.members = append(free.members[:1:1], phaseMember{500, block(0, 6, false, "\x00\x00\x00")})
			for _, c := range []struct {
				script string
				row    phaseRow
			}{
				{"available", phaseRow{0, "", before, []any{now, "", 0, 0}, "0", "0 1 6 now", nil}},
				{"release", phaseRow{0, "", before, []any{1, 0, now}, "0", "0 0 7", with("7", phaseMember{-100, m21("ab", 'a', 0, 3)})}},
				{"heal", phaseRow{0, "", before, []any{"", now, 100}, "0", "0 1 0 10 0 0", with("6", before.members...)}},
				{"reserve", phaseRow{0, "", before, []any{2, own(0, 0), 0, "", now, 0}, "0", "0 0 10 1000", nil}},
				{"reserve", phaseRow{0, "ahead", before, []any{2, own(0, 0), 0, "", now, 0, "me"}, "0", "0 0 10 1000 0 0 0 0", nil}},
				{"acquire_all", phaseRow{0, "", before, []any{now, 0, 0, own(0, 1), "", "", "", "", ""}, "0 1", "0 1", nil}},
				{"give_back", phaseRow{0, "", before, []any{before.members[0].member, m21("ab", 'a', 0, 1), 3}, "0", "0 1", with(v, phaseMember{-100, m21("ab", 'a', 0, 1)})}},
				{"lift_cool_down", phaseRow{0, "", free, []any{now}, "0", "0 1", with(v, before.members...)}},
			} {
				require.NoError(t, run(&c.row, scriptText(t, c.script)), "%s, value %q", c.script, v)
			}
		}
	})
}

// TestValueOfAnySize checks that all scripts accept a valid value, even one as large as the largest rate.
func TestValueOfAnySize(t *testing.T) {
	inPhases(t, func(t *testing.T, run func(row *phaseRow, src string) error) {
		const rate = "9007199254740992"
		for v, less := range map[string]string{
			"999999999999999":  "999999999999998",
			"1000000000000000": "999999999999999",
			"9007199254740992": "9007199254740991",
		} {
			before := phaseState{hash: hash("rate", rate), value: v}
			after := &phaseState{hash: hash("rate", rate), value: less, members: []phaseMember{{0, own(0, 1)}}}
			for _, c := range []struct {
				script string
				row    phaseRow
			}{
				{"acquire", phaseRow{0, "", before, asks(1, 1, 0), "0", fmt.Sprintf("0 %s now %s 1000 0 0", less, rate), after}},
				{"acquire_rest", phaseRow{0, "", before, asked(1, 1, ""), "0", fmt.Sprintf("0 1 0 %s now %s 1000 0 0 0 0 0 0 0", less, rate), after}},
				{"acquire_all", phaseRow{0, "", before, []any{now, 0, 0, own(0, 1), "", "", "", "", ""}, "0 1", "0", after}},
				{"reserve", phaseRow{0, "", before, []any{1, own(0, 0), 0, "", now, 0}, "0", fmt.Sprintf("0 1 %s 1000", rate), after}},
			} {
				require.NoError(t, run(&c.row, scriptText(t, c.script)), "%s, value %q", c.script, v)
			}
		}
	})
}

// TestMalformedForAll checks that all scripts report a malformed limiter before they write anything.
func TestMalformedForAll(t *testing.T) {
	inPhases(t, func(t *testing.T, run func(row *phaseRow, src string) error) {
		always := map[string]map[string]string{
			"half a permit": hash("rate", "2.5"), "no permit": hash("rate", "0"), "beyond 2^53": hash("rate", "9007199254740994"),
			"no interval": hash("interval", "0"), "a longer one than any": hash("interval", "9007199254740994"),
		}
		keeping := map[string]map[string]string{
			"half a ms": hash("keepAliveTime", "1.5"), "a longer TTL than any": hash("keepAliveTime", "9007199254740994"),
		}
		test := func(name, script string, fields map[string]string, typ, reply string, args ...any) {
			row := phaseRow{0, "", phaseState{hash: fields, value: "6", members: []phaseMember{{-100, m21("ab", 'a', 0, 4)}}}, args, typ, reply, nil}
			require.NoError(t, run(&row, scriptText(t, script)), "%s, %s", script, name)
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
			test(name, "acquire_all", fields, "0 1", "4 1", now, 0, 0, own(0, 1), "", "", "", "", "")
			test(name, "reserve", fields, "0", "4", 2, own(0, 0), 0, "", now, 0)
			test(name, "release", fields, "0", "4", 1, 0, now)
		}
		for _, script := range []string{"heal", "give_back"} {
			args := map[string][]any{"heal": {"", now, 100}, "give_back": {m21("ab", 'a', 0, 4), "", 4}}[script]
			test("no interval at all", script, hash("interval", ""), "0", "1", args...)
		}
	})
}

// TestGrantThatBeginsLikeABlock checks that a member that begins like a block but does not repeat its permits is
// treated as an ordinary grant.
func TestGrantThatBeginsLikeABlock(t *testing.T) {
	inPhases(t, func(t *testing.T, run func(row *phaseRow, src string) error) {
		grant := "\x10~c~" + "xxxx" + six(phaseNow-50) + "\x00\x00\x00" + le32(4)
		state := func(gap, value string, members ...phaseMember) *phaseState {
			return &phaseState{hash: hash("minGap", gap), value: value, members: members}
		}
		before := *state("100", "6", phaseMember{-100, grant})
		for _, c := range []struct {
			script string
			row    phaseRow
		}{
			{"acquire_rest", phaseRow{0, "", before, asked(1, 1, ""), "0", "0 0 300 6 now 10 1000 0 0 0 0 0 100 0", nil}},
			{"acquire_all", phaseRow{0, "", before, []any{now, 0, 0, own(0, 1), "", "", "", "", ""}, "0 1", "0 1", nil}},
			{"reserve", phaseRow{0, "", before, []any{1, own(0, 0), 0, "", now, 0}, "0", "0 0 10 1000", nil}},
			{"release", phaseRow{0, "", before, []any{4, 0, now}, "0", "0 0 10", state("100", "10")}},
		} {
			require.NoError(t, run(&c.row, scriptText(t, c.script)), c.script)
		}
	})
}

// TestClientTTLIsNotMadeShorter checks that the TTL of a client's keys is renewed when half of it has passed, and
// never shortened, because permits that re-open after a cool-down may need a longer one.
func TestClientTTLIsNotMadeShorter(t *testing.T) {
	inPhases(t, func(t *testing.T, run func(row *phaseRow, src string) error) {
		for ttl, then := range map[time.Duration]time.Duration{
			3 * time.Hour:    3 * time.Hour,
			31 * time.Minute: 31 * time.Minute,
			29 * time.Minute: time.Hour,
		} {
			state := func(value string, ttl time.Duration, m ...phaseMember) phaseState {
				return phaseState{hash: hash("type", "1"), value: value, members: append(m, phaseMember{-100, java(4)}), ttls: [3]time.Duration{0, ttl, ttl}}
			}
			before, after, smaller := state("6", ttl), state("5", then, phaseMember{0, own(0, 1)}), state("7", then)
			smaller.members[0].member = java(3)
			for _, c := range []struct {
				script string
				row    phaseRow
			}{
				{"acquire", phaseRow{0, "", before, asks(1, 1, 0, 3_600_000), "1", "0 5 now 10 1000 0 0", &after}},
				{"acquire_rest", phaseRow{0, "", before, asked(1, 1, "", "", 3_600_000, "", ""), "1", "0 1 0 5 now 10 1000 0 0 0 0 0 0 0", &after}},
				{"acquire_all", phaseRow{0, "", before, []any{now, 0, 3_600_000, own(0, 1), "", "", "", "", ""}, "1 1", "0", &after}},
				{"reserve", phaseRow{0, "", before, []any{1, own(0, 0), 0, "", now, 3_600_000}, "1", "0 1 10 1000", &after}},
				{"release", phaseRow{0, "", before, []any{1, 3_600_000, now}, "1", "0 0 7", &smaller}},
			} {
				require.NoError(t, run(&c.row, scriptText(t, c.script)), "%s, %v", c.script, ttl)
			}
		}
	})
}

// TestListSpendsNothingBesideAMalformedLimiter checks that a list takes no permits at all if one of its limiters is
// malformed.
func TestListSpendsNothingBesideAMalformedLimiter(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		ctx, name := t.Context(), redistest.Key(t)
		client := clienttest.New(t, rdb)
		defer client.Close()
		var demands []ratelimiter.Demand
		for _, n := range []string{"a", "b"} {
			l := client.RateLimiter("{" + name + "}" + n)
			require.NoError(t, l.SetRate(ctx, ratelimiter.Rate{Permits: 100, Interval: time.Hour}))
			ok, err := l.TryAcquire(ctx, 1, 0)
			require.NoError(t, err)
			require.True(t, ok)
			demands = append(demands, ratelimiter.Demand{Limiter: l, Permits: 10})
		}
		value := func(n string) string { return rdb.Get(ctx, "{"+name+"}"+n+":value").Val() }

		require.NoError(t, rdb.Set(ctx, "{"+name+"}b:value", "099", 0).Err())
		r, err := client.TryAcquireAll(ctx, 0, demands...)
		require.NoError(t, err)
		require.True(t, r.Granted)
		require.Equal(t, [2]string{"89", "89"}, [2]string{value("a"), value("b")})

		require.NoError(t, rdb.HSet(ctx, "{"+name+"}b", "keepAliveTime", "1.5").Err())
		_, err = client.TryAcquireAll(ctx, 0, demands...)
		require.ErrorIs(t, err, ratelimiter.ErrMalformed)
		require.Equal(t, [2]string{"89", "89"}, [2]string{value("a"), value("b")})
	})
}

// TestGapBelowZeroIsNone checks that a minGap that somebody wrote by hand keeps nobody from taking permits ahead, if it is
// below 0 and so is no gap.
func TestGapBelowZeroIsNone(t *testing.T) {
	inPhases(t, func(t *testing.T, run func(row *phaseRow, src string) error) {
		for _, gap := range []string{"", "0", "-5"} {
			before := phaseState{hash: hash("minGap", gap), value: "0", members: []phaseMember{{-100, java(10)}}}
			after := before
			after.value, after.members = "-4", []phaseMember{{-100, java(10)}, {0, own(0, 4)}}
			after.hash = hash("minGap", gap)
			after.ahead = "a " + strconv.Itoa(phaseNow+1000) + " 0"
			row := phaseRow{0, "", before, []any{4, own(0, 0), 0, "", now, 0, "a"}, "0", "0 4 10 1000 4 900 1 0", &after}
			require.NoError(t, run(&row, scriptText(t, "reserve")), "%q", gap)
		}
	})
}
