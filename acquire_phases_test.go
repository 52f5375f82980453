package ratelimiter_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// The tests in this file check the phases of scripts/acquire_rest.lua. Each row is a state of the keys and what one call
// makes of it. The phase numbers are those of the script and of docs/design/protocol.md.

// phaseNow is the instant of a call, in milliseconds since the epoch. The instants of a row are relative to it.
const phaseNow = 1_700_000_000_000

// A phaseState is the content of the keys of one limiter.
type phaseState struct {
	hash    map[string]string
	value   string // "" if absent
	members []phaseMember
	ahead   string           // who takes permits ahead; "" if absent
	ttls    [3]time.Duration // of the hash, value and members, 0 for none; rounded up to minutes
}

// A phaseMember is a member whose score is at milliseconds after the call.
type phaseMember struct {
	at     int64
	member string
}

// A phaseRow is one call: the state before it, its arguments, its reply, and the state after it.
type phaseRow struct {
	phase  int
	name   string
	before phaseState
	args   []any // without the type; now stands for the instant
	typ    string
	reply  string
	after  *phaseState // nil if the call changes nothing
}

func hash(fields ...string) map[string]string {
	m := map[string]string{"rate": "10", "interval": "1000", "type": "0"}
	for i := 0; i < len(fields); i += 2 {
		m[fields[i]] = fields[i+1]
		if fields[i+1] == "" {
			delete(m, fields[i])
		}
	}
	return m
}

// at returns the instant ms milliseconds after the call, as the hash stores it.
func at(ms int64) string { return strconv.FormatInt(phaseNow+ms, 10) }

func le32(n int64) string {
	return string(binary.LittleEndian.AppendUint32(nil, uint32(n)))
}

// six returns the six bytes that encode the instant t.
func six(t int64) string { return string(binary.BigEndian.AppendUint64(nil, uint64(t))[2:]) }

// m21 returns a grant in our format. Its id begins with the tag of the process, followed by the letter.
func m21(tag string, letter byte, run byte, permits int64) string {
	return "\x10" + tag + string([]byte{letter}) + le32(permits) + string([]byte{run}) + strings.Repeat(string([]byte{letter}), 8) + le32(permits)
}

// own returns a grant under the id that the rows use for their call.
func own(run byte, permits int64) string { return m21("ab", 'x', run, permits) }

// java returns a grant of Redisson 3.17.0 to 3.20.
func java(permits int64) string { return "\x08javajava" + le32(permits) }

// marked returns a member that was ahead of the clock when it was first seen, seen milliseconds after the call.
func marked(seen, permits int64, rest string) string {
	return "\x10~t~" + le32(permits) + six(phaseNow+seen) + rest + le32(permits)
}

// block returns a block that stands for grants of the instant t, or for free permits if t is 0.
func block(t, permits int64, joined bool, rest string) string {
	if t != 0 {
		t += phaseNow
	}
	if joined {
		t |= 1 << 47
	}
	return "\x10~c~" + le32(permits) + six(t) + rest + le32(permits)
}

// wire returns a tripwire that was planted ms milliseconds after the call.
func wire(tag string, want byte, ms int64) string {
	t := binary.BigEndian.AppendUint32(nil, uint32((phaseNow+ms)%(1<<24)))
	return "\x10~w~" + le32(1) + tag + string([]byte{want}) + string(t[1:]) + "\x00\x00\x00" + le32(1)
}

const (
	now   = "now" // stands for the instant of the call in arguments and replies
	tagAB = 'a'*256 + 'b'
	tagCD = 'c'*256 + 'd'
)

// asked returns the arguments that follow the type: the first run, the flags, now, and then more.
func asked(permits, count int64, words string, more ...any) []any {
	args := []any{permits, count, own(0, permits*count), words, now}
	return append(args, more...)
}

// waits returns the arguments of callers that wait.
func waits(permits int64, words, share string) []any {
	return asked(permits, 1, words, "", 0, "", share)
}

