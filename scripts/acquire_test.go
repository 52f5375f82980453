// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"strings"
	"testing"
	"time"
)

// asks returns the arguments of acquire that follow the type: the run, whether the hash had no TTL, now, and then more.
func asks(permits, count int64, noTTL int, more ...any) []any {
	return append([]any{permits, count, own(0, permits*count), noTTL, now}, more...)
}

var (
	full    = state{hash: hash(), value: "0", members: []member{{-600, java(4)}, {-100, m21("ab", 'a', 0, 6)}}}
	large   = state{hash: hash("rate", "50000000"), value: "0", members: []member{{-600, java(0x01020304)}, {-100, m21("ab", 'a', 0, 50_000_000-0x01020304)}}}
	unusual = "6"
)

// with returns full with another value and other members.
func with(value string, members ...member) state {
	return state{hash: hash(), value: value, members: members}
}

func after(s state) *state { return &s }

// keeping returns a limiter that has a keepAliveTime of ten minutes.
func keeping(ttl time.Duration, value string, members ...member) state {
	return state{hash: hash("keepAliveTime", "600000"), value: value, members: members, ttls: [3]time.Duration{ttl, ttl, ttl}}
}

// ofClient returns a PER_CLIENT limiter of which the keys of the client have a TTL, 0 for none.
func ofClient(ttl time.Duration, value string, members ...member) state {
	return state{hash: hash("type", "1"), value: value, members: members, ttls: [3]time.Duration{0, ttl, ttl}}
}

