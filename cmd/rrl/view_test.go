// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/term"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// screen returns what a terminal shows after the bytes. It knows the few sequences that the panel uses.
func screen(t *testing.T, out string) []string {
	t.Helper()
	lines := []string{""}
	row := 0
	for out != "" {
		if m := regexp.MustCompile(`^\x1b\[(\?\d+[hl]|\d*[AJm])`).FindStringSubmatch(out); m != nil {
			out = out[len(m[0]):]
			switch code := m[1]; code[len(code)-1] {
			case 'A':
				n := int(code[0] - '0')
				require.GreaterOrEqual(t, row, n, "above the top of the screen")
				row -= n
			case 'J':
				lines = append(lines[:row:row], "")
			}
			continue
		}
		switch c := out[0]; c {
		case '\n':
			row++
			for len(lines) <= row {
				lines = append(lines, "")
			}
		case '\r':
		default:
			require.NotEqual(t, byte('\x1b'), c, "an unknown sequence: %.10q", out)
			lines[row] += out[:1]
		}
		out = out[1:]
	}
	return lines
}

func TestTermView(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		var out bytes.Buffer
		d := newDemo(t, rdb, nil)
		v := &termView{out: &out, colour: true}
		d.view = v
		var shot string
		time.AfterFunc(9*time.Second+50*time.Millisecond, func() {
			v.mu.Lock()
			defer v.mu.Unlock()
			shot = out.String()
		})
		require.NoError(t, d.run(t.Context()))

		now := strings.Join(screen(t, shot), "\n")
		require.Contains(t, now, "\n--   9.0s ---")
		require.Contains(t, now, "\nwaiting fay num=2 7.0s, hal num=3 6.0s\n")
		require.Contains(t, now, "\npermits {"+d.store.name+"}:permits  tripwire 2@0.00s 2@0.40s 1@0.80s  as Bc0I\n")
		require.Equal(t, 1, strings.Count(now, "\nhash "), "one panel")

		require.Contains(t, out.String(), term.Green+"  0.00s  ann")
		require.Contains(t, out.String(), term.Red+"  4.50s  gus")
		require.True(t, strings.HasSuffix(out.String(), "\n"))
		at := strings.LastIndex(out.String(), wrapOff)
		require.Greater(t, strings.LastIndex(out.String(), wrapOn), at, "the terminal is put back in order")
		require.Greater(t, strings.LastIndex(out.String(), cursorOn), strings.LastIndex(out.String(), cursorOff))
		end := screen(t, out.String())
		require.Equal(t, []string{"most in any 10s window: 5 (limit 5)", ""}, end[len(end)-2:])
		require.NotContains(t, strings.Join(end, "\n"), "\nwaiting", "the panel is gone")
		require.Contains(t, strings.Join(end, "\n"), "  4@20.80s 1@20.90s  as Bc0I\n", "what the keys are at the end stays")
	})
}

func TestTermViewClosed(t *testing.T) {
	var out bytes.Buffer
	v := &termView{out: &out}
	v.begin(intro{})
	v.asked(exchange{Client: "ann", Num: "1"})
	v.close()
	v.keys(0, nil)
	v.close()
	text := strings.Join(screen(t, out.String()), "\n")
	require.Contains(t, text, "ann  num=1     asks")
	require.NotContains(t, text, "waiting")
	require.NotContains(t, out.String(), term.Dim, "no colours were asked for")
	require.True(t, strings.HasSuffix(out.String(), wrapOn+cursorOn))
}

func TestOnlyATerminalIsOne(t *testing.T) {
	require.False(t, term.Is(&bytes.Buffer{}))
	f := redistest.Must(os.CreateTemp(t.TempDir(), ""))(t)
	defer func() { require.NoError(t, f.Close()) }()
	require.False(t, term.Is(f))
	require.IsType(t, &plainView{}, newView(f, false))
	require.IsType(t, &jsonView{}, newView(f, true))
}

func TestLines(t *testing.T) {
	left := int64(2)
	for _, c := range []struct {
		e    exchange
		want string
	}{
		{exchange{Client: "ann", Num: "1", Asked: time.Second, Done: 2500 * time.Millisecond, Status: 200,
			Answer: answer{Granted: true, Available: &left}}, "  2.50s  ann  num=1     200 granted  waited  1.50s  2 left"},
		{exchange{Client: "ann", Num: "1", Status: 429, Answer: answer{RetryAfterS: 3}},
			"  0.00s  ann  num=1     429 rejected waited  0.00s  Retry-After: 3"},
		{exchange{Client: "ann", Num: "x", Status: 503, Answer: answer{Error: "no Redis"}}, "  0.00s  ann  num=x     503 no Redis"},
		{exchange{Client: "ann", Num: "1", Err: errors.New("cut\noff")}, "  0.00s  ann  num=1     no answer: cut off"},
		{exchange{Client: "ann", Num: "1"}, "  0.00s  ann  num=1     no answer"},
	} {
		require.Equal(t, c.want, answerLine(c.e))
	}
}

func TestKeyLines(t *testing.T) {
	var c clock
	require.Empty(t, c.keyLines(0, nil))
	k := &redisKeys{TimeMS: 1000, Hash: hashKey{"L", map[string]string{"zz": "1", "type": "0", "rate": "5"}},
		Value: valueKey{Key: "{L}:value"}, Permits: permitsKey{Key: "{L}:permits"}}
	require.Equal(t, []string{
		"hash    L            rate=5 type=0 zz=1",
		"value   {L}:value    (no such key)",
		"permits {L}:permits  (no members)",
	}, c.keyLines(500*time.Millisecond, k))

	k.Permits.Count = 12
	for i := range 10 {
		k.Permits.Members = append(k.Permits.Members, member{Permits: 1, GrantedMS: int64(2000 - 100*i), Format: "fI", Expired: i > 6})
	}
	require.Equal(t, "permits {L}:permits  (4 older) 1@0.80s(expired) 1@0.90s 1@1.00s 1@1.10s 1@1.20s 1@1.30s 1@1.40s 1@1.50s  as fI",
		c.keyLines(time.Second, k)[2])
}

func TestIntro(t *testing.T) {
	i := intro{Where: "a Redis", Limiter: "L", URL: "http://x", Rate: ratelimiter.Rate{Permits: 5, Interval: time.Second}, Timeout: time.Minute}
	require.Len(t, i.lines(), 3)
	i.Serve = true
	require.Contains(t, i.lines()[3], "curl -i 'http://x/require?num=2'")
}