var phaseRows = []phaseRow{
	{1, "no interval", phaseState{hash: hash("interval", ""), value: "10"}, asked(1, 1, ""), "0", "1", nil},
	{1, "another type", phaseState{hash: hash("type", "1"), value: "10"}, asked(1, 1, ""), "0", "2 1", nil},
	{1, "a type that is none", phaseState{hash: hash("type", "7"), value: "10"}, asked(1, 1, ""), "0", "2 -1", nil},
	{1, "half a permit", phaseState{hash: hash("rate", "1.5"), value: "1"}, asked(1, 1, ""), "0", "4", nil},
	{1, "an interval beyond 2^53", phaseState{hash: hash("interval", "9007199254740994"), value: "1"}, asked(1, 1, ""), "0", "4", nil},
	{1, "a keepAliveTime that PEXPIRE rejects", phaseState{hash: hash("keepAliveTime", "1.5"), value: "10"}, asked(1, 1, ""), "0", "4", nil},

	{2, "the server's clock", phaseState{hash: hash(), value: "10"}, []any{1, 1, own(0, 1), ""}, "0", "0 1 0 9 now 10 1000 0 0 0 0 0 0 0",
		&phaseState{hash: hash(), value: "9", members: []phaseMember{{0, own(0, 1)}}}},
	{2, "the server's clock, empty", phaseState{hash: hash(), value: "10"}, []any{1, 1, own(0, 1), "", "", "", 0, "", ""}, "0", "0 1 0 9 now 10 1000 0 0 0 0 0 0 0",
		&phaseState{hash: hash(), value: "9", members: []phaseMember{{0, own(0, 1)}}}},

	{3, "more than the rate", phaseState{hash: hash(), value: "10"}, asked(11, 1, ""), "0", "3 10", nil},
	{3, "one run exceeds the rate", phaseState{hash: hash(), value: "10"}, asked(11, 1, "", "2 1", 0, "", ""), "0", "0 -1 0 8 now 10 1000 0 0 0 0 0 0 0 1",
		&phaseState{hash: hash(), value: "8", members: []phaseMember{{0, own(1, 2)}}}},

	{4, "at the end of its interval a grant is back", phaseState{hash: hash(), value: "0", members: []phaseMember{{-1000, java(3)}, {-999, m21("ab", 'a', 0, 7)}}},
		asked(2, 1, ""), "0", "0 1 0 1 now 10 1000 0 0 0 0 0 0 0",
		&phaseState{hash: hash(), value: "1", members: []phaseMember{{-999, m21("ab", 'a', 0, 7)}, {0, own(0, 2)}}}},
	{4, "what is shorter than any format counts for nothing", phaseState{hash: hash(), value: "5", members: []phaseMember{{-2000, "short"}, {-1500, "fI  " + le32(5)}}},
		asked(6, 1, ""), "0", "0 1 0 4 now 10 1000 0 0 0 0 0 0 0",
		&phaseState{hash: hash(), value: "4", members: []phaseMember{{0, own(0, 6)}}}},

	{4, "what is reclaimed is not enough", phaseState{hash: hash(), value: "0", members: []phaseMember{{-1500, java(2)}, {-400, m21("ab", 'a', 0, 8)}}},
		asked(5, 1, ""), "0", "0 0 600 2 now 10 1000 0 0 1 8 0 0 0",
		&phaseState{hash: hash(), value: "2", members: []phaseMember{{-400, m21("ab", 'a', 0, 8)}}}},

	{5, "another process waits, and stays", phaseState{hash: hash(), value: "-1", members: []phaseMember{{-phaseNow, wire("cd", 0, -100)}, {-400, java(10)}}},
		waits(1, "", fmt.Sprint("0 0 -1 ", tagAB, " 0 0")), "0",
		fmt.Sprint("0 0 600 0 now 10 1000 0 0 1 10 0 0 0 600 0 0 1 0 0 0 0 1 ", tagCD, " 0"),
		&phaseState{hash: hash(), value: "-2", members: []phaseMember{{-phaseNow, wire("cd", 0, -100)}, {-phaseNow, wire("ab", 0, 0)}, {-400, java(10)}}}},
	{5, "what is free is saved up for it", phaseState{hash: hash(), value: "3", members: []phaseMember{{-phaseNow, wire("cd", 128, -100)}, {-400, java(6)}}},
		waits(1, "", fmt.Sprint("50 0 -1 ", tagAB, " 0 0")), "0",
		fmt.Sprint("0 0 50 4 now 10 1000 0 0 0 0 0 0 0 1 0 0 1 0 0 0 0 1 ", tagCD, " 128"),
		&phaseState{hash: hash(), value: "2", members: []phaseMember{{-phaseNow, wire("cd", 128, -100)}, {-phaseNow, wire("ab", 0, 0)}, {-400, java(6)}}}},

	{6, "two of three requests were granted", phaseState{hash: hash(), value: "8", members: []phaseMember{{-100, own(0, 2)}}},
		asked(1, 3, "replay"), "0", "0 2 0 8 now 10 1000 0 1 0 0 0 0 0", nil},
	{6, "a release has made the grant smaller", phaseState{hash: hash(), value: "9", members: []phaseMember{{-100, own(0, 1)}}},
		asked(2, 1, "replay"), "0", "0 1 0 9 now 10 1000 0 0 0 0 0 0 0", nil},

	{7, "a value that is none", phaseState{hash: hash(), value: "x", members: []phaseMember{{-100, java(4)}}},
		asked(2, 1, ""), "0", "0 0 0 0 now 10 1000 0 2 0 0 0 0 0", nil},
	{7, "a value that INCRBY rejects, and that heal has left", phaseState{hash: hash(), value: "5.0", members: []phaseMember{{-100, java(4)}}},
		asked(2, 1, "healed"), "0", "0 0 900 0 now 10 1000 0 0 1 4 0 0 0", nil},
	{7, "more than the rate", phaseState{hash: hash(), value: "14", members: []phaseMember{{-100, java(4)}}},
		asked(2, 1, ""), "0", "0 0 0 10 now 10 1000 0 2 0 0 0 0 0", nil},
	{7, "more than the rate, that heal has left", phaseState{hash: hash(), value: "14", members: []phaseMember{{-100, java(4)}}},
		asked(2, 1, "healed"), "0", "0 1 0 8 now 10 1000 0 0 0 0 0 0 0",
		&phaseState{hash: hash(), value: "12", members: []phaseMember{{-100, java(4)}, {0, own(0, 2)}}}},
	{7, "a walk goes on", phaseState{hash: hash(), value: "0", members: []phaseMember{{-500, java(4)}, {-200, m21("ab", 'a', 0, 6)}}},
		asked(5, 1, "", "", 0, "1 3", ""), "0", "0 0 800 0 now 10 1000 0 0 2 9 0 0 0", nil},

	{8, "what expires before the end is to join", phaseState{hash: hash("coolDown", at(5000)), value: "6", members: []phaseMember{{-400, java(4)}}},
		asked(1, 1, ""), "0", "0 0 5000 6 now 10 1000 0 2 0 0 0 0 0", nil},
	{8, "nothing is left to join", phaseState{hash: hash("coolDown", at(5000)), value: "0", members: []phaseMember{{4000, block(0, 10, true, "\x00\x00\x00")}}},
		asked(1, 1, ""), "0", "0 0 5000 0 now 10 1000 0 0 0 0 0 0 0", nil},

	{9, "the fields go", phaseState{hash: hash("coolDown", at(-5), "reopenUntil", at(0)), value: "10"},
		asked(1, 1, ""), "0", "0 1 0 9 now 10 1000 0 0 0 0 0 0 0",
		&phaseState{hash: hash(), value: "9", members: []phaseMember{{0, own(0, 1)}}}},
	{9, "it re-opens still", phaseState{hash: hash("coolDown", at(-5), "reopenUntil", at(1)), value: "10"},
		asked(1, 1, ""), "0", "0 1 0 9 now 10 1000 0 0 0 0 0 0 0",
		&phaseState{hash: hash("coolDown", at(-5), "reopenUntil", at(1)), value: "9", members: []phaseMember{{0, own(0, 1)}}}},

	{10, "each permit takes a gap", phaseState{hash: hash("minGap", "100"), value: "8", members: []phaseMember{{-50, java(2)}}},
		asked(1, 1, ""), "0", "0 0 150 8 now 10 1000 0 0 0 0 0 100 0", nil},

	{11, "as much as is granted", phaseState{hash: hash(), value: "0", members: []phaseMember{{-1050, m21("ab", 'a', 0, 4)}, {-300, java(6)}}},
		waits(1, "", fmt.Sprint("120 1 200 ", tagAB, " 0 0")), "0", "0 1 0 0 now 10 1000 0 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0",
		&phaseState{hash: hash(), value: "0", members: []phaseMember{{-1050, m21("ab", 'a', 0, 3)}, {-300, java(6)}, {0, own(0, 1)}}}},

	{12, "one ahead of the clock", phaseState{hash: hash(), value: "6", members: []phaseMember{{500, java(4)}}},
		asked(7, 1, "mark"), "0", "0 0 0 6 now 10 1000 0 2 0 0 500 0 0", nil},
	{12, "one that heal has left", phaseState{hash: hash(), value: "6", members: []phaseMember{{500, java(4)}}},
		asked(7, 1, "mark healed"), "0", "0 0 1000 6 now 10 1000 0 0 1 4 500 0 0", nil},
	{12, "a mark whose time is up", phaseState{hash: hash(), value: "6", members: []phaseMember{{500, marked(-1000, 4, "\x00va")}}},
		asked(7, 1, ""), "0", "0 0 0 6 now 10 1000 0 2 0 0 500 0 0", nil},
	{12, "a mark whose time is not up", phaseState{hash: hash(), value: "6", members: []phaseMember{{500, marked(-999, 4, "\x00va")}}},
		asked(7, 1, ""), "0", "0 0 1 6 now 10 1000 0 0 1 4 500 0 0", nil},
	{12, "a block behind a grant", phaseState{hash: hash(), value: "6", members: []phaseMember{{-200, java(2)}, {-100, block(0, 2, false, "\x00\x00\x00")}}},
		asked(8, 1, ""), "0", "0 0 0 6 now 10 1000 0 2 0 0 0 0 0", nil},
	{12, "permits were lost", phaseState{hash: hash(), value: "3", members: []phaseMember{{-100, java(4)}}},
		asked(1, 1, "check"), "0", "0 0 0 3 now 10 1000 0 2 0 0 0 0 0", nil},
	{12, "there are too many", phaseState{hash: hash(), value: "8", members: []phaseMember{{-100, java(4)}}},
		asked(1, 1, "check"), "0", "0 0 0 8 now 10 1000 0 2 0 0 0 0 0", nil},
	{12, "nothing is in use", phaseState{hash: hash(), value: "3"}, asked(5, 1, ""), "0", "0 0 0 3 now 10 1000 0 2 0 0 0 0 0", nil},

	{13, "no run behind one that does not fit", phaseState{hash: hash(), value: "5", members: []phaseMember{{-600, java(5)}}},
		asked(3, 1, "order", "4 1 1 1", 0, "", ""), "0", "0 1 400 2 now 10 1000 0 0 1 5 0 0 0 0 0",
		&phaseState{hash: hash(), value: "2", members: []phaseMember{{-600, java(5)}, {0, own(0, 3)}}}},
	{13, "others may overtake", phaseState{hash: hash(), value: "5", members: []phaseMember{{-600, java(5)}}},
		asked(3, 1, "", "4 1 1 1", 0, "", ""), "0", "0 1 400 1 now 10 1000 0 0 1 5 0 0 0 0 1",
		&phaseState{hash: hash(), value: "1", members: []phaseMember{{-600, java(5)}, {0, own(0, 3)}, {0, own(2, 1)}}}},
	{13, "nothing is taken", phaseState{hash: hash(), value: "5", members: []phaseMember{{-600, java(5)}}},
		asked(3, 1, "dry"), "0", "0 1 0 5 now 10 1000 0 0 0 0 0 0 0", nil},

	{14, "until enough has come back", phaseState{hash: hash(), value: "0", members: []phaseMember{{-600, java(4)}, {-100, m21("ab", 'a', 0, 6)}}},
		asked(5, 2, ""), "0", "0 0 900 0 now 10 1000 0 0 2 10 0 0 0", nil},
	{14, "permits were lost", phaseState{hash: hash(), value: "1", members: []phaseMember{{-600, java(4)}}},
		asked(6, 1, ""), "0", "0 0 400 1 now 10 1000 0 2 1 4 0 0 0", nil},

	{15, "this process, Redisson, another one, a block", phaseState{hash: hash("coolDown", at(-10), "reopenUntil", at(2000)), value: "0",
		members: []phaseMember{{-300, m21("ab", 'a', 0, 3)}, {-200, m21("cd", 'a', 0, 2)}, {-100, java(4)}, {500, block(0, 1, false, "\x00\x00\x00")}}},
		waits(1, "", fmt.Sprint("0 0 -1 ", tagAB, " 0 1")), "0",
		fmt.Sprint("0 0 700 0 now 10 1000 0 0 1 3 0 0 0 700 0 0 1 3 4 2 1 0 ", tagCD),
		&phaseState{hash: hash("coolDown", at(-10), "reopenUntil", at(2000)), value: "-1", members: []phaseMember{{-phaseNow, wire("ab", 0, 0)},
			{-300, m21("ab", 'a', 0, 3)}, {-200, m21("cd", 'a', 0, 2)}, {-100, java(4)}, {500, block(0, 1, false, "\x00\x00\x00")}}}},

	{16, "ours is planted anew", phaseState{hash: hash(), value: "-1", members: []phaseMember{{-phaseNow, wire("ab", 7, -2000)}, {-400, java(10)}}},
		waits(1, "", fmt.Sprint("0 0 -1 ", tagAB, " 7 0")), "0", "0 0 600 0 now 10 1000 0 0 1 10 0 0 0 600 0 1 1 0 0 0 0 0",
		&phaseState{hash: hash(), value: "-1", members: []phaseMember{{-phaseNow, wire("ab", 7, 0)}, {-400, java(10)}}}},
	{16, "nobody waits any more", phaseState{hash: hash(), value: "4", members: []phaseMember{{-phaseNow, wire("ab", 0, -10)}, {-400, java(5)}}},
		waits(1, "", fmt.Sprint("0 0 -1 ", tagAB, " 0 0")), "0", "0 1 0 4 now 10 1000 0 0 0 0 0 0 0 0 0 1 0 0 0 0 0 0",
		&phaseState{hash: hash(), value: "4", members: []phaseMember{{-400, java(5)}, {0, own(0, 1)}}}},

	{17, "added to what was there", phaseState{hash: hash("minGap", "1"), value: "10"}, asked(1, 1, ""), "0", "0 1 0 9 now 10 1000 0 0 0 0 0 1 0",
		&phaseState{hash: hash("minGap", "1"), value: "9", members: []phaseMember{{0, own(0, 1)}}}},
	{17, "written anew", phaseState{hash: hash("minGap", "1")}, asked(1, 1, ""), "0", "0 1 0 9 now 10 1000 0 0 0 0 0 1 0",
		&phaseState{hash: hash("minGap", "1"), value: "9", members: []phaseMember{{0, own(0, 1)}}}},

	{18, "keepAliveTime", phaseState{hash: hash("keepAliveTime", "600000"), value: "10"}, asked(1, 1, ""), "0", "0 1 0 9 now 10 1000 600000 0 0 0 0 0 1",
		&phaseState{hash: hash("keepAliveTime", "600000"), value: "9", members: []phaseMember{{0, own(0, 1)}},
			ttls: [3]time.Duration{10 * time.Minute, 10 * time.Minute, 10 * time.Minute}}},
	{18, "a call that takes nothing keeps nothing alive", phaseState{hash: hash("keepAliveTime", "600000"), value: "5", members: []phaseMember{{-100, java(5)}}},
		asked(1, 1, "dry"), "0", "0 1 0 5 now 10 1000 600000 0 0 0 0 0 0", nil},
	{18, "the TTL of the hash", phaseState{hash: hash(), value: "10", ttls: [3]time.Duration{20 * time.Minute}}, asked(1, 1, ""), "0", "0 1 0 9 now 10 1000 0 0 0 0 0 0 1",
		&phaseState{hash: hash(), value: "9", members: []phaseMember{{0, own(0, 1)}},
			ttls: [3]time.Duration{20 * time.Minute, 20 * time.Minute, 20 * time.Minute}}},
	{18, "of a client that may not come back", phaseState{hash: hash("type", "1"), value: "10"}, asked(1, 1, "", "", 3_600_000, "", ""), "1", "0 1 0 9 now 10 1000 0 0 0 0 0 0 0",
		&phaseState{hash: hash("type", "1"), value: "9", members: []phaseMember{{0, own(0, 1)}},
			ttls: [3]time.Duration{0, time.Hour, time.Hour}}},
	{18, "renewed when half of it is gone", phaseState{hash: hash("type", "1"), value: "6", members: []phaseMember{{-100, java(4)}},
		ttls: [3]time.Duration{0, 40 * time.Minute, 40 * time.Minute}}, asked(7, 1, "", "", 3_600_000, "", ""), "1", "0 0 900 6 now 10 1000 0 0 1 4 0 0 0", nil},
	{18, "it outlives a cool-down", phaseState{hash: hash("keepAliveTime", "600000", "coolDown", at(3_600_000)), value: "0", members: []phaseMember{{3_599_000, block(0, 10, true, "\x00\x00\x00")}}},
		asked(1, 1, ""), "0", "0 0 3600000 0 now 10 1000 600000 0 0 0 0 0 1",
		&phaseState{hash: hash("keepAliveTime", "600000", "coolDown", at(3_600_000)), value: "0", members: []phaseMember{{3_599_000, block(0, 10, true, "\x00\x00\x00")}},
			ttls: [3]time.Duration{61 * time.Minute, 61 * time.Minute, 61 * time.Minute}}},

	{19, "every run in its place", phaseState{hash: hash(), value: "10"}, asked(1, 2, "", "3 2 11 1 2 1", 0, "", ""), "0",
		"0 2 0 0 now 10 1000 0 0 0 0 0 0 0 2 -1 1",
		&phaseState{hash: hash(), value: "0", members: []phaseMember{{0, own(0, 2)}, {0, own(1, 6)}, {0, own(3, 2)}}}},
}

