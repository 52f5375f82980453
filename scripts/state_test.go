// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

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

// counted returns the fields of a limiter of which heal has added up some members, from the oldest to the newest.
func counted(members, permits int, oldest, newest string) map[string]string {
	return hash("counted", fmt.Sprintf("%d %d %d %s%s", members, permits, len(oldest), oldest, newest))
}

// at returns the instant ms milliseconds after the call, as the hash stores it.
func at(ms int64) string { return strconv.FormatInt(instant+ms, 10) }

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
	return "\x10~t~" + le32(permits) + six(instant+seen) + rest + le32(permits)
}

// block returns a block that stands for grants of the instant t, or for free permits if t is 0.
func block(t, permits int64, joined bool, rest string) string {
	if t != 0 {
		t += instant
	}
	if joined {
		t |= 1 << 47
	}
	return "\x10~c~" + le32(permits) + six(t) + rest + le32(permits)
}

// wire returns a tripwire that was planted ms milliseconds after the call.
func tripwire(tag string, ms int64) string { return tripwireOf(tag, ms, 0) }

// tripwireOf returns one that says how many callers wait.
func tripwireOf(tag string, ms int64, callers uint32) string {
	t := binary.BigEndian.AppendUint32(nil, uint32((instant+ms)%(1<<24)))
	return "\x10~w~" + le32(1) + tag + "\x00" + string(t[1:]) + string(binary.BigEndian.AppendUint32(nil, callers)[1:]) + le32(1)
}

// longWire returns one of 20 bytes, as a client writes it that writes the layout of Redisson 3.16.4 to 3.16.8.
func longWire(tag string, ms int64) string {
	return long("~w"+tripwire(tag, ms)[8:14], 1)
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

// notes returns the arguments of callers that wait, for whom floor permits are to stay free, with what is to be noted.
func notes(permits int64, share string, floor int64, note string) []any {
	return append(waits(permits, "", share), floor, note)
}

// lower returns the arguments of a lower class, for which floor permits are to stay free.
func lower(permits, number, floor int64) []any {
	return append(asked(permits, number, "", "", 0, "", "0 0 65536 0 0"), floor)
}
