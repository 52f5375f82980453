// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// hostileNumbers are values that others can write where a limiter keeps a number.
var hostileNumbers = []string{"-9223372036854775808", "9223372036854775807", "9007199254740993", "1e308", "-1e308",
	"nan", "-nan", "inf", "-inf", "-1", "0.5", "-0.5", "1e15", "0x7fffffffffffffff", "", "x"}

// callWithHostileState makes 300 calls at one instant, and then more as time passes. Each keeps the bound or returns
// ErrMalformed.
func callWithHostileState(t *testing.T, l *Shared, now *time.Time, state string) {
	t.Helper()
	ctx, a := t.Context(), l.Algorithm()
	granted := int64(0)
	calls := 300
	if redistest.Lane() == "miniredis" {
		calls = 30
	}
	for i := range calls {
		ask := l.Allow
		if i%10 == 3 {
			ask = l.Peek
		}
		r, err := ask(ctx, 1)
		if err != nil {
			require.ErrorIs(t, err, ratelimiter.ErrMalformed, state)
			require.False(t, r.Granted)
			return
		}
		if r.Granted && i%10 != 3 {
			granted++
		}
		require.GreaterOrEqual(t, r.Wait, time.Duration(0), state)
		require.LessOrEqual(t, r.Available, max(a.model().Largest, 0), state)
	}
	require.LessOrEqual(t, granted, a.bound(time.Microsecond, 1), "%s: granted at one instant", state)
	for range 20 {
		r, err := l.Allow(ctx, 1)
		if err != nil {
			require.ErrorIs(t, err, ratelimiter.ErrMalformed, state)
			return
		}
		*now = now.Add(max(time.Microsecond, min(r.Wait, time.Hour)))
	}
}

// Whatever a limiter finds in its hash, no more than the bound is granted, and every reply is understood.
func TestHostileState(t *testing.T) {
	redistest.NoRace(t, "one caller at a time")
	ctx, rdb := t.Context(), redistest.Client(t)
	for kind, a := range every() {
		if kind == "sliding log" {
			continue
		}
		now := time.UnixMicro(1_790_000_000_000_000)
		fresh := func() *Shared {
			l := redistest.Must(NewShared(rdb, redistest.Key(t), a, func(c *config) { c.Clock = func() time.Time { return now } }))(t)
			require.True(t, redistest.Must(l.Allow(ctx, 1))(t).Granted)
			return l
		}
		words := strings.Fields(stateOf(t, rdb, fresh()))
		values := hostileNumbers
		if redistest.Lane() == "miniredis" {
			values = []string{"-9223372036854775808", "nan", "1e308"} // it compiles the script each time
		}
		for i := range words {
			for _, v := range values {
				for _, other := range []string{"", "ahead", "gone"} {
					l := fresh()
					hostile := strings.Fields(stateOf(t, rdb, l))
					hostile[i] = v
					for j := range hostile {
						switch instant := len(words[j]) == 16; {
						case j == i:
						case instant && other == "ahead":
							hostile[j] = fmt.Sprint(now.Add(24 * time.Hour).UnixMicro())
						case !instant && other == "gone":
							hostile[j] = ""
						}
					}
					state := strings.Join(hostile, " ")
					require.NoError(t, rdb.Set(ctx, l.Keys()[0], state, 0).Err())
					callWithHostileState(t, l, &now, fmt.Sprintf("%s with %q", kind, state))
				}
			}
		}
		// Nor does what is remembered of calls.
		for _, rest := range []string{"@", "@nan@1", "@" + strings.Repeat("x", 9000), ";", ";;;", ";-,", ";-,x", ";x,1,;y", ";" + strings.Repeat("x", 8) + "999999,", "," + strings.Repeat(";-,1", 9000), "; ;,,,;"} {
			l := fresh()
			require.NoError(t, rdb.Append(ctx, l.Keys()[0], rest).Err())
			callWithHostileState(t, l, &now, fmt.Sprintf("%s with %.20q", kind, rest))
		}
	}
}

// The same for the members and scores of a log.
func TestHostileLog(t *testing.T) {
	redistest.NeedReal(t)
	redistest.NoRace(t, "one caller at a time")
	ctx, rdb := t.Context(), redistest.Client(t)
	now := time.UnixMicro(1_790_000_000_000_000)
	a := SlidingLog{per(7, time.Second)}
	member := func(sum, n any) string { return fmt.Sprintf("%016v:%v", sum, n) }
	for _, score := range []float64{0, math.Inf(1), math.Inf(-1), -1e300, 1e300} {
		for _, m := range []string{member(0, 0), member(1, 1), member(5, 5), member(5, -5), member(5, "nan"), member(5, "inf"),
			member("nan", 1), member("inf", 1), member("-inf", 1), member("-1", 1), member("9999999999999999", 1),
			member("9007199254740993", 7), member(100, 1), member(100, 95), member("1e300", 1), "", "x", ":", "0000000000000005", "5:5"} {
			for _, ahead := range []time.Duration{-time.Millisecond, 0, time.Hour, 1000 * time.Hour} {
				for _, grants := range []int{0, 3} {
					l := redistest.Must(NewShared(rdb, redistest.Key(t), a, func(c *config) { c.Clock = func() time.Time { return now } }))(t)
					for range grants {
						require.True(t, redistest.Must(l.Allow(ctx, 2))(t).Granted)
						now = now.Add(time.Microsecond)
					}
					s := score
					if s == 0 {
						s = float64(now.Add(ahead).UnixMicro())
					}
					require.NoError(t, rdb.ZAdd(ctx, l.Keys()[0], redis.Z{Score: s, Member: m}).Err())
					callWithHostileState(t, l, &now, fmt.Sprintf("%q at %v, after %d grants", m, s, grants))
				}
			}
		}
	}
}