// healed returns the arguments of heal that follow the type.
func healed(words string, more ...any) []any { return append([]any{words, now, 1000}, more...) }

// healRows are calls of heal. Their phase is 0.
var healRows = []phaseRow{
	{0, "a value that is none", phaseState{hash: hash(), value: "x", members: []phaseMember{{-100, java(4)}}}, healed(""), "0", "0 1 0 10 0 0",
		&phaseState{hash: hash(), value: "6", members: []phaseMember{{-100, java(4)}}}},
	{0, "a value that is lost has the TTL of the others", phaseState{hash: hash(), members: []phaseMember{{-100, java(14)}}, ttls: [3]time.Duration{0, 0, time.Hour}},
		healed(""), "0", "0 1 0 10 0 0",
		&phaseState{hash: hash(), value: "-4", members: []phaseMember{{-100, java(14)}}, ttls: [3]time.Duration{0, time.Hour, time.Hour}}},
	{0, "nobody has used it yet", phaseState{hash: hash()}, healed("check"), "0", "0 1 0 0 0 0", nil},
	{0, "more than the rate is left", phaseState{hash: hash(), value: "14", members: []phaseMember{{-100, java(4)}}}, healed(""), "0", "0 1 0 0 0 8",
		&phaseState{hash: hash(), value: "6", members: []phaseMember{{-100, java(4)}}}},
	{0, "permits were lost", phaseState{hash: hash(), value: "3", members: []phaseMember{{-100, java(4)}}}, healed(""), "0", "0 1 0 0 3 0",
		&phaseState{hash: hash(), value: "6", members: []phaseMember{{-100, java(4)}}}},
	{0, "there are too many, the oldest go", phaseState{hash: hash(), value: "8", members: []phaseMember{{-500, java(4)}, {-100, m21("ab", 'a', 0, 3)}}},
		healed("check"), "0", "0 1 0 0 0 5",
		&phaseState{hash: hash(), value: "8", members: []phaseMember{{-100, m21("ab", 'a', 0, 2)}}}},
	{0, "the rate was lowered, value first", phaseState{hash: hash(), value: "8", members: []phaseMember{{-500, java(4)}, {-100, m21("ab", 'a', 0, 3)}}},
		healed("check lowered"), "0", "0 1 0 0 0 5",
		&phaseState{hash: hash(), value: "3", members: []phaseMember{{-500, java(4)}, {-100, m21("ab", 'a', 0, 3)}}}},
	{0, "the rate was lowered, then the oldest", phaseState{hash: hash(), value: "-3", members: []phaseMember{{-500, java(4)}, {-100, m21("ab", 'a', 0, 9)}}},
		healed("check lowered"), "0", "0 1 0 0 0 0",
		&phaseState{hash: hash(), value: "0", members: []phaseMember{{-500, java(1)}, {-100, m21("ab", 'a', 0, 9)}}}},

	{0, "ahead of the clock", phaseState{hash: hash(), value: "6", members: []phaseMember{{500, java(4)}}}, healed("mark"), "0", "0 1 4 0 0 0",
		&phaseState{hash: hash(), value: "6", members: []phaseMember{{500, marked(0, 4, "\x00va")}}}},
	{0, "ahead of a clock that is not everybody's", phaseState{hash: hash(), value: "6", members: []phaseMember{{500, java(4)}}}, healed(""), "0", "0 1 0 0 0 0", nil},
	{0, "an interval later a mark is spent", phaseState{hash: hash(), value: "6", members: []phaseMember{{500, marked(-1000, 2, "\x00va")}, {800, marked(-900, 2, "\x00va")}}},
		healed("mark"), "0", "0 1 0 0 0 0",
		&phaseState{hash: hash(), value: "8", members: []phaseMember{{800, marked(-900, 2, "\x00va")}}}},
	{0, "a mark that the clock has passed", phaseState{hash: hash(), value: "6", members: []phaseMember{{-300, marked(-1000, 4, "\x00va")}}},
		healed(""), "0", "0 1 0 0 0 0", &phaseState{hash: hash(), value: "10"}},

	{0, "a block of a cool-down that was lifted", phaseState{hash: hash(), value: "6", members: []phaseMember{{-100, block(-700, 4, false, "\x00\x00\x00")}}},
		healed(""), "0", "0 1 0 0 0 0",
		&phaseState{hash: hash(), value: "6", members: []phaseMember{{-700, "\x10~l~" + block(-700, 4, false, "\x00\x00\x00")[4:]}}}},
	{0, "a block of what was free", phaseState{hash: hash(), value: "6", members: []phaseMember{{-200, java(2)}, {-100, block(0, 2, false, "\x00\x00\x00")}}},
		healed(""), "0", "0 1 0 0 0 0", &phaseState{hash: hash(), value: "8", members: []phaseMember{{-200, java(2)}}}},
	{0, "the same in Redisson's longer format", phaseState{hash: hash(), value: "6", members: []phaseMember{{-200, java(2)}, {-100, "\x08" + strings.Repeat("\x00", 7) + "~c" + six(0) + le32(2)}}},
		healed("long"), "0", "0 1 0 0 0 0", &phaseState{hash: hash(), value: "8", members: []phaseMember{{-200, java(2)}}}},

	{0, "what expires before the end of a cool-down joins it", phaseState{hash: hash("coolDown", at(5000)), value: "6", members: []phaseMember{{-400, java(4)}}},
		healed(""), "0", "0 1 0 0 0 0",
		&phaseState{hash: hash("coolDown", at(5000)), value: "0", members: []phaseMember{
			{4000, block(0, 6, true, le32(phaseNow % (1 << 32))[:3])}, {4000, block(-400, 4, true, "\x00\x00\x00")}}}},
	{0, "in a cool-down nothing is given back", phaseState{hash: hash("coolDown", at(5000)), value: "4", members: []phaseMember{{4000, block(-400, 10, true, "\x00\x00\x00")}}},
		healed(""), "0", "0 1 0 0 0 4",
		&phaseState{hash: hash("coolDown", at(5000)), value: "0", members: []phaseMember{{4000, block(-400, 10, true, "\x00\x00\x00")}}}},

	{0, "it goes on", phaseState{hash: hash(), value: "3", members: []phaseMember{{-300, java(4)}, {-200, m21("ab", 'a', 0, 1)}, {-100, m21("ab", 'b', 0, 1)}}},
		healed("", 0, 0, m21("ab", 'a', 0, 1), m21("ab", 'a', 0, 1), 1, 1), "0", "0 1 0 0 1 0",
		&phaseState{hash: hash(), value: "4", members: []phaseMember{{-300, java(4)}, {-200, m21("ab", 'a', 0, 1)}, {-100, m21("ab", 'b', 0, 1)}}}},
	{0, "it starts over", phaseState{hash: hash(), value: "3", members: []phaseMember{{-300, java(4)}, {-200, m21("ab", 'a', 0, 1)}}},
		healed("", 0, 0, m21("ab", 'a', 0, 1), m21("ab", 'a', 0, 1), 2, 2), "0", "5", nil},
}

