// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

func TestPattern(t *testing.T) {
	got, err := parsePattern("p", strings.NewReader("# a morning\n\n0s..5s 100 # evenly\n\t1.5s\t10\r\n2s 1 8\n1m30s 10000000000000000 # no\n"))
	require.EqualError(t, err, "p:6: count 10000000000000000 is not in 1 to 10000")
	require.Nil(t, got)

	got, err = parsePattern("p", strings.NewReader("# a morning\n\n0s..5s 100 # evenly\n\t1.5s\t10\r\n2s 1 8\n1h 1"))
	require.NoError(t, err)
	require.Equal(t, []burst{
		{0, 5 * time.Second, 100, 1},
		{1500 * time.Millisecond, 1500 * time.Millisecond, 10, 1},
		{2 * time.Second, 2 * time.Second, 1, 8},
		{time.Hour, time.Hour, 1, 1},
	}, got)
}

func TestPatternMistakes(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "p: there is no request in it"},
		{"# nothing\n\n", "p: there is no request in it"},
		{"1s", `p:1: "1s" is not TIME COUNT [PERMITS]`},
		{"1s 1 1 1", `p:1: "1s 1 1 1" is not TIME COUNT [PERMITS]`},
		{"1s 1\n\n5 1", `p:3: "5" is not a time such as 1.5s, 200ms or 1m30s`},
		{"1,5s 1", `p:1: "1,5s" is not a time such as 1.5s, 200ms or 1m30s`},
		{"-1s 1", "p:1: time -1s is not in 0s to 1h0m0s"},
		{"1h1us 1", "p:1: time 1h1us is not in 0s to 1h0m0s"},
		{"1ns 1", "p:1: time 1ns is not a whole number of microseconds"},
		{"..1s 1", `p:1: "" is not a time such as 1.5s, 200ms or 1m30s`},
		{"1s.. 1", `p:1: "" is not a time such as 1.5s, 200ms or 1m30s`},
		{"1s..2s..3s 1", `p:1: "2s..3s" is not a time such as 1.5s, 200ms or 1m30s`},
		{"2s..1s 1", "p:1: 2s..1s does not end after it begins"},
		{"1s..1s 1", "p:1: 1s..1s does not end after it begins"},
		{"1s 0", "p:1: count 0 is not in 1 to 10000"},
		{"1s -1", "p:1: count -1 is not in 1 to 10000"},
		{"1s 1.5", `p:1: count "1.5" is not a whole number`},
		{"1s 10001", "p:1: count 10001 is not in 1 to 10000"},
		{"1s 9999\n2s 1\n3s 1", "p:3: more than 10000 requests so far"},
		{"1s 1 0", "p:1: number of permits 0 is not in 1 to 4294967295"},
		{"1s 1 4294967296", "p:1: number of permits 4294967296 is not in 1 to 4294967295"},
		{"1s 1 x", `p:1: number of permits "x" is not a whole number`},
		{strings.Repeat("# 45678\n", 1<<17) + "x", "p:131073: the file has more than 1048576 bytes"},
		{strings.Repeat("#", 2<<20), "p:1: the file has more than 1048576 bytes"},
	} {
		_, err := parsePattern("p", strings.NewReader(c.text))
		require.EqualError(t, err, c.want, "%.40q", c.text)
	}
}

// TestArrivals checks that the requests of a span are spread evenly, from its first instant on and without its last
// one, and that those of one instant keep the order of the lines.
func TestArrivals(t *testing.T) {
	bursts := redistest.Must(parsePattern("p", strings.NewReader("1s..2s 3\n1s 1 2\n0s 1\n1.999999s..2s 1")))(t)
	us := func(n int) time.Duration { return time.Duration(n) * time.Microsecond }
	require.Equal(t, []arrival{
		{0, 1}, {us(1000000), 1}, {us(1000000), 2}, {us(1333333), 1}, {us(1666666), 1}, {us(1999999), 1},
	}, traffic{bursts: bursts}.arrivals())
}

// FuzzPattern checks that a pattern that is accepted is within its bounds and reads the same when it is written out,
// and that the error of any other one names the line.
func FuzzPattern(f *testing.F) {
	for _, s := range []string{"0s..5s 100 # evenly\n1.5s 10\n", "2s 1 8", "1h 10000", "\r\n", "1s 1 1 1", "1e3s 1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		bursts, err := parsePattern("p", strings.NewReader(text))
		if err != nil {
			require.Regexp(t, `^p(:[0-9]+: |: there is no request in it$)`, err.Error())
			return
		}
		requests, canonical := 0, ""
		for _, b := range bursts {
			requests += b.count
			require.True(t, b.from >= 0 && b.to <= time.Hour && b.count > 0 && b.permits > 0, "%+v", b)
			when := b.from.String()
			if b.to != b.from {
				when += ".." + b.to.String()
			}
			canonical += fmt.Sprintf("%s %d %d\n", when, b.count, b.permits)
		}
		require.LessOrEqual(t, requests, 10_000)
		again, err := parsePattern("p", strings.NewReader(canonical))
		require.NoError(t, err, canonical)
		require.Equal(t, bursts, again)
		last := time.Duration(0)
		for _, a := range (traffic{bursts: bursts}).arrivals() {
			require.GreaterOrEqual(t, a.at, last)
			last = a.at
		}
	})
}
