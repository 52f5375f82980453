// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// sets returns the arguments of set_rate that follow the rate, which stands in the place of the type.
func sets(interval, keepAlive int64, typ, words string, gap int64) []any {
	return []any{interval, keepAlive, typ, now, words, gap}
}

// rated returns the fields of a limiter after its rate was set.
func rated(rate string, fields ...string) map[string]string {
	return hash(append([]string{"rate", rate, "keepAliveTime", "0"}, fields...)...)
}

// joined returns a block that joined a cool-down: of grants of the instant t, or of n-th permits of this millisecond that were free.
func joined(t, permits int64, n byte) string {
	if t != 0 {
		return block(t, permits, true, string([]byte{n, 0, 0}))
	}
	return "\x10~c~" + le32(permits) + "\x80\x00\x00\x00\x00\x00" + le32((instant + int64(n)) % (1 << 24))[:3] + le32(permits)
}

func twice(i int) string { return fmt.Sprintf("\x08java%04d", i) + le32(2) }

func long(mark string, permits int64) string {
	return "\x08\x00\x00\x00\x00\x00\x00\x00" + mark + le32(permits)
}

// setRateRows are calls of set_rate.
var setRateRows = []row{
	{"set_rate", "there is none", state{hash: map[string]string{}}, sets(1000, 0, "0", "exists", 0), "10", "0", nil},
	{"set_rate", "a new one", state{hash: map[string]string{}}, sets(1000, 0, "0", "", 0), "10", "1 0 0", &state{hash: rated("10")}},
	{"set_rate", "of a client", state{hash: map[string]string{}}, sets(1000, 600_000, "1", "", 5), "10", "1 0 0",
		&state{hash: rated("10", "type", "1", "keepAliveTime", "600000", "minGap", "5"), ttls: [3]time.Duration{10 * time.Minute}}},
	{"set_rate", "nothing is kept", state{hash: counted(1, 4, java(4), java(4)), value: "6", other: true, members: []member{{-100, java(4)}}},
		sets(1000, 0, "0", "exists", 0), "10", "1 0 0", &state{hash: rated("10")}},
	{"set_rate", "nor that something was", state{hash: hash("keptUntil", at(9)), value: "6"}, sets(1000, 0, "0", "", 0), "10", "1 0 0", &state{hash: rated("10")}},
	{"set_rate", "another type keeps nothing", state{hash: hash(), value: "6", other: true, members: []member{{-100, java(4)}}},
		sets(1000, 0, "1", "keep", 0), "10", "1 0 1", &state{hash: rated("10", "type", "1")}},

	{"set_rate", "others fit the same rate", state{hash: hash("type", "1"), value: "6", members: []member{{-100, java(4)}}},
		sets(1000, 0, "1", "keep", 0), "10", "1 0 0", &state{hash: rated("10", "type", "1"), value: "6", members: []member{{-100, java(4)}}}},
	{"set_rate", "others may not fit a lower one", state{hash: hash("type", "1"), value: "6", members: []member{{-100, java(4)}}},
		sets(1000, 0, "1", "", 0), "9", "1 0 1", &state{hash: rated("9", "type", "1")}},
	{"set_rate", "others may expire too soon for a longer interval", state{hash: hash("type", "1"), value: "6", members: []member{{-100, java(4)}}},
		sets(1001, 0, "1", "keep", 0), "10", "1 0 1", &state{hash: rated("10", "type", "1", "interval", "1001", "keptUntil", at(1001)), value: "6", members: []member{{-100, java(4)}}}},
	{"set_rate", "unless nothing is kept", state{hash: hash("type", "1"), value: "6", members: []member{{-100, java(4)}}},
		sets(1001, 0, "1", "", 0), "10", "1 0 0", &state{hash: rated("10", "type", "1", "interval", "1001")}},
	{"set_rate", "OVERALL has no others", state{hash: hash(), value: "6", members: []member{{-100, java(4)}}},
		sets(1001, 0, "0", "keep", 0), "9", "1 0 0", &state{hash: rated("9", "interval", "1001", "keptUntil", at(1001)), value: "5", members: []member{{-100, java(4)}}}},

	{"set_rate", "what has expired goes", state{hash: hash(), value: "1", members: []member{{-1000, java(5)}, {-999, java(4)}}},
		sets(1000, 0, "0", "keep", 0), "12", "1 0 0", &state{hash: rated("12", "keptUntil", at(1000)), value: "8", members: []member{{-999, java(4)}}}},
	{"set_rate", "by the new interval", state{hash: hash(), value: "1", members: []member{{-500, java(5)}, {-100, java(4)}}},
		sets(500, 0, "0", "keep", 0), "12", "1 0 0", &state{hash: rated("12", "interval", "500", "keptUntil", at(1000)), value: "8", members: []member{{-100, java(4)}}}},
	{"set_rate", "more is in use than the rate", state{hash: hash(), value: "1", members: []member{{-300, java(2)}, {-200, own(0, 4)}, {-100, java(3)}}},
		sets(1000, 0, "0", "keep", 0), "5", "1 0 0", &state{hash: rated("5", "keptUntil", at(1000)), value: "-4", members: []member{{-300, java(2)}, {-200, own(0, 4)}, {-100, java(3)}}}},
	{"set_rate", "and is found by a higher one", state{hash: hash("rate", "5"), value: "-4", members: []member{{-300, java(2)}, {-200, own(0, 4)}, {-100, java(3)}}},
		sets(1000, 0, "0", "keep", 0), "10", "1 0 0", &state{hash: rated("10", "keptUntil", at(1000)), value: "1", members: []member{{-300, java(2)}, {-200, own(0, 4)}, {-100, java(3)}}}},
	{"set_rate", "a value below 0 falls", state{hash: hash(), value: "-2", members: []member{{-200, own(0, 12)}}},
		sets(1000, 0, "0", "keep", 0), "5", "1 0 0", &state{hash: rated("5", "keptUntil", at(1000)), value: "-7", members: []member{{-200, own(0, 12)}}}},
	{"set_rate", "and one that was lost", state{hash: hash(), value: "x", members: []member{{-200, own(0, 10)}}},
		sets(1000, 0, "0", "keep", 0), "5", "1 0 0", &state{hash: rated("5", "keptUntil", at(1000)), value: "-5", members: []member{{-200, own(0, 10)}}}},

	{"set_rate", "513 members, value changes as the rate does", state{hash: hash("rate", "600"), value: "87", members: each(513, -700, ofJava)},
		sets(1000, 0, "0", "keep", 0), "590", "1 1 0", &state{hash: rated("590", "keptUntil", at(1000)), value: "77", members: each(513, -700, ofJava)}},
	{"set_rate", "each of which has a permit", state{hash: hash("rate", "600"), value: "99", members: each(513, -700, ofJava)},
		sets(1000, 0, "0", "keep", 0), "590", "1 1 0", &state{hash: rated("590", "keptUntil", at(1000)), value: "77", members: each(513, -700, ofJava)}},
	{"set_rate", "or several", state{hash: hash("rate", "1100"), value: "74", members: each(513, -700, twice)},
		sets(1000, 0, "0", "keep", 0), "1090", "1 1 0", &state{hash: rated("1090", "keptUntil", at(1000)), value: "64", members: each(513, -700, twice)}},
	{"set_rate", "what a higher rate has more is for heal to give", state{hash: hash("rate", "600"), value: "87", members: each(513, -700, ofJava)},
		sets(1000, 0, "0", "keep", 0), "1700", "1 1 0", &state{hash: rated("1700", "keptUntil", at(1000)), value: "87", members: each(513, -700, ofJava)}},
	{"set_rate", "since more may be in use than the old one allowed", state{hash: hash("rate", "600"), value: "0", members: each(513, -700, twice)},
		sets(1000, 0, "0", "keep", 0), "1100", "1 1 0", &state{hash: rated("1100", "keptUntil", at(1000)), value: "0", members: each(513, -700, twice)}},
	{"set_rate", "no further below 0 than INCRBY goes", state{hash: hash("rate", "9007199254740992"), value: "-9007199254740990", members: each(513, -700, ofJava)},
		sets(1000, 0, "0", "keep", 0), "600", "1 1 0", &state{hash: rated("600", "keptUntil", at(1000)), value: "-9007199254740992", members: each(513, -700, ofJava)}},
	{"set_rate", "513 members in a cool-down", state{hash: hash("rate", "600", "coolDown", at(200)), value: "87", members: each(513, -700, ofJava)},
		sets(1000, 0, "0", "keep", 0), "590", "1 1 0", &state{hash: rated("590", "coolDown", at(200), "keptUntil", at(1000)), value: "0", members: each(513, -700, ofJava)}},

	{"set_rate", "keepAliveTime", state{hash: hash(), value: "6", members: []member{{-100, java(4)}}},
		sets(1000, 600_000, "0", "keep", 0), "10", "1 0 0", &state{hash: rated("10", "keepAliveTime", "600000"), value: "6", members: []member{{-100, java(4)}},
			ttls: [3]time.Duration{10 * time.Minute, 10 * time.Minute, 10 * time.Minute}}},
	{"set_rate", "that is shorter than a cool-down", state{hash: hash("coolDown", at(3_600_000)), value: "0", members: []member{{3_599_000, block(0, 10, false, "\x00\x00\x00")}}},
		sets(1000, 600_000, "0", "keep", 0), "10", "1 0 0", &state{hash: rated("10", "keepAliveTime", "600000", "coolDown", at(3_600_000)), value: "0",
			members: []member{{3_599_000, block(0, 10, false, "\x00\x00\x00")}}, ttls: [3]time.Duration{61 * time.Minute, 61 * time.Minute, 61 * time.Minute}}},
	{"set_rate", "the TTL of the hash goes for the others", state{hash: hash(), value: "6", members: []member{{-100, java(4)}}, ttls: [3]time.Duration{20 * time.Minute}},
		sets(1000, 0, "0", "keep", 0), "10", "1 0 0", &state{hash: rated("10"), value: "6", members: []member{{-100, java(4)}},
			ttls: [3]time.Duration{20 * time.Minute, 20 * time.Minute, 20 * time.Minute}}},

	{"set_rate", "in a cool-down all becomes a block", state{hash: hash("coolDown", at(5000)), value: "6", members: []member{{-100, java(4)}}},
		sets(1000, 0, "0", "", 0), "12", "1 0 0", &state{hash: rated("12", "coolDown", at(5000)), value: "0", members: []member{{4000, joined(0, 12, 0)}}}},
	{"set_rate", "and what the rate has more", state{hash: hash("coolDown", at(5000)), value: "0", members: []member{{4000, joined(-100, 4, 0)}, {4000, joined(0, 6, 7)}}},
		sets(1000, 0, "0", "keep", 0), "12", "1 0 0", &state{hash: rated("12", "coolDown", at(5000), "keptUntil", at(1000)), value: "0",
			members: []member{{4000, joined(-100, 4, 0)}, {4000, joined(0, 6, 7)}, {4000, joined(0, 2, 0)}}}},
	{"set_rate", "in the format of 20 bytes", state{hash: hash("coolDown", at(5000)), value: "6", members: []member{{-100, java(4)}}},
		sets(1000, 0, "0", "long", 0), "12", "1 0 0", &state{hash: rated("12", "coolDown", at(5000)), value: "0",
			members: []member{{4000, "\x08" + strings.Repeat("\x00", 7) + "~c" + "\x80" + six(instant % (1 << 32))[1:] + le32(12)}}}},
	{"set_rate", "as much as another rate had more at this instant", state{hash: hash("rate", "12", "coolDown", at(5000)), value: "0",
		members: []member{{4000, joined(-100, 4, 0)}, {4000, joined(0, 6, 7)}, {4000, joined(0, 2, 0)}}},
		sets(1000, 0, "0", "keep", 0), "14", "1 0 0", &state{hash: rated("14", "coolDown", at(5000), "keptUntil", at(1000)), value: "0",
			members: []member{{4000, joined(-100, 4, 0)}, {4000, joined(0, 6, 7)}, {4000, joined(0, 2, 0)}, {4000, joined(0, 2, 1)}}}},
	{"set_rate", "the same in the format of 20 bytes", state{hash: hash("rate", "12", "coolDown", at(5000)), value: "0",
		members: []member{{4000, joined(-100, 10, 0)}, {4000, long("~c\x80"+six(instant % (1 << 32))[1:], 2)}}},
		sets(1000, 0, "0", "keep long", 0), "14", "1 0 0", &state{hash: rated("14", "coolDown", at(5000), "keptUntil", at(1000)), value: "0",
			members: []member{{4000, joined(-100, 10, 0)}, {4000, long("~c\x80"+six(instant % (1 << 32))[1:], 2)}, {4000, long("~c\x80"+six((instant + 1) % (1 << 32))[1:], 2)}}}},
	{"set_rate", "at its end nothing does", state{hash: hash("coolDown", at(0)), value: "0", members: []member{{-1000, block(0, 10, false, "\x00\x00\x00")}}},
		sets(1000, 0, "0", "", 0), "12", "1 0 0", &state{hash: rated("12", "coolDown", at(0))}},
	{"set_rate", "and what has expired goes", state{hash: hash("coolDown", at(0)), value: "5", members: []member{{-1000, java(3)}, {-500, java(2)}}},
		sets(1000, 0, "0", "keep", 0), "10", "1 0 0", &state{hash: rated("10", "coolDown", at(0)), value: "8", members: []member{{-500, java(2)}}}},
	{"set_rate", "a lower rate is below 0", state{hash: hash("coolDown", at(500)), value: "0", members: []member{{-500, joined(-900, 3, 0)}, {-500, joined(0, 5, 7)}, {-100, java(2)}}},
		sets(1000, 0, "0", "keep", 0), "6", "1 0 0", &state{hash: rated("6", "coolDown", at(500), "keptUntil", at(1000)), value: "-4",
			members: []member{{-500, joined(-900, 3, 0)}, {-500, joined(0, 5, 7)}, {-100, java(2)}}}},
	{"set_rate", "blocks expire when they would have", state{hash: hash("coolDown", at(500), "reopenUntil", at(700)), value: "0",
		members: []member{{-500, joined(-900, 3, 0)}, {-300, joined(0, 5, 7)}, {-100, java(2)}}},
		sets(1200, 0, "0", "keep", 0), "10", "1 0 0", &state{hash: rated("10", "interval", "1200", "coolDown", at(500), "reopenUntil", at(700), "keptUntil", at(1200)), value: "0",
			members: []member{{-700, joined(-900, 3, 0)}, {-500, joined(0, 5, 7)}, {-100, java(2)}}}},
	{"set_rate", "and are grants again where these do not", state{hash: hash("coolDown", at(500), "reopenUntil", at(700)), value: "0",
		members: []member{{-500, joined(-900, 3, 0)}, {-300, joined(0, 5, 7)}, {-100, java(2)}}},
		sets(1401, 0, "0", "keep", 0), "10", "1 0 0", &state{hash: rated("10", "interval", "1401", "coolDown", at(500), "reopenUntil", at(700), "keptUntil", at(1401)), value: "0",
			members: []member{{-900, "\x10~l~" + joined(-900, 3, 0)[4:]}, {-701, joined(0, 5, 7)}, {-100, java(2)}}}},
	{"set_rate", "in the format of 20 bytes, too", state{hash: hash("coolDown", at(500)), value: "0", members: []member{{-500, long("~c"+six(instant-900), 10)}}},
		sets(2000, 0, "0", "keep long", 0), "10", "1 0 0", &state{hash: rated("10", "interval", "2000", "coolDown", at(500), "keptUntil", at(2000)), value: "0",
			members: []member{{-900, long("~l"+six(instant-900), 10)}}}},
	{"set_rate", "and beside them what has expired by the old interval only", state{hash: hash("coolDown", at(-500), "reopenUntil", at(700)), value: "5",
		members: []member{{-1500, joined(-900, 3, 0)}, {-300, joined(0, 2, 7)}}},
		sets(2000, 0, "0", "keep", 0), "10", "1 0 0", &state{hash: rated("10", "interval", "2000", "coolDown", at(-500), "reopenUntil", at(700), "keptUntil", at(2000)), value: "5",
			members: []member{{-900, "\x10~l~" + joined(-900, 3, 0)[4:]}, {-1300, joined(0, 2, 7)}}}},
	{"set_rate", "what expires earlier by a shorter interval joins it", state{hash: hash("coolDown", at(500)), value: "0",
		members: []member{{-500, joined(0, 5, 7)}, {-300, java(2)}, {-100, java(3)}}},
		sets(550, 0, "0", "keep", 0), "10", "1 0 0", &state{hash: rated("10", "interval", "550", "coolDown", at(500), "keptUntil", at(1000)), value: "0",
			members: []member{{-50, joined(0, 5, 7)}, {-50, joined(-300, 2, 0)}, {-50, joined(-100, 3, 0)}}}},
	{"set_rate", "all of a set of 512", state{hash: hash("rate", "512", "coolDown", at(500)), value: "0", members: each(512, -100, ofJava)},
		sets(550, 0, "0", "keep", 0), "512", "1 0 0", &state{hash: rated("512", "interval", "550", "coolDown", at(500), "keptUntil", at(1000)), value: "0",
			members: []member{{-50, joined(-100, 256, 0)}, {-50, joined(-100, 256, 1)}}}},
}