// TestHealStates checks what heal makes of a state.
func TestHealStates(t *testing.T) {
	src := scriptText(t, "heal")
	inPhases(t, func(t *testing.T, run func(row *phaseRow, src string) error) {
		for i := range healRows {
			require.NoError(t, run(&healRows[i], src), healRows[i].name)
		}
	})
}

// phaseKeys are the keys of one row. Each row has its own.
type phaseKeys [4]string

// put sets the keys to the state s, with scores relative to base.
func (k phaseKeys) put(ctx context.Context, rdb *redis.Client, s phaseState, base int64) error {
	pipe := rdb.Pipeline()
	pipe.Del(ctx, k[:]...)
	pipe.HSet(ctx, k[0], s.hash)
	if s.value != "" {
		pipe.Set(ctx, k[1], s.value, 0)
	}
	if s.ahead != "" {
		pipe.Set(ctx, k[3], s.ahead, 0)
	}
	for _, m := range s.members {
		pipe.ZAdd(ctx, k[2], redis.Z{Score: float64(base + m.at), Member: m.member})
	}
	for i, ttl := range s.ttls {
		if ttl > 0 {
			pipe.PExpire(ctx, k[i], ttl)
		}
	}
	_, err := pipe.Exec(ctx)
	return err
}

// text returns the state in a form that can be compared and read.
func (s phaseState) text() string {
	var b strings.Builder
	for _, f := range slices.Sorted(maps.Keys(s.hash)) {
		fmt.Fprintf(&b, "%s %s\n", f, s.hash[f])
	}
	fmt.Fprintf(&b, "value %q\n", s.value)
	members := slices.Clone(s.members)
	slices.SortFunc(members, func(m, n phaseMember) int {
		if m.at != n.at {
			return int(m.at/2 - n.at/2 + m.at%2 - n.at%2)
		}
		return strings.Compare(m.member, n.member)
	})
	for _, m := range members {
		fmt.Fprintf(&b, "%d %q\n", m.at, m.member)
	}
	fmt.Fprintf(&b, "ahead %q, TTLs %v\n", s.ahead, s.ttls)
	return b.String()
}