// usualRows are calls of scripts/acquire.lua. Of whatever is unusual it changes nothing.
var usualRows = []row{
	{"acquire", "no rate", state{hash: hash("rate", "")}, asks(1, 1, 0), "0", "1", nil},
	{"acquire", "another type", state{hash: hash("type", "1"), value: "10"}, asks(1, 1, 0), "0", "2 1", nil},
	{"acquire", "more than the rate", with("10"), asks(11, 1, 0), "0", "3 10", nil},

	{"acquire", "nobody has used it", state{hash: hash()}, asks(3, 2, 0), "0", "0 4 now 10 1000 0 0", after(with("4", member{0, own(0, 6)}))},
	{"acquire", "nobody has used it, and not all fit", state{hash: hash()}, asks(3, 4, 0), "0", "0 1 now 10 1000 0 0 1000 3", after(with("1", member{0, own(0, 9)}))},
	{"acquire", "the next fits when the tenth grant is back", state{hash: hash("rate", "20"), value: "10", members: append(each(8, -600, ofJava), each(2, -500, letter)...)},
		asks(10, 2, 0), "0", "0 0 now 20 1000 0 0 500 1",
		&state{hash: hash("rate", "20"), value: "0", members: append(each(8, -600, ofJava), member{-500, letter(0)}, member{-500, letter(1)}, member{0, own(0, 10)})}},
	{"acquire", "the TTL is not looked at", with("9"), asks(1, 1, 1), "0", "0 8 now 10 1000 0 -1", after(with("8", member{0, own(0, 1)}))},
	{"acquire", "sent again without our knowing", with("9", member{-10, own(0, 1)}), asks(1, 1, 0), "0", "0 9 now 10 1000 0 0", nil},

	{"acquire", "at the end of its interval a grant is back", with("0", member{-1000, java(3)}, member{-999, m21("ab", 'a', 0, 7)}),
		asks(2, 1, 0), "0", "0 1 now 10 1000 0 0", after(with("1", member{-999, m21("ab", 'a', 0, 7)}, member{0, own(0, 2)}))},
	{"acquire", "what is shorter than any format counts for nothing", with("5", member{-2000, "short"}, member{-1500, java(5)}),
		asks(6, 1, 0), "0", "0 4 now 10 1000 0 0", after(with("4", member{0, own(0, 6)}))},
	{"acquire", "what is reclaimed is not enough", with("0", member{-1500, java(2)}, member{-400, m21("ab", 'a', 0, 8)}),
		asks(5, 1, 0), "0", "0 2 now 10 1000 0 0 600 0", after(with("2", member{-400, m21("ab", 'a', 0, 8)}))},

	{"acquire", "rejected", full, asks(5, 1, 0), "0", "0 0 now 10 1000 0 0 900 0", nil},
	{"acquire", "rejected until more than four bytes of permits are back", large, asks(0x01020305, 1, 0), "0", "0 0 now 50000000 1000 0 0 900 0", nil},
	{"acquire", "rejected until four bytes of permits are back", large, asks(0x01020304, 1, 0), "0", "0 0 now 50000000 1000 0 0 400 0", nil},
	{"acquire", "rejected, the TTL is not looked at", full, asks(4, 1, 1), "0", "0 0 now 10 1000 0 -1 400 0", nil},
	{"acquire", "below nothing", with("-2", member{-600, java(6)}, member{-100, m21("ab", 'a', 0, 6)}), asks(5, 1, 0), "0", "0 0 now 10 1000 0 0 900 0", nil},
	{"acquire", "two of three", with("6", member{-600, java(4)}), asks(3, 3, 0), "0", "0 0 now 10 1000 0 0 400 2",
		after(with("0", member{-600, java(4)}, member{0, own(0, 6)}))},
	{"acquire", "one of two, until it is back itself", with("6", member{-600, java(4)}), asks(6, 2, 0), "0", "0 0 now 10 1000 0 0 1000 1",
		after(with("0", member{-600, java(4)}, member{0, own(0, 6)}))},

	{"acquire", "keepAliveTime", state{hash: hash("keepAliveTime", "600000"), value: "10"}, asks(1, 1, 1), "0", "0 9 now 10 1000 600000 1",
		&state{hash: hash("keepAliveTime", "600000"), value: "9", members: []member{{0, own(0, 1)}},
			ttls: [3]time.Duration{10 * time.Minute, 10 * time.Minute, 10 * time.Minute}}},
	{"acquire", "the TTL of the hash", state{hash: hash(), value: "10", ttls: [3]time.Duration{20 * time.Minute}}, asks(1, 1, 1), "0", "0 9 now 10 1000 0 1",
		&state{hash: hash(), value: "9", members: []member{{0, own(0, 1)}}, ttls: [3]time.Duration{20 * time.Minute, 20 * time.Minute, 20 * time.Minute}}},
	{"acquire", "of a client that may not come back", state{hash: hash("type", "1"), value: "10"}, asks(1, 1, 1, 3_600_000), "1", "0 9 now 10 1000 0 0",
		&state{hash: hash("type", "1"), value: "9", members: []member{{0, own(0, 1)}}, ttls: [3]time.Duration{0, time.Hour, time.Hour}}},

	// The hash had no TTL a moment ago, and neither is a key new nor are all permits back: the keys are renewed all the same.
	{"acquire", "each call renews keepAliveTime", keeping(2*time.Minute, "9", member{-100, java(1)}), asks(1, 1, 1), "0", "0 8 now 10 1000 600000 1",
		after(keeping(10*time.Minute, "8", member{-100, java(1)}, member{0, own(0, 1)}))},
	{"acquire", "each rejection renews keepAliveTime", keeping(2*time.Minute, "0", full.members...), asks(4, 1, 1), "0", "0 0 now 10 1000 600000 1 400 0",
		after(keeping(10*time.Minute, "0", full.members...))},
	{"acquire", "each call renews a client's keys", ofClient(0, "9", member{-100, java(1)}), asks(1, 1, 1, 3_600_000), "1", "0 8 now 10 1000 0 0",
		after(ofClient(time.Hour, "8", member{-100, java(1)}, member{0, own(0, 1)}))},
	{"acquire", "each rejection renews a client's keys", ofClient(0, "0", full.members...), asks(4, 1, 1, 3_600_000), "1", "0 0 now 10 1000 0 0 400 0",
		after(ofClient(time.Hour, "0", full.members...))},
	{"acquire", "the TTL is looked at where the set may be new", with("5", member{-2000, java(5)}), asks(1, 1, 1), "0", "0 9 now 10 1000 0 0", after(with("9", member{0, own(0, 1)}))},

	{"acquire", "a gap", state{hash: hash("minGap", "1"), value: "10"}, asks(1, 1, 0), "0", unusual, nil},
	{"acquire", "a cool-down", state{hash: hash("coolDown", at(5000)), value: "10"}, asks(1, 1, 0), "0", unusual, nil},
	{"acquire", "the value is lost", with("", full.members...), asks(1, 1, 0), "0", unusual, nil},
	{"acquire", "a value that is none", with("x", full.members...), asks(1, 1, 0), "0", unusual, nil},
	{"acquire", "a value that INCRBY rejects", with("5.0", member{-1500, java(2)}, member{-100, java(4)}), asks(1, 1, 0), "0", unusual, nil},
	{"acquire", "a value that INCRBY would reject", with("05", member{-100, java(4)}), asks(6, 1, 0), "0", unusual, nil},
	{"acquire", "more than the rate", with("14", member{-100, java(4)}), asks(1, 1, 0), "0", unusual, nil},
	{"acquire", "permits were lost", with("1", member{-600, java(4)}), asks(6, 1, 0), "0", unusual, nil},
	{"acquire", "all were lost", with("5", member{-1500, java(2)}), asks(2, 4, 0), "0", unusual, nil},
	{"acquire", "ahead of the clock", with("0", member{-600, java(4)}, member{1, java(6)}), asks(4, 1, 0), "0", unusual, nil},
	{"acquire", "a mark", with("0", member{-600, marked(-900, 10, "\x00va")}), asks(4, 1, 0), "0", unusual, nil},
	{"acquire", "a block", with("0", member{-600, block(-700, 10, false, "\x00\x00\x00")}), asks(4, 1, 0), "0", unusual, nil},
	{"acquire", "a block in Redisson's longer format", with("0", member{-600, "\x08" + strings.Repeat("\x00", 7) + "~c" + six(0) + le32(10)}), asks(4, 1, 0), "0", unusual, nil},
	{"acquire", "a grant that begins like none", with("0", member{-600, "\x08" + strings.Repeat("\x00", 7) + "~x" + six(0) + le32(10)}), asks(4, 1, 0), "0", "0 0 now 10 1000 0 0 400 0 1", nil},
}

// TestAcquireUsual checks what acquire decides, and that it changes nothing where it leaves that to acquire_rest.
func TestAcquireUsual(t *testing.T) { check(t, usualRows) }
