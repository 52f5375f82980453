// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"strings"
	"testing"
)

// TestOtherLayout checks that the calls for permits tell of a member in the layout of Redisson 3.16.4 to 3.16.8 which they meet
// beside our own layout, and of one in another layout beside that one, and of no other bytes.
func TestOtherLayout(t *testing.T) {
	long := func(letter string) string {
		return "\x08" + strings.Repeat("\x00", 7) + strings.Repeat(letter, 8) + le32(4)
	}
	const tells, silent = true, false
	for name, c := range map[string]struct {
		m             string
		beside, short bool // what a client tells that writes the long layout, and one that does not
	}{
		"3.16.8":                {long("j"), silent, tells},
		"3.13.3 to 3.16.3":      {"rand" + le32(4), tells, silent},
		"3.17.0 to 3.20":        {java(4), tells, silent},
		"3.21.0 and later":      {"\x10" + strings.Repeat("j", 16) + le32(4), tells, silent},
		"ours":                  {m21("ab", 'a', 0, 4), tells, silent},
		"20 bytes of somebody":  {strings.Repeat("g", 16) + le32(4), silent, silent},
		"13 bytes of somebody":  {strings.Repeat("g", 9) + le32(4), silent, silent},
		"21 bytes of somebody":  {strings.Repeat("g", 17) + le32(4), silent, silent},
		"a long one of a word":  {strings.Repeat("g", 60) + le32(4), silent, silent},
		"9 bytes of somebody":   {"garba" + le32(4), silent, silent},
		"12 bytes beginning 16": {"\x10garbage" + le32(4), silent, silent},
	} {
		for _, longs := range []bool{true, false} {
			mine, told := own(0, 2), c.short
			if longs {
				mine, told = "\x08"+strings.Repeat("\x00", 7)+"abxxxxx\x00"+le32(2), c.beside
			}
			says := func(plain, more string) string {
				if told {
					return plain + more
				}
				return plain
			}
			ask := func(permits int64, more ...any) []any { return append([]any{permits, 1, mine}, more...) }
			list := []any{now, "", 0, mine, "", "", "", "", ""}
			gone, live := state{hash: hash(), value: "6", members: []member{{-1500, c.m}}}, state{hash: hash(), value: "6", members: []member{{-500, c.m}}}
			took := &state{hash: hash(), value: "8", members: []member{{0, mine}}}
			rows := []row{
				{"acquire", "one has expired", gone, ask(2, 0, now), "0", says("0 8 now 10 1000 0 0", " 1"), took},
				{"acquire", "one is in the way", live, ask(7, 0, now), "0", says("0 6 now 10 1000 0 0 500 0", " 1"), nil},
				{"acquire_rest", "4. one has expired", gone, ask(2, "", now), "0", says("0 now granted 1 available 8 rate 10 interval 1000", " other 1"), took},
				{"acquire_rest", "12. one is added up", live, ask(2, "check", now), "0", says("0 now granted 1 available 4 rate 10 interval 1000", " other 1"),
					&state{hash: hash(), value: "4", members: []member{{-500, c.m}, {0, mine}}}},
				{"acquire_rest", "14. one is in the way", live, ask(7, "", now), "0",
					says("0 now granted 0 wait 500 available 6 rate 10 interval 1000 walked 1 walkedPermits 4", " other 1"), nil},
				{"acquire_all", "one has expired", gone, list, "0 2 0", says("0", " -1"), took},
				{"acquire_all", "one has expired, and it rejects", state{hash: hash(), value: "5", members: gone.members}, list, "0 2 8", says("0 1", " -1"), nil},
			}
			for i := range rows {
				rows[i].name = name + ": " + rows[i].name
			}
			check(t, rows)
		}
	}
}