// get reads the keys. Scores are relative to base.
func (k phaseKeys) get(ctx context.Context, rdb *redis.Client, base int64) (phaseState, error) {
	var s phaseState
	pipe := rdb.Pipeline()
	fields, value, members := pipe.HGetAll(ctx, k[0]), pipe.Get(ctx, k[1]), pipe.ZRangeWithScores(ctx, k[2], 0, -1)
	ahead := pipe.Get(ctx, k[3])
	var ttls [3]*redis.DurationCmd
	for i := range ttls {
		ttls[i] = pipe.PTTL(ctx, k[i])
	}
	if _, err := pipe.Exec(ctx); err != nil && err != redis.Nil {
		return s, err
	}
	s.hash, s.value, s.ahead = fields.Val(), value.Val(), ahead.Val()
	for _, z := range members.Val() {
		s.members = append(s.members, phaseMember{int64(z.Score) - base, z.Member.(string)})
	}
	for i, ttl := range ttls {
		if d := ttl.Val(); d > 0 {
			s.ttls[i] = (d + time.Minute - 1).Truncate(time.Minute)
		}
	}
	return s, nil
}

// run runs the script src, which takes the first n of the keys the given number of times, and returns how the outcome differs from
// the row.
func (row *phaseRow) run(ctx context.Context, rdb *redis.Client, src string, k phaseKeys, n, times int) error {
	base, clock := int64(phaseNow), row.phase == 2
	args := []any{row.typ}
	for _, a := range row.args {
		if a == now {
			a = base
		}
		args = append(args, a)
	}
	began := rdb.Time(ctx).Val().UnixMilli()
	if err := k.put(ctx, rdb, row.before, base); err != nil {
		return err
	}
	raw, err := rdb.Eval(ctx, src, slices.Repeat(k[:n], times), args...).Result()
	if err != nil {
		return err
	}
	list, ok := raw.([]any)
	if !ok {
		list = []any{raw}
	}
	if clock {
		n, ok := list[4].(int64)
		if ended := rdb.Time(ctx).Val().UnixMilli(); !ok || n < began || n > ended {
			return fmt.Errorf("it is %v, from %d to %d", list[4], began, ended)
		}
		base = n
	}
	var reply []string
	for i, v := range list {
		if i == strings.Count(row.reply[:max(0, strings.Index(row.reply, now))], " ") && v == base {
			v = now
		}
		reply = append(reply, fmt.Sprint(v))
	}
	if got := strings.Join(reply, " "); got != row.reply {
		return fmt.Errorf("the reply is\n%s, want\n%s", got, row.reply)
	}
	want := row.after
	if want == nil {
		want = &row.before
	}
	got, err := k.get(ctx, rdb, base)
	if err != nil {
		return err
	}
	if got.text() != want.text() {
		return fmt.Errorf("the state is\n%swant\n%s", got.text(), want.text())
	}
	return nil
}