// TestSetRate checks what set_rate makes of a state.
func TestSetRate(t *testing.T) { check(t, setRateRows) }

// TestTrySetRate checks that a limiter which has a rate keeps it, to the letter, and that one of which a part is there gets the rest.
func TestTrySetRate(t *testing.T) {
	tries := []any{2000, 600_000, "1", 5}
	check(t, []row{
		{"try_set_rate", "new", state{hash: map[string]string{}}, tries, "7", "1",
			&state{hash: map[string]string{"rate": "7", "interval": "2000", "type": "1", "keepAliveTime": "600000", "minGap": "5"}, ttls: [3]time.Duration{10 * time.Minute}}},
		{"try_set_rate", "there is one", state{hash: hash()}, tries, "7", "0", nil},
		{"try_set_rate", "the type is there", state{hash: hash("rate", "")}, tries, "7", "0", &state{hash: hash("rate", "7", "keepAliveTime", "600000")}},
		{"try_set_rate", "the rate is there", state{hash: hash("type", "")}, tries, "7", "1",
			&state{hash: hash("type", "1", "keepAliveTime", "600000", "minGap", "5"), ttls: [3]time.Duration{10 * time.Minute}}},
		{"cool_down_until", "it is over", state{hash: hash("coolDown", at(-5))}, nil, at(0), "0 0", nil},
		{"cool_down_until", "it is not", state{hash: hash("coolDown", at(5))}, nil, at(0), "0 5", nil},
		{"cool_down_until", "no rate", state{hash: hash("rate", "")}, nil, at(0), "1", nil},
	})
}
