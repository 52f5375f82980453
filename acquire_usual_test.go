package ratelimiter_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// asks returns the arguments of acquire that follow the type: the run, whether the hash had no TTL, now, and then more.
func asks(permits, count int64, noTTL int, more ...any) []any {
	return append([]any{permits, count, own(0, permits*count), noTTL, now}, more...)
}

var (
	full    = phaseState{hash: hash(), value: "0", members: []phaseMember{{-600, java(4)}, {-100, m21("ab", 'a', 0, 6)}}}
	unusual = "6"
)

// with returns full with another value and other members.
func with(value string, members ...phaseMember) phaseState {
	return phaseState{hash: hash(), value: value, members: members}
}

func after(s phaseState) *phaseState { return &s }

// usualRows are calls of scripts/acquire.lua. Of whatever is unusual it changes nothing.
var usualRows = []phaseRow{
	{0, "no rate", phaseState{hash: hash("rate", "")}, asks(1, 1, 0), "0", "1", nil},
	{0, "another type", phaseState{hash: hash("type", "1"), value: "10"}, asks(1, 1, 0), "0", "2 1", nil},
	{0, "more than the rate", with("10"), asks(11, 1, 0), "0", "3 10", nil},

	{0, "nobody has used it", phaseState{hash: hash()}, asks(3, 2, 0), "0", "0 4 now 10 1000 0 0", after(with("4", phaseMember{0, own(0, 6)}))},
	{0, "nobody has used it, and not all fit", phaseState{hash: hash()}, asks(3, 4, 0), "0", "0 1 now 10 1000 0 0 1000 3", after(with("1", phaseMember{0, own(0, 9)}))},
	{0, "the TTL is not looked at", with("9"), asks(1, 1, 1), "0", "0 8 now 10 1000 0 -1", after(with("8", phaseMember{0, own(0, 1)}))},
	{0, "sent again without our knowing", with("9", phaseMember{-10, own(0, 1)}), asks(1, 1, 0), "0", "0 9 now 10 1000 0 0", nil},

	{0, "at the end of its interval a grant is back", with("0", phaseMember{-1000, java(3)}, phaseMember{-999, m21("ab", 'a', 0, 7)}),
		asks(2, 1, 0), "0", "0 1 now 10 1000 0 0", after(with("1", phaseMember{-999, m21("ab", 'a', 0, 7)}, phaseMember{0, own(0, 2)}))},
	{0, "what is shorter than any format counts for nothing", with("5", phaseMember{-2000, "short"}, phaseMember{-1500, java(5)}),
		asks(6, 1, 0), "0", "0 4 now 10 1000 0 0", after(with("4", phaseMember{0, own(0, 6)}))},
	{0, "what is reclaimed is not enough", with("0", phaseMember{-1500, java(2)}, phaseMember{-400, m21("ab", 'a', 0, 8)}),
		asks(5, 1, 0), "0", "0 2 now 10 1000 0 0 600 0", after(with("2", phaseMember{-400, m21("ab", 'a', 0, 8)}))},

	{0, "rejected", full, asks(5, 1, 0), "0", "0 0 now 10 1000 0 0 900 0", nil},
	{0, "rejected, the TTL is not looked at", full, asks(4, 1, 1), "0", "0 0 now 10 1000 0 -1 400 0", nil},
	{0, "below nothing", with("-2", phaseMember{-600, java(6)}, phaseMember{-100, m21("ab", 'a', 0, 6)}), asks(5, 1, 0), "0", "0 0 now 10 1000 0 0 900 0", nil},
	{0, "two of three", with("6", phaseMember{-600, java(4)}), asks(3, 3, 0), "0", "0 0 now 10 1000 0 0 400 2",
		after(with("0", phaseMember{-600, java(4)}, phaseMember{0, own(0, 6)}))},
	{0, "one of two, until it is back itself", with("6", phaseMember{-600, java(4)}), asks(6, 2, 0), "0", "0 0 now 10 1000 0 0 1000 1",
		after(with("0", phaseMember{-600, java(4)}, phaseMember{0, own(0, 6)}))},

	{0, "keepAliveTime", phaseState{hash: hash("keepAliveTime", "600000"), value: "10"}, asks(1, 1, 1), "0", "0 9 now 10 1000 600000 1",
		&phaseState{hash: hash("keepAliveTime", "600000"), value: "9", members: []phaseMember{{0, own(0, 1)}},
			ttls: [3]time.Duration{10 * time.Minute, 10 * time.Minute, 10 * time.Minute}}},
	{0, "the TTL of the hash", phaseState{hash: hash(), value: "10", ttls: [3]time.Duration{20 * time.Minute}}, asks(1, 1, 1), "0", "0 9 now 10 1000 0 1",
		&phaseState{hash: hash(), value: "9", members: []phaseMember{{0, own(0, 1)}}, ttls: [3]time.Duration{20 * time.Minute, 20 * time.Minute, 20 * time.Minute}}},
	{0, "of a client that may not come back", phaseState{hash: hash("type", "1"), value: "10"}, asks(1, 1, 1, 3_600_000), "1", "0 9 now 10 1000 0 0",
		&phaseState{hash: hash("type", "1"), value: "9", members: []phaseMember{{0, own(0, 1)}}, ttls: [3]time.Duration{0, time.Hour, time.Hour}}},

	{0, "a gap", phaseState{hash: hash("minGap", "1"), value: "10"}, asks(1, 1, 0), "0", unusual, nil},
	{0, "a cool-down", phaseState{hash: hash("coolDown", at(5000)), value: "10"}, asks(1, 1, 0), "0", unusual, nil},
	{0, "the value is lost", with("", full.members...), asks(1, 1, 0), "0", unusual, nil},
	{0, "a value that is none", with("x", full.members...), asks(1, 1, 0), "0", unusual, nil},
	{0, "a value that INCRBY rejects", with("5.0", phaseMember{-1500, java(2)}, phaseMember{-100, java(4)}), asks(1, 1, 0), "0", unusual, nil},
	{0, "a value that INCRBY would reject", with("05", phaseMember{-100, java(4)}), asks(6, 1, 0), "0", unusual, nil},
	{0, "more than the rate", with("14", phaseMember{-100, java(4)}), asks(1, 1, 0), "0", unusual, nil},
	{0, "permits were lost", with("1", phaseMember{-600, java(4)}), asks(6, 1, 0), "0", unusual, nil},
	{0, "all were lost", with("5", phaseMember{-1500, java(2)}), asks(2, 4, 0), "0", unusual, nil},
	{0, "ahead of the clock", with("0", phaseMember{-600, java(4)}, phaseMember{1, java(6)}), asks(4, 1, 0), "0", unusual, nil},
	{0, "a mark", with("0", phaseMember{-600, marked(-900, 10, "\x00va")}), asks(4, 1, 0), "0", unusual, nil},
	{0, "a block", with("0", phaseMember{-600, block(-700, 10, false, "\x00\x00\x00")}), asks(4, 1, 0), "0", unusual, nil},
	{0, "a block in Redisson's longer format", with("0", phaseMember{-600, "\x08" + strings.Repeat("\x00", 7) + "~c" + six(0) + le32(10)}), asks(4, 1, 0), "0", unusual, nil},
	{0, "a grant that begins like none", with("0", phaseMember{-600, "\x08" + strings.Repeat("\x00", 7) + "~x" + six(0) + le32(10)}), asks(4, 1, 0), "0", "0 0 now 10 1000 0 0 400 0", nil},
}

// TestAcquireUsual checks what acquire decides, and that it changes nothing where it leaves that to acquire_rest.
func TestAcquireUsual(t *testing.T) {
	src := scriptText(t, "acquire")
	inPhases(t, func(t *testing.T, run func(row *phaseRow, src string) error) {
		for i := range usualRows {
			row := &usualRows[i]
			require.NoError(t, run(row, src), row.name)
		}
	})
}