func inPhases(t *testing.T, f func(t *testing.T, run func(row *phaseRow, src string) error)) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		name := redistest.Key(t)
		n := 0
		f(t, func(row *phaseRow, src string) error {
			n++
			prefix := fmt.Sprintf("{%s}:%d", name, n)
			k := phaseKeys{prefix, prefix + ":v", prefix + ":p", prefix + ":a"}
			defer rdb.Del(t.Context(), k[:]...)
			keys, times := 3, 1
			if strings.HasPrefix(src, "-- reserve:") {
				keys = 4
			}
			if strings.HasPrefix(src, "-- acquire_all:") {
				times = 6 // unused places repeat a key
			}
			return row.run(t.Context(), rdb, src, k, keys, times)
		})
	})
}

func TestAcquirePhases(t *testing.T) {
	src := scriptText(t, "acquire_rest")
	inPhases(t, func(t *testing.T, run func(row *phaseRow, src string) error) {
		for i := range phaseRows {
			row := &phaseRows[i]
			require.NoError(t, run(row, src), "%d. %s", row.phase, row.name)
		}
	})
}

var phaseTitle = regexp.MustCompile(`(?m)^ *-- (\d+)\. ([^.]+)\.`)

// scriptText returns the source of a script.
func scriptText(t *testing.T, name string) string {
	t.Helper()
	return dispatch.Source(os.DirFS("."), name)
}

