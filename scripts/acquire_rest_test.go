// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// restRows are calls of acquire_rest. The phase numbers are those of the script and of docs/design/protocol.md.
var restRows = []row{
	{"acquire_rest", "1. no interval", state{hash: hash("interval", ""), value: "10"}, asked(1, 1, ""), "0", "1", nil},
	{"acquire_rest", "1. another type", state{hash: hash("type", "1"), value: "10"}, asked(1, 1, ""), "0", "2 1", nil},
	{"acquire_rest", "1. a type that is none", state{hash: hash("type", "7"), value: "10"}, asked(1, 1, ""), "0", "2 -1", nil},
	{"acquire_rest", "1. half a permit", state{hash: hash("rate", "1.5"), value: "1"}, asked(1, 1, ""), "0", "4", nil},
	{"acquire_rest", "1. an interval beyond 2^53", state{hash: hash("interval", "9007199254740994"), value: "1"}, asked(1, 1, ""), "0", "4", nil},
	{"acquire_rest", "1. a keepAliveTime that PEXPIRE rejects", state{hash: hash("keepAliveTime", "1.5"), value: "10"}, asked(1, 1, ""), "0", "4", nil},

	{"acquire_rest", "2. the server's clock", state{hash: hash(), value: "10"}, []any{1, 1, own(0, 1), ""}, "0", "0 now granted 1 available 9 rate 10 interval 1000",
		&state{hash: hash(), value: "9", members: []member{{0, own(0, 1)}}}},
	{"acquire_rest", "2. the server's clock, empty", state{hash: hash(), value: "10"}, []any{1, 1, own(0, 1), "", "", "", 0, "", ""}, "0", "0 now granted 1 available 9 rate 10 interval 1000",
		&state{hash: hash(), value: "9", members: []member{{0, own(0, 1)}}}},

	{"acquire_rest", "3. more than the rate", state{hash: hash(), value: "10"}, asked(11, 1, ""), "0", "3 10", nil},
	{"acquire_rest", "3. one run exceeds the rate", state{hash: hash(), value: "10"}, asked(11, 1, "", "2 1", 0, "", ""), "0", "0 now granted -1 granted 1 available 8 rate 10 interval 1000",
		&state{hash: hash(), value: "8", members: []member{{0, own(1, 2)}}}},

	{"acquire_rest", "4. at the end of its interval a grant is back", state{hash: hash(), value: "0", members: []member{{-1000, java(3)}, {-999, m21("ab", 'a', 0, 7)}}},
		asked(2, 1, ""), "0", "0 now granted 1 available 1 rate 10 interval 1000",
		&state{hash: hash(), value: "1", members: []member{{-999, m21("ab", 'a', 0, 7)}, {0, own(0, 2)}}}},
	{"acquire_rest", "4. what is shorter than any format counts for nothing", state{hash: hash(), value: "5", members: []member{{-2000, "short"}, {-1500, "fI  " + le32(5)}}},
		asked(6, 1, ""), "0", "0 now granted 1 available 4 rate 10 interval 1000",
		&state{hash: hash(), value: "4", members: []member{{0, own(0, 6)}}}},

	{"acquire_rest", "4. what is reclaimed is not enough", state{hash: hash(), value: "0", members: []member{{-1500, java(2)}, {-400, m21("ab", 'a', 0, 8)}}},
		asked(5, 1, ""), "0", "0 now granted 0 wait 600 available 2 rate 10 interval 1000 walked 1 walkedPermits 8",
		&state{hash: hash(), value: "2", members: []member{{-400, m21("ab", 'a', 0, 8)}}}},

	{"acquire_rest", "5. another process waits, and stays", state{hash: hash(), value: "-1", members: []member{{-instant, tripwire("cd", -100)}, {-400, java(10)}}},
		waits(1, "", fmt.Sprint("0 0 ", tagAB, " 0 0")), "0",
		fmt.Sprint("0 now granted 0 wait 600 rate 10 interval 1000 walked 1 walkedPermits 10 soon 600 stands 1 waiting ", tagCD),
		&state{hash: hash(), value: "-2", members: []member{{-instant, tripwire("cd", -100)}, {-instant, tripwire("ab", 0)}, {-400, java(10)}}}},

	{"acquire_rest", "6. two of three requests were granted", state{hash: hash(), value: "8", members: []member{{-100, own(0, 2)}}},
		asked(1, 3, "replay"), "0", "0 now granted 2 available 8 rate 10 interval 1000 again 1", nil},
	{"acquire_rest", "6. a release has made the grant smaller", state{hash: hash(), value: "9", members: []member{{-100, own(0, 1)}}},
		asked(2, 1, "replay"), "0", "0 now granted 1 available 9 rate 10 interval 1000", nil},

	{"acquire_rest", "7. a value that is none", state{hash: hash(), value: "x", members: []member{{-100, java(4)}}},
		asked(2, 1, ""), "0", "0 now granted 0 rate 10 interval 1000 again 2", nil},
	{"acquire_rest", "7. a value that INCRBY rejects, and that heal has left", state{hash: hash(), value: "5.0", members: []member{{-100, java(4)}}},
		asked(2, 1, "healed"), "0", "0 now granted 0 wait 900 rate 10 interval 1000 walked 1 walkedPermits 4", nil},
	{"acquire_rest", "7. more than the rate", state{hash: hash(), value: "14", members: []member{{-100, java(4)}}},
		asked(2, 1, ""), "0", "0 now granted 0 available 10 rate 10 interval 1000 again 2", nil},
	{"acquire_rest", "7. more than the rate, that heal has left", state{hash: hash(), value: "14", members: []member{{-100, java(4)}}},
		asked(2, 1, "healed"), "0", "0 now granted 1 available 8 rate 10 interval 1000",
		&state{hash: hash(), value: "12", members: []member{{-100, java(4)}, {0, own(0, 2)}}}},
	{"acquire_rest", "7. a walk goes on", state{hash: hash(), value: "0", members: []member{{-500, java(4)}, {-200, m21("ab", 'a', 0, 6)}}},
		asked(5, 1, "", "", 0, "1 3", ""), "0", "0 now granted 0 wait 800 rate 10 interval 1000 walked 2 walkedPermits 9", nil},

	{"acquire_rest", "8. what expires before the end is to join", state{hash: hash("coolDown", at(5000)), value: "6", members: []member{{-400, java(4)}}},
		asked(1, 1, ""), "0", "0 now granted 0 wait 5000 available 6 rate 10 interval 1000 again 2", nil},
	{"acquire_rest", "8. nothing is left to join", state{hash: hash("coolDown", at(5000)), value: "0", members: []member{{4000, block(0, 10, true, "\x00\x00\x00")}}},
		asked(1, 1, ""), "0", "0 now granted 0 wait 5000 rate 10 interval 1000", nil},
	{"acquire_rest", "8. permits were lost", state{hash: hash("coolDown", at(5000)), value: "0", members: []member{{4000, block(0, 4, true, "\x00\x00\x00")}}},
		asked(1, 1, "check"), "0", "0 now granted 0 wait 5000 rate 10 interval 1000 again 2", nil},
	{"acquire_rest", "8. a mark is not spent before the end", state{hash: hash("coolDown", at(5000)), value: "0", members: []member{
		{4000, block(0, 6, true, "\x00\x00\x00")}, {4500, marked(-1000, 4, "\x00va")}}},
		asked(1, 1, "check"), "0", "0 now granted 0 wait 5000 rate 10 interval 1000", nil},

	{"acquire_rest", "9. the fields go", state{hash: hash("coolDown", at(-5), "reopenUntil", at(0), "waiting", "6162 3 "+at(-9)+" 4000 ;"), value: "10"},
		asked(1, 1, ""), "0", "0 now granted 1 available 9 rate 10 interval 1000",
		&state{hash: hash(), value: "9", members: []member{{0, own(0, 1)}}}},
	{"acquire_rest", "9. it re-opens still", state{hash: hash("coolDown", at(-5), "reopenUntil", at(1)), value: "10"},
		asked(1, 1, ""), "0", "0 now granted 1 available 9 rate 10 interval 1000",
		&state{hash: hash("coolDown", at(-5), "reopenUntil", at(1)), value: "9", members: []member{{0, own(0, 1)}}}},

	{"acquire_rest", "10. each permit takes a gap", state{hash: hash("minGap", "100"), value: "8", members: []member{{-50, java(2)}}},
		asked(1, 1, ""), "0", "0 now granted 0 wait 150 available 8 rate 10 interval 1000 minGap 100", nil},
	{"acquire_rest", "10. of the newest grant", state{hash: hash("minGap", "100"), value: "6", members: []member{{-150, java(3)}, {-50, m21("ab", 'a', 0, 1)}}},
		asked(1, 1, ""), "0", "0 now granted 0 wait 50 available 6 rate 10 interval 1000 minGap 100", nil},
	{"acquire_rest", "10. what holds no permits is none", state{hash: hash("minGap", "100"), value: "8", members: []member{{-50, java(2)}, {-10, "short"}}},
		asked(1, 1, ""), "0", "0 now granted 0 wait 150 available 8 rate 10 interval 1000 minGap 100", nil},
	{"acquire_rest", "10. one ahead of the clock is to be marked", state{hash: hash("minGap", "100"), value: "8", members: []member{{-500, java(1)}, {50, own(0, 1)}}},
		asked(1, 1, "mark"), "0", "0 now granted 0 available 8 rate 10 interval 1000 minGap 100 again 2 skew 50", nil},
	{"acquire_rest", "10. one that is not marked yet, though it was healed", state{hash: hash("minGap", "100"), value: "8", members: []member{{3600_000, java(2)}}},
		asked(1, 1, "mark healed"), "0", "0 now granted 0 wait 200 available 8 rate 10 interval 1000 minGap 100 skew 3600000", nil},
	{"acquire_rest", "10. a mark is of when it was first seen", state{hash: hash("minGap", "100"), value: "8", members: []member{{3600_000, marked(-30, 2, "\x00va")}}},
		asked(1, 1, "mark"), "0", "0 now granted 0 wait 170 available 8 rate 10 interval 1000 minGap 100 skew 3600000", nil},
	{"acquire_rest", "10. so it is where everybody has a clock of his own", state{hash: hash("minGap", "100"), value: "8", members: []member{{3600_000, marked(-30, 2, "\x00va")}}},
		asked(1, 1, ""), "0", "0 now granted 0 wait 170 available 8 rate 10 interval 1000 minGap 100 skew 3600000", nil},
	{"acquire_rest", "10. one that is seen in the future is to be marked anew", state{hash: hash("minGap", "100"), value: "8", members: []member{{3600_000, marked(1, 2, "\x00va")}}},
		asked(1, 1, "mark"), "0", "0 now granted 0 available 8 rate 10 interval 1000 minGap 100 again 2 skew 3600000", nil},
	{"acquire_rest", "10. also where the clock has passed it", state{hash: hash("minGap", "100"), value: "8", members: []member{{-70, java(1)}, {-20, marked(-500, 1, "\x00va")}}},
		asked(1, 1, "mark"), "0", "0 now granted 0 wait 30 available 8 rate 10 interval 1000 minGap 100", nil},
	{"acquire_rest", "10. of several marks the newest", state{hash: hash("minGap", "100"), value: "4",
		members: []member{{50, marked(-40, 1, "\x00va")}, {100, marked(-40, 2, "\x00va")}, {70, marked(-40, 3, "\x00va")}}},
		asked(1, 1, "mark"), "0", "0 now granted 0 wait 160 available 4 rate 10 interval 1000 minGap 100 skew 100", nil},
	{"acquire_rest", "10. a grant since then is newer", state{hash: hash("minGap", "100"), value: "8", members: []member{{-10, java(1)}, {50, marked(-200, 1, "\x00va")}}},
		asked(1, 1, "mark"), "0", "0 now granted 0 wait 90 available 8 rate 10 interval 1000 minGap 100 skew 50", nil},
	{"acquire_rest", "10. with a clock of its own no score ahead of it is one, and no block", state{hash: hash("minGap", "100", "coolDown", at(-5), "reopenUntil", at(5000)), value: "6",
		members: []member{{-50, block(-50, 2, false, "\x00\x00\x00")}, {1, java(2)}}}, asked(1, 1, "dry"), "0", "0 now granted 1 available 6 rate 10 interval 1000 minGap 100", nil},

	{"acquire_rest", "11. as much as is granted", state{hash: hash(), value: "0", members: []member{{-1050, m21("ab", 'a', 0, 4)}, {-300, java(6)}}},
		waits(1, "", fmt.Sprint("120 1 ", tagAB, " 0 0")), "0", "0 now granted 1 rate 10 interval 1000",
		&state{hash: hash(), value: "0", members: []member{{-1050, m21("ab", 'a', 0, 3)}, {-300, java(6)}, {0, own(0, 1)}}}},

	{"acquire_rest", "12. one ahead of the clock", state{hash: hash(), value: "6", members: []member{{500, java(4)}}},
		asked(7, 1, "mark"), "0", "0 now granted 0 available 6 rate 10 interval 1000 again 2 skew 500", nil},
	{"acquire_rest", "12. one that heal has left", state{hash: hash(), value: "6", members: []member{{500, java(4)}}},
		asked(7, 1, "mark healed"), "0", "0 now granted 0 wait 1000 available 6 rate 10 interval 1000 walked 1 walkedPermits 4 skew 500", nil},
	{"acquire_rest", "12. a mark whose time is up", state{hash: hash(), value: "6", members: []member{{500, marked(-1000, 4, "\x00va")}}},
		asked(7, 1, ""), "0", "0 now granted 0 available 6 rate 10 interval 1000 again 2 skew 500", nil},
	{"acquire_rest", "12. a mark whose time is not up", state{hash: hash(), value: "6", members: []member{{500, marked(-999, 4, "\x00va")}}},
		asked(7, 1, ""), "0", "0 now granted 0 wait 1 available 6 rate 10 interval 1000 walked 1 walkedPermits 4 skew 500", nil},
	{"acquire_rest", "12. a block behind a grant", state{hash: hash(), value: "6", members: []member{{-200, java(2)}, {-100, block(0, 2, false, "\x00\x00\x00")}}},
		asked(8, 1, ""), "0", "0 now granted 0 available 6 rate 10 interval 1000 again 2", nil},
	{"acquire_rest", "12. permits were lost", state{hash: hash(), value: "3", members: []member{{-100, java(4)}}},
		asked(1, 1, "check"), "0", "0 now granted 0 available 3 rate 10 interval 1000 again 2", nil},
	{"acquire_rest", "12. there are too many", state{hash: hash(), value: "8", members: []member{{-100, java(4)}}},
		asked(1, 1, "check"), "0", "0 now granted 0 available 8 rate 10 interval 1000 again 2", nil},
	{"acquire_rest", "12. nothing is in use", state{hash: hash(), value: "3"}, asked(5, 1, ""), "0", "0 now granted 0 available 3 rate 10 interval 1000 again 2", nil},

	{"acquire_rest", "13. no run behind one that does not fit", state{hash: hash(), value: "5", members: []member{{-600, java(5)}}},
		asked(3, 1, "order", "4 1 1 1", 0, "", ""), "0", "0 now granted 1 granted 0 granted 0 wait 400 available 2 rate 10 interval 1000 walked 1 walkedPermits 5",
		&state{hash: hash(), value: "2", members: []member{{-600, java(5)}, {0, own(0, 3)}}}},
	{"acquire_rest", "13. others may overtake", state{hash: hash(), value: "5", members: []member{{-600, java(5)}}},
		asked(3, 1, "", "4 1 1 1", 0, "", ""), "0", "0 now granted 1 granted 0 granted 1 wait 400 available 1 rate 10 interval 1000 walked 1 walkedPermits 5",
		&state{hash: hash(), value: "1", members: []member{{-600, java(5)}, {0, own(0, 3)}, {0, own(2, 1)}}}},
	{"acquire_rest", "13. nothing is taken", state{hash: hash(), value: "5", members: []member{{-600, java(5)}}},
		asked(3, 1, "dry"), "0", "0 now granted 1 available 5 rate 10 interval 1000", nil},

	{"acquire_rest", "13. each permit of a grant takes a gap", state{hash: hash("minGap", "100"), value: "10"},
		asked(3, 2, "", "1 1", 0, "", ""), "0", "0 now granted 1 granted 0 wait 300 available 7 rate 10 interval 1000 minGap 100",
		&state{hash: hash("minGap", "100"), value: "7", members: []member{{0, own(0, 3)}}}},
	{"acquire_rest", "13. all of them no more than an interval", state{hash: hash("minGap", "400"), value: "10"},
		asked(3, 2, ""), "0", "0 now granted 1 wait 1000 available 7 rate 10 interval 1000 minGap 400",
		&state{hash: hash("minGap", "400"), value: "7", members: []member{{0, own(0, 3)}}}},
	{"acquire_rest", "13. what others have reclaimed is left to them", state{hash: hash(), value: "3", members: []member{{-instant, tripwire("cd", -100)}, {-400, java(6)}}},
		waits(1, "", fmt.Sprint("50 0 ", tagAB, " 0 0")), "0",
		fmt.Sprint("0 now granted 0 wait 50 available 4 rate 10 interval 1000 soon 1 stands 1 waiting ", tagCD),
		&state{hash: hash(), value: "2", members: []member{{-instant, tripwire("cd", -100)}, {-instant, tripwire("ab", 0)}, {-400, java(6)}}}},

	{"acquire_rest", "14. until enough has come back", state{hash: hash(), value: "0", members: []member{{-600, java(4)}, {-100, m21("ab", 'a', 0, 6)}}},
		asked(5, 2, ""), "0", "0 now granted 0 wait 900 rate 10 interval 1000 walked 2 walkedPermits 10", nil},
	{"acquire_rest", "14. permits were lost", state{hash: hash(), value: "1", members: []member{{-600, java(4)}}},
		asked(6, 1, ""), "0", "0 now granted 0 wait 400 available 1 rate 10 interval 1000 again 2 walked 1 walkedPermits 4", nil},

	{"acquire_rest", "15. this process, Redisson, another one, a block", state{hash: hash("coolDown", at(-10), "reopenUntil", at(2000)), value: "0",
		members: []member{{-300, m21("ab", 'a', 0, 3)}, {-200, m21("cd", 'a', 0, 2)}, {-100, java(4)}, {500, block(0, 1, false, "\x00\x00\x00")}}},
		waits(1, "", fmt.Sprint("0 0 ", tagAB, " 1 0")), "0",
		"0 now granted 0 wait 700 rate 10 interval 1000 walked 1 walkedPermits 3 soon 700 stands 1 mine 3 theirs 4 ours 2 blocked 1",
		&state{hash: hash("coolDown", at(-10), "reopenUntil", at(2000)), value: "-1", members: []member{{-instant, tripwire("ab", 0)},
			{-300, m21("ab", 'a', 0, 3)}, {-200, m21("cd", 'a', 0, 2)}, {-100, java(4)}, {500, block(0, 1, false, "\x00\x00\x00")}}}},

	{"acquire_rest", "15. in the format of 20 bytes, whose processes have one byte", state{hash: hash(), value: "0", members: []member{{-300, long("abcdefgh", 3)}, {-200, long("cdefghij", 7)}}},
		[]any{1, 1, long("axxxxxx\x00", 1), "", now, "", 0, "", fmt.Sprint("0 0 ", 'a'*256, " 1 0")}, "0",
		"0 now granted 0 wait 700 rate 10 interval 1000 walked 1 walkedPermits 3 soon 700 stands 1 mine 3 theirs 7",
		&state{hash: hash(), value: "-1", members: []member{{-instant, longWire("a\x00", 0)}, {-300, long("abcdefgh", 3)}, {-200, long("cdefghij", 7)}}}},

	{"acquire_rest", "16. ours is planted anew", state{hash: hash(), value: "-1", members: []member{{-instant, tripwire("ab", -2000)}, {-400, java(10)}}},
		waits(1, "", fmt.Sprint("0 0 ", tagAB, " 0 0")), "0", "0 now granted 0 wait 600 rate 10 interval 1000 walked 1 walkedPermits 10 soon 600 found 1 stands 1",
		&state{hash: hash(), value: "-1", members: []member{{-instant, tripwire("ab", 0)}, {-400, java(10)}}}},
	{"acquire_rest", "16. ours stays for an interval", state{hash: hash(), value: "-1", members: []member{{-instant, tripwire("ab", -1000)}, {-400, java(10)}}},
		waits(1, "", fmt.Sprint("0 0 ", tagAB, " 0 0")), "0", "0 now granted 0 wait 600 rate 10 interval 1000 walked 1 walkedPermits 10 soon 600 found 1 stands 1", nil},
	{"acquire_rest", "16. but no longer than 2^22 ms", state{hash: hash("interval", "9000000"), value: "-1", members: []member{{-instant, tripwire("ab", -4_194_305)}, {-400, java(10)}}},
		waits(1, "", fmt.Sprint("0 0 ", tagAB, " 0 0")), "0", "0 now granted 0 wait 8999600 rate 10 interval 9000000 walked 1 walkedPermits 10 soon 8999600 found 1 stands 1",
		&state{hash: hash("interval", "9000000"), value: "-1", members: []member{{-instant, tripwire("ab", 0)}, {-400, java(10)}}}},
	{"acquire_rest", "16. another's stays for three intervals and a second", state{hash: hash(), value: "-1", members: []member{{-instant, tripwire("cd", -4000)}, {-400, java(10)}}},
		waits(1, "", fmt.Sprint("0 0 ", tagAB, " 0 0")), "0",
		fmt.Sprint("0 now granted 0 wait 600 rate 10 interval 1000 walked 1 walkedPermits 10 soon 600 stands 1 waiting ", tagCD),
		&state{hash: hash(), value: "-2", members: []member{{-instant, tripwire("cd", -4000)}, {-instant, tripwire("ab", 0)}, {-400, java(10)}}}},
	{"acquire_rest", "16. and then goes", state{hash: hash(), value: "-1", members: []member{{-instant, tripwire("cd", -4001)}, {-400, java(10)}}},
		waits(1, "", fmt.Sprint("0 0 ", tagAB, " 0 0")), "0", "0 now granted 0 wait 600 rate 10 interval 1000 walked 1 walkedPermits 10 soon 600 stands 1",
		&state{hash: hash(), value: "-1", members: []member{{-instant, tripwire("ab", 0)}, {-400, java(10)}}}},
	{"acquire_rest", "16. another's goes after 2^23 ms", state{hash: hash("interval", "9000000"), value: "-1", members: []member{{-instant, tripwire("cd", -8_388_609)}, {-400, java(10)}}},
		waits(1, "", fmt.Sprint("0 0 ", tagAB, " 0 0")), "0", "0 now granted 0 wait 8999600 rate 10 interval 9000000 walked 1 walkedPermits 10 soon 8999600 stands 1",
		&state{hash: hash("interval", "9000000"), value: "-1", members: []member{{-instant, tripwire("ab", 0)}, {-400, java(10)}}}},
	{"acquire_rest", "16. it says how many wait, less those that were served", state{hash: hash(), value: "0", members: []member{{-instant, tripwireOf("cd", -100, 5)}, {-400, java(9)}}},
		asked(1, 2, "", "", 0, "", fmt.Sprint("0 0 ", tagAB, " 0 66000")), "0",
		fmt.Sprint("0 now granted 1 wait 600 rate 10 interval 1000 walked 1 walkedPermits 9 soon 600 stands 1 waiting ", tagCD),
		&state{hash: hash(), value: "-2", members: []member{{-instant, tripwireOf("cd", -100, 5)}, {-instant, tripwireOf("ab", 0, 65999)}, {-400, java(9)}, {0, own(0, 1)}}}},
	{"acquire_rest", "16. ours stays for a second whatever it says", state{hash: hash(), value: "-1", members: []member{{-instant, tripwireOf("ab", -999, 3)}, {-400, java(10)}}},
		waits(1, "", fmt.Sprint("0 0 ", tagAB, " 0 4")), "0", "0 now granted 0 wait 600 rate 10 interval 1000 walked 1 walkedPermits 10 soon 600 found 1 stands 1", nil},
	{"acquire_rest", "16. and is planted anew then if the number has changed", state{hash: hash(), value: "-1", members: []member{{-instant, tripwireOf("ab", -1000, 3)}, {-400, java(10)}}},
		waits(1, "", fmt.Sprint("0 0 ", tagAB, " 0 4")), "0", "0 now granted 0 wait 600 rate 10 interval 1000 walked 1 walkedPermits 10 soon 600 found 1 stands 1",
		&state{hash: hash(), value: "-1", members: []member{{-instant, tripwireOf("ab", 0, 4)}, {-400, java(10)}}}},
	{"acquire_rest", "16. in the format of 20 bytes, which does not say how many", state{hash: hash(), value: "-1", members: []member{{-instant, longWire("cd", -100)}, {-400, java(10)}}},
		[]any{1, 1, long("abcdefg\x00", 1), "", now, "", 0, "", fmt.Sprint("0 0 ", tagAB, " 0 5")}, "0",
		fmt.Sprint("0 now granted 0 wait 600 rate 10 interval 1000 walked 1 walkedPermits 10 other 1 soon 600 stands 1 waiting ", tagCD),
		&state{hash: hash(), value: "-2", members: []member{{-instant, longWire("cd", -100)}, {-instant, longWire("ab", 0)}, {-400, java(10)}}}},
	{"acquire_rest", "16. nobody waits any more", state{hash: hash(), value: "4", members: []member{{-instant, tripwire("ab", -10)}, {-400, java(5)}}},
		waits(1, "", fmt.Sprint("0 0 ", tagAB, " 0 0")), "0", "0 now granted 1 available 4 rate 10 interval 1000 found 1",
		&state{hash: hash(), value: "4", members: []member{{-400, java(5)}, {0, own(0, 1)}}}},

	{"acquire_rest", "13. a floor", state{hash: hash(), value: "6", members: []member{{-400, java(4)}}},
		lower(2, 5, 2), "0", "0 now granted 2 wait 600 available 2 rate 10 interval 1000 walked 1 walkedPermits 4 soon 600 stands 1",
		&state{hash: hash(), value: "2", members: []member{{-400, java(4)}, {0, own(0, 4)}}}},
	{"acquire_rest", "3. more than the rate has beyond its floor", state{hash: hash(), value: "10"}, lower(9, 1, 2), "0", "3 10", nil},
	{"acquire_rest", "14. the wait until the floor is free, too", state{hash: hash(), value: "2", members: []member{{-900, java(1)}, {-400, java(7)}}},
		lower(2, 1, 2), "0", "0 now granted 0 wait 600 available 2 rate 10 interval 1000 walked 2 walkedPermits 8 soon 600 stands 1", nil},
	{"acquire_rest", "16. with a floor, no tripwire goes or comes", state{hash: hash(), value: "-2",
		members: []member{{-instant, tripwire("ab", -900)}, {-instant, tripwire("cd", -100)}, {-400, java(10)}}},
		lower(1, 1, 2), "0", fmt.Sprint("0 now granted 0 wait 600 rate 10 interval 1000 walked 1 walkedPermits 10 soon 600 stands 1 waiting ", tagAB, " waiting ", tagCD), nil},

	{"acquire_rest", "17. who waits in a cool-down", state{hash: hash("coolDown", at(5000)), value: "0", members: []member{{4000, block(0, 10, true, "\x00\x00\x00")}}},
		notes(1, fmt.Sprint("0 0 ", tagAB, " 0 40"), 0, "6162 40 4000 "), "0", "0 now granted 0 wait 5000 rate 10 interval 1000",
		&state{hash: hash("coolDown", at(5000), "waiting", "6162 40 "+at(0)+" 4000 ;"), value: "0", members: []member{{4000, block(0, 10, true, "\x00\x00\x00")}}}},
	{"acquire_rest", "17. of others what counts, of this queue what is new", state{hash: hash("type", "1", "waiting", "6364 1 "+at(-4000)+" 4000 a;6162 3 "+at(-1000)+" 4000 b;6162.5 2 "+at(-3999)+" 4000 b;"), value: "2",
		members: []member{{-400, java(8)}}},
		notes(4, "", 0, "6162 40 4000 b"), "1", "0 now granted 0 wait 600 available 2 rate 10 interval 1000 walked 1 walkedPermits 8",
		&state{hash: hash("type", "1", "waiting", "6162.5 2 "+at(-3999)+" 4000 b;6162 40 "+at(0)+" 4000 b;"), value: "2", members: []member{{-400, java(8)}}}},
	{"acquire_rest", "17. less those that were served", state{hash: hash("type", "1"), value: "10"}, notes(4, "", 0, "6162 3 4000 b"), "1", "0 now granted 1 available 6 rate 10 interval 1000",
		&state{hash: hash("type", "1", "waiting", "6162 2 "+at(0)+" 4000 b;"), value: "6", members: []member{{0, own(0, 4)}}}},
	{"acquire_rest", "17. nobody waits any more", state{hash: hash("type", "1", "waiting", "6162 3 "+at(-1000)+" 4000 b;"), value: "10"}, notes(4, "", 0, "6162 1 4000 b"), "1",
		"0 now granted 1 available 6 rate 10 interval 1000", &state{hash: hash("type", "1"), value: "6", members: []member{{0, own(0, 4)}}}},
	{"acquire_rest", "17. a tripwire says it", state{hash: hash(), value: "0", members: []member{{-400, java(10)}}},
		notes(1, fmt.Sprint("0 0 ", tagAB, " 0 5"), 0, "6162 5 4000 "), "0", "0 now granted 0 wait 600 rate 10 interval 1000 walked 1 walkedPermits 10 soon 600 stands 1",
		&state{hash: hash(), value: "-1", members: []member{{-instant, tripwireOf("ab", 0, 5)}, {-400, java(10)}}}},
	{"acquire_rest", "17. of a lower class, which has none", state{hash: hash(), value: "2", members: []member{{-400, java(8)}}},
		notes(1, "0 0 65536 0 0", 5, "6162.5 7 4000 "), "0", "0 now granted 0 wait 600 available 2 rate 10 interval 1000 walked 1 walkedPermits 8 soon 600 stands 1",
		&state{hash: hash("waiting", "6162.5 7 "+at(0)+" 4000 ;"), value: "2", members: []member{{-400, java(8)}}}},
	{"acquire_rest", "17. the last 64", state{hash: hash("type", "1", "waiting", strings.Repeat("6364 1 "+at(-1)+" 4000 ;", 64)), value: "0", members: []member{{-400, java(10)}}},
		notes(1, "", 0, "6162 7 4000 b"), "1", "0 now granted 0 wait 600 rate 10 interval 1000 walked 1 walkedPermits 10",
		&state{hash: hash("type", "1", "waiting", strings.Repeat("6364 1 "+at(-1)+" 4000 ;", 63)+"6162 7 "+at(0)+" 4000 b;"), value: "0", members: []member{{-400, java(10)}}}},

	{"acquire_rest", "18. added to what was there", state{hash: hash("minGap", "1"), value: "10"}, asked(1, 1, ""), "0", "0 now granted 1 available 9 rate 10 interval 1000 minGap 1",
		&state{hash: hash("minGap", "1"), value: "9", members: []member{{0, own(0, 1)}}}},
	{"acquire_rest", "18. written anew", state{hash: hash("minGap", "1")}, asked(1, 1, ""), "0", "0 now granted 1 available 9 rate 10 interval 1000 minGap 1",
		&state{hash: hash("minGap", "1"), value: "9", members: []member{{0, own(0, 1)}}}},

	{"acquire_rest", "19. keepAliveTime", state{hash: hash("keepAliveTime", "600000"), value: "10"}, asked(1, 1, ""), "0", "0 now granted 1 available 9 rate 10 interval 1000 keepAlive 600000 ttl 1",
		&state{hash: hash("keepAliveTime", "600000"), value: "9", members: []member{{0, own(0, 1)}},
			ttls: [3]time.Duration{10 * time.Minute, 10 * time.Minute, 10 * time.Minute}}},
	{"acquire_rest", "19. a call that takes nothing keeps nothing alive", state{hash: hash("keepAliveTime", "600000"), value: "5", members: []member{{-100, java(5)}}},
		asked(1, 1, "dry"), "0", "0 now granted 1 available 5 rate 10 interval 1000 keepAlive 600000", nil},
	{"acquire_rest", "19. the TTL of the hash", state{hash: hash(), value: "10", ttls: [3]time.Duration{20 * time.Minute}}, asked(1, 1, ""), "0", "0 now granted 1 available 9 rate 10 interval 1000 ttl 1",
		&state{hash: hash(), value: "9", members: []member{{0, own(0, 1)}},
			ttls: [3]time.Duration{20 * time.Minute, 20 * time.Minute, 20 * time.Minute}}},
	{"acquire_rest", "19. of a client that may not come back", state{hash: hash("type", "1"), value: "10"}, asked(1, 1, "", "", 3_600_000, "", ""), "1", "0 now granted 1 available 9 rate 10 interval 1000",
		&state{hash: hash("type", "1"), value: "9", members: []member{{0, own(0, 1)}},
			ttls: [3]time.Duration{0, time.Hour, time.Hour}}},
	{"acquire_rest", "19. renewed when half of it is gone", state{hash: hash("type", "1"), value: "6", members: []member{{-100, java(4)}},
		ttls: [3]time.Duration{0, 40 * time.Minute, 40 * time.Minute}}, asked(7, 1, "", "", 3_600_000, "", ""), "1", "0 now granted 0 wait 900 available 6 rate 10 interval 1000 walked 1 walkedPermits 4", nil},
	{"acquire_rest", "19. it outlives a cool-down", state{hash: hash("keepAliveTime", "600000", "coolDown", at(3_600_000)), value: "0", members: []member{{3_599_000, block(0, 10, true, "\x00\x00\x00")}}},
		asked(1, 1, ""), "0", "0 now granted 0 wait 3600000 rate 10 interval 1000 keepAlive 600000 ttl 1",
		&state{hash: hash("keepAliveTime", "600000", "coolDown", at(3_600_000)), value: "0", members: []member{{3_599_000, block(0, 10, true, "\x00\x00\x00")}},
			ttls: [3]time.Duration{61 * time.Minute, 61 * time.Minute, 61 * time.Minute}}},

	{"acquire_rest", "20. every run in its place", state{hash: hash(), value: "10"}, asked(1, 2, "", "3 2 11 1 2 1", 0, "", ""), "0",
		"0 now granted 2 granted 2 granted -1 granted 1 rate 10 interval 1000",
		&state{hash: hash(), value: "0", members: []member{{0, own(0, 2)}, {0, own(1, 6)}, {0, own(3, 2)}}}},
}

