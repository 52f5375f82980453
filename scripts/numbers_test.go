// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// The rows of this file are about numbers that Lua 5.4, which some servers have, does not treat as Lua 5.1 does: it has floats
// beside integers, and integers begin anew below 0.

// TestWholeNumbersWrittenAsFloats checks that it does not matter if somebody has written the numbers of a limiter as floats.
func TestWholeNumbersWrittenAsFloats(t *testing.T) {
	fields := hash("rate", "10.0", "interval", "1000.0", "keepAliveTime", "600000.0")
	state := func(value string, ttl time.Duration, m ...member) state {
		return state{hash: fields, value: value, members: m, ttls: [3]time.Duration{ttl, ttl, ttl}}
	}
	old, one := member{-100, java(4)}, member{0, own(0, 1)}
	before, took := state("6", 0, old), state("5", 10*time.Minute, old, one)
	fresh, smaller := state("9", 10*time.Minute, one), state("7", 10*time.Minute, member{-100, java(3)})
	smaller.ttls[0] = 10 * time.Minute
	rejects, given := state("6", 10*time.Minute, old), state("10", 0)
	check(t, []row{
		{"acquire", "", before, asks(1, 1, 0), "0", "0 5 now 10 1000 600000 1", &took},
		{"acquire", "new", state("", 0), asks(1, 1, 0), "0", "0 9 now 10 1000 600000 1", &fresh},
		{"acquire", "rejected", before, asks(7, 1, 0), "0", "0 6 now 10 1000 600000 1 900 0", &rejects},
		{"acquire", "too many", before, asks(11, 1, 0), "0", "3 10", nil},
		{"acquire_rest", "", before, asked(1, 1, ""), "0", "0 now granted 1 available 5 rate 10 interval 1000 keepAlive 600000 ttl 1", &took},
		{"acquire_rest", "new", state("", 0), asked(1, 1, ""), "0", "0 now granted 1 available 9 rate 10 interval 1000 keepAlive 600000 ttl 1", &fresh},
		{"acquire_all", "", before, []any{now, "", 0, own(0, 1), "", "", "", "", ""}, "0 1 0", "0", &took},
		{"acquire_all", "too many", before, []any{now, "", 0, own(0, 1), "", "", "", "", ""}, "0 11 0", "3 1 10", nil},
		{"reserve", "", before, []any{1, own(0, 0), 0, "", now, 0}, "0", "0 1 10 1000", &took},
		{"release", "", before, []any{1, 0, now}, "0", "0 0 7", &smaller},
		{"available", "", before, []any{now, "", 0, 0}, "0", "0 1 6 now", nil},
		{"available", "all", state("3", 0), []any{now, "", 0, 0}, "0", "0 1 10 now", nil},
		{"heal", "", state("3", 0), []any{"", now, 100}, "0", "0 lost 7 done", &given},
		{"give_back", "", state("9", 0, old), []any{java(4), "", 4}, "0", "0 1", &given},
	})
}

// TestGapOfManyPermits checks that a gap holds whose product with the permits of the newest grant is 2^64 or more.
func TestGapOfManyPermits(t *testing.T) {
	const most = 1 << 53
	before := state{hash: hash("rate", "100000", "interval", fmt.Sprint(most), "minGap", fmt.Sprint(most)), value: "95904", members: []member{{-100, java(4096)}}}
	check(t, []row{
		{"acquire_rest", "", before, asked(1, 1, ""), "0", fmt.Sprint("0 now granted 0 wait ", most-100, " available 95904 rate 100000 interval ", most, " minGap ", most), nil},
		{"acquire_all", "", before, []any{now, "", 0, own(0, 1), "", "", "", "", ""}, "0 1 0", "0 1", nil},
		{"reserve", "", before, []any{1, own(0, 0), 0, "", now, 0}, "0", fmt.Sprint("0 0 100000 ", most), nil},
	})
}

// TestPauseOfManyPermits checks that others go on, for as long as the interval, once a caller has taken permits ahead of which
// the product with the interval is 2^62.
func TestPauseOfManyPermits(t *testing.T) {
	const interval = 1 << 42 // 139 years
	before := state{hash: hash("rate", "2097152", "interval", fmt.Sprint(interval)), value: "2097152"}
	then := state{hash: before.hash, value: "1048576", members: []member{{0, own(0, 1<<20)}}, ahead: "0 " + at(interval) + " 0"}
	check(t, []row{{"reserve", "", before, []any{1 << 20, own(0, 0), 0, "", now, 0, "me"}, "0", fmt.Sprint("0 1048576 2097152 ", interval, " 0 0 1"), &then}})
}

// TestFractionsOfScores checks that replies are whole numbers, rounded down, where another program has written scores that are
// not, and that such members can become blocks.
func TestFractionsOfScores(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		ctx, name := t.Context(), redistest.Key(t)
		for _, c := range []struct {
			script string
			fields []string
			args   []any
			reply  string
		}{
			{"acquire", nil, asks(4, 1, 0), "0 0 now 10 1000 0 0 899 0"},
			{"acquire_rest", nil, asked(4, 1, ""), "0 now granted 0 wait 899 rate 10 interval 1000 walked 1 walkedPermits 10"},
			{"acquire_rest", []string{"minGap", "0.5"}, asked(4, 1, ""), "0 now granted 0 wait 899 rate 10 interval 1000 walked 1 walkedPermits 10"},
			{"acquire_rest", []string{"minGap", "200"}, asked(4, 1, "dry"), "0 now granted 0 wait 899 rate 10 interval 1000 minGap 200 walked 1 walkedPermits 10"},
			{"reserve", nil, []any{4, own(0, 0), 0, "", now, 0, "me"}, "0 4 10 1000 4 899 1"},
			{"heal", []string{"coolDown", at(5000)}, []any{"", now, 100}, "0 done"},
			{"heal", []string{"coolDown", at(5000)}, []any{"long", now, 100}, "0 done"},
			{"cool_down", nil, []any{5000, 0, now, 21, 0}, fmt.Sprint("0 ", at(5000), " now")},
			{"cool_down", nil, []any{5000, 100, now, 20, 0}, fmt.Sprint("0 ", at(5000), " now")},
			{"give_back", nil, []any{java(10), java(4), 6}, "0 1"},
			{"release", nil, []any{3, 0, now}, "0 0 3"},
		} {
			k := keysOf("{" + name + "}")
			require.NoError(t, k.put(ctx, rdb, state{hash: hash(c.fields...), value: "0"}, instant))
			require.NoError(t, rdb.ZAdd(ctx, k[2], redis.Z{Score: instant - 100.5, Member: java(10)}).Err())
			args := []any{"0"}
			for _, a := range c.args {
				if a == now {
					a = instant
				}
				args = append(args, a)
			}
			reply, err := rdb.Eval(ctx, text(c.script), k.of(c.script), args...).Slice()
			require.NoError(t, err, c.script)
			require.Equal(t, "["+strings.ReplaceAll(c.reply, now, fmt.Sprint(int64(instant)))+"]", fmt.Sprint(reply), c.script)
			rdb.Del(ctx, k[:]...)
		}
	})
}