// acquirePhases returns the titles of the script's phases and the offsets at which they begin.
func acquirePhases(t *testing.T, src string) (titles []string, begins []int) {
	t.Helper()
	for _, m := range phaseTitle.FindAllStringSubmatchIndex(src, -1) {
		require.Equal(t, strconv.Itoa(len(titles)+1), src[m[2]:m[3]], "in order, without gaps")
		titles = append(titles, src[m[4]:m[5]])
		begins = append(begins, m[0])
	}
	require.NotEmpty(t, titles)
	return titles, begins
}

// TestAcquireNeedsEachPhase removes one phase at a time from the script, and checks that a row of that phase then
// fails.
func TestAcquireNeedsEachPhase(t *testing.T) {
	src := scriptText(t, "acquire_rest")
	titles, begins := acquirePhases(t, src)
	do := regexp.MustCompile(`(?m)^ *do$`)
	inPhases(t, func(t *testing.T, run func(row *phaseRow, src string) error) {
		for i, title := range titles {
			rest := src[begins[i]:]
			if i+1 < len(begins) {
				rest = src[begins[i]:begins[i+1]]
			}
			at := do.FindStringIndex(rest)
			require.NotNil(t, at, "phase %d, %s, is no block", i+1, title)
			skipped := src[:begins[i]+at[0]] + "if false then" + src[begins[i]+at[1]:]
			rows, failed := 0, 0
			for j := range phaseRows {
				if row := &phaseRows[j]; row.phase == i+1 {
					rows++
					if run(row, skipped) != nil {
						failed++
					}
				}
			}
			require.NotZero(t, failed, "%d. %s: %d rows, and none misses it", i+1, title, rows)
		}
	})
}

// TestAcquirePhasesAreThoseOfTheProtocol checks that docs/design/protocol.md lists the same phases as the script.
func TestAcquirePhasesAreThoseOfTheProtocol(t *testing.T) {
	titles, _ := acquirePhases(t, scriptText(t, "acquire_rest"))
	doc, err := os.ReadFile("docs/design/protocol.md")
	require.NoError(t, err)
	_, list, ok := strings.Cut(string(doc), "\n**acquire_rest** of runs")
	require.True(t, ok)
	var documented []string
	for _, m := range regexp.MustCompile(`(?m)^(\d+)\. \*\*([^*]+)\.\*\*`).FindAllStringSubmatch(list, -1) {
		documented = append(documented, m[2])
		require.Equal(t, strconv.Itoa(len(documented)), m[1])
	}
	require.Equal(t, titles, documented)
}
