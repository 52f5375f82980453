// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"encoding/hex"
	"math"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/stretchr/testify/require"
)

// TestMemberBytes checks the bytes of members, which every Redisson reads: the permits come last, little endian,
// and in the Bc0I format also in bytes 4 to 7.
func TestMemberBytes(t *testing.T) {
	id := permit.ID{0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf}
	for permits, want := range map[uint32][2]string{
		1:              {"10a0a1a201000000a7a8a9aaabacadaeaf01000000", "0800000000000000a0a1a2a3a4a5a6a701000000"},
		0x01020304:     {"10a0a1a204030201a7a8a9aaabacadaeaf04030201", "0800000000000000a0a1a2a3a4a5a6a704030201"},
		math.MaxUint32: {"10a0a1a2ffffffffa7a8a9aaabacadaeafffffffff", "0800000000000000a0a1a2a3a4a5a6a7ffffffff"},
	} {
		require.Equal(t, want[0], hex.EncodeToString(Member(false, id, permits)))
		require.Equal(t, want[1], hex.EncodeToString(Member(true, id, permits)))
	}
	// Each run of a call has its own member, in both formats.
	for _, long := range []bool{false, true} {
		seen := map[string]bool{}
		for i := range permit.MaxRuns {
			seen[string(Member(long, id.Run(i), 1))] = true
		}
		require.Len(t, seen, permit.MaxRuns)
	}
}

// TestIDs checks that IDs begin with the tag of their process, and never with a tilde, with which marks, blocks and
// tripwires begin.
func TestIDs(t *testing.T) {
	for _, long := range []bool{false, true} {
		seen := map[permit.ID]bool{}
		for range 300 {
			c := Conn{Config: Config{LongLength: long}, tag: newTag("", long)}
			require.NotEqual(t, int('~'), c.tag>>8)
			for range 10 {
				id := c.NewID()
				require.Equal(t, byte(c.tag>>8), id[0])
				if !long {
					require.Equal(t, byte(c.tag), id[1])
				}
				seen[id] = true
				require.NotEqual(t, byte('~'), RandomID()[0])
			}
		}
		require.Len(t, seen, 3000)
	}
}

func TestParseRate(t *testing.T) {
	hash := func(fields ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(fields); i += 2 {
			m[fields[i]] = fields[i+1]
		}
		return m
	}
	for name, c := range map[string]struct {
		hash map[string]string
		want permit.Rate
		err  error
		text string
	}{
		"none":              {hash(), permit.Rate{}, permit.ErrNotInitialized, ""},
		"no type":           {hash("rate", "1", "interval", "1"), permit.Rate{}, permit.ErrNotInitialized, ""},
		"no interval":       {hash("rate", "1", "type", "0"), permit.Rate{}, permit.ErrNotInitialized, ""},
		"no rate":           {hash("interval", "1", "type", "0"), permit.Rate{}, permit.ErrNotInitialized, ""},
		"before 3.38.0":     {hash("rate", "5", "interval", "1000", "type", "1"), permit.Rate{Type: permit.PerClient, Permits: 5, Interval: time.Second}, nil, ""},
		"with a keep-alive": {hash("rate", "5", "interval", "1", "type", "0", "keepAliveTime", "60000"), permit.Rate{Permits: 5, Interval: time.Millisecond, KeepAlive: time.Minute}, nil, ""},
		"with a gap":        {hash("rate", "5", "interval", "9", "type", "0", "minGap", "3"), permit.Rate{Permits: 5, Interval: 9 * time.Millisecond, MinGap: 3 * time.Millisecond}, nil, ""},
		"with a long gap":   {hash("rate", "5", "interval", "2", "type", "0", "minGap", "1e300"), permit.Rate{Permits: 5, Interval: 2 * time.Millisecond, MinGap: 2 * time.Millisecond}, nil, ""},
		"fields of others":  {hash("rate", "5", "interval", "1", "type", "0", "coolDown", "x"), permit.Rate{Permits: 5, Interval: time.Millisecond}, nil, ""},
		"more ms than a Duration has": {hash("rate", "9007199254740992", "interval", "9007199254740992", "type", "0"),
			permit.Rate{Permits: 1 << 53, Interval: math.MaxInt64 / time.Millisecond * time.Millisecond}, nil, ""},
		"as Lua reads them":       {hash("rate", " 0x10", "interval", "1e3 ", "type", "0"), permit.Rate{Permits: 16, Interval: time.Second}, nil, ""},
		"a keep-alive below 0":    {hash("rate", "1", "interval", "1", "type", "0", "keepAliveTime", "-5"), permit.Rate{Permits: 1, Interval: time.Millisecond}, nil, ""},
		"no number as keep-alive": {hash("rate", "1", "interval", "1", "type", "0", "keepAliveTime", "x", "minGap", "x"), permit.Rate{Permits: 1, Interval: time.Millisecond}, nil, ""},
		"Long.MAX_VALUE":          {hash("rate", "9223372036854775807", "interval", "1", "type", "0"), permit.Rate{}, permit.ErrMalformed, `rate is "9223372036854775807"`},
		"a rate of 0":             {hash("rate", "0", "interval", "1", "type", "0"), permit.Rate{}, permit.ErrMalformed, `rate is "0"`},
		"an interval of 0":        {hash("rate", "1", "interval", "0", "type", "0"), permit.Rate{}, permit.ErrMalformed, `interval is "0"`},
		"a rate below 0":          {hash("rate", "-1", "interval", "1", "type", "0"), permit.Rate{}, permit.ErrMalformed, `rate is "-1"`},
		"a word":                  {hash("rate", "many", "interval", "1", "type", "0"), permit.Rate{}, permit.ErrMalformed, `rate is "many"`},
		"a fraction":              {hash("rate", "1.5", "interval", "1", "type", "0"), permit.Rate{}, permit.ErrMalformed, `rate is "1.5"`},
		"too large":               {hash("rate", "9223372036854775808", "interval", "1", "type", "0"), permit.Rate{}, permit.ErrMalformed, "rate is"},
		"another type":            {hash("rate", "1", "interval", "1", "type", "2"), permit.Rate{}, permit.ErrMalformed, `type is "2"`},
		"a type that is one":      {hash("rate", "1", "interval", "1", "type", "OVERALL"), permit.Rate{}, permit.ErrMalformed, `type is "OVERALL"`},
		"a bad keep-alive":        {hash("rate", "1", "interval", "1", "type", "0", "keepAliveTime", "1.5"), permit.Rate{}, permit.ErrMalformed, `keepAliveTime is "1.5"`},
	} {
		got, err := parseRate(c.hash)
		require.Equal(t, c.want, got, name)
		if c.err == nil {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorIs(t, err, c.err, name)
		require.ErrorContains(t, err, c.text, name)
	}
}