func TestAcquirePhases(t *testing.T) { check(t, restRows) }

var phaseTitle = regexp.MustCompile(`(?m)^ *-- (\d+)\. ([^.]+)\.`)

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
	src := text("acquire_rest")
	titles, begins := acquirePhases(t, src)
	do := regexp.MustCompile(`(?m)^ *do$`)
	inRedis(t, func(t *testing.T, run func(row *row, src string) error) {
		for i, title := range titles {
			rest := src[begins[i]:]
			if i+1 < len(begins) {
				rest = src[begins[i]:begins[i+1]]
			}
			at := do.FindStringIndex(rest)
			require.NotNil(t, at, "phase %d, %s, is no block", i+1, title)
			skipped := src[:begins[i]+at[0]] + "if false then" + src[begins[i]+at[1]:]
			missed := slices.ContainsFunc(restRows, func(r row) bool {
				return strings.HasPrefix(r.name, fmt.Sprint(i+1, ". ")) && run(&r, skipped) != nil
			})
			require.True(t, missed, "%d. %s: no row misses it", i+1, title)
		}
	})
}

// TestAcquirePhasesAreThoseOfTheProtocol checks that docs/design/protocol.md lists the same phases as the script.
func TestAcquirePhasesAreThoseOfTheProtocol(t *testing.T) {
	titles, _ := acquirePhases(t, text("acquire_rest"))
	doc, err := os.ReadFile("../docs/design/protocol.md")
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
