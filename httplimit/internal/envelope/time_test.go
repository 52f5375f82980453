// SPDX-License-Identifier: Apache-2.0

package envelope

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// arrival is when the answers of these tests arrive.
var arrival = time.Date(2026, 9, 2, 16, 1, 2, 500_000_000, time.UTC)

// dated is a header with a Date that is what the platform's clock shows at arrival, rounded down.
func dated() http.Header { return http.Header{"Date": {arrival.Format(http.TimeFormat)}} }

// TestUntilIsBounded: whatever a platform writes, nobody waits for an instant in the past nor longer than
// the bound.
func TestUntilIsBounded(t *testing.T) {
	const most = 24 * time.Hour
	until := func(at time.Time) time.Time { return After(arrival, Left(dated(), arrival, at), most) }
	for _, c := range []struct {
		at   time.Duration // on the platform's clock, from arrival
		want time.Duration
	}{
		{-time.Hour, 0},
		{0, 500 * time.Millisecond}, // the Date is 0.5 s old
		{time.Second, 1500 * time.Millisecond},
		{23 * time.Hour, 23*time.Hour + 500*time.Millisecond},
		{25 * time.Hour, most},
		{1 << 62, most},
	} {
		require.Equal(t, arrival.Add(c.want), until(arrival.Add(c.at)), "%v", c.at)
	}
	require.Equal(t, arrival, After(arrival, -1, most))
	require.Equal(t, arrival.Add(most), After(arrival, 1<<62, most))
	require.Equal(t, arrival.Add(most), until(time.Unix(1<<40, 0)))
	require.Equal(t, arrival, until(time.Unix(-1<<40, 0)))
}

// TestBounded: what was asked for is told where the penalty is shorter.
func TestBounded(t *testing.T) {
	for _, c := range []struct{ d, until, asked time.Duration }{
		{-time.Hour, 0, 0}, {0, 0, 0}, {time.Minute, time.Minute, 0}, {time.Hour, time.Hour, 0}, {time.Hour + 1, time.Hour, time.Hour + 1},
	} {
		until, asked := Bounded(arrival, c.d, time.Hour)
		require.Equal(t, arrival.Add(c.until), until, "%v", c.d)
		if c.asked == 0 {
			require.Zero(t, asked, "%v", c.d)
			continue
		}
		require.Equal(t, arrival.Add(c.asked), asked)
	}
}

// TestPlatformsClock: an end that a platform names is on its clock. A host that is an hour behind or ahead
// waits as long as one that is right; without a Date only its own clock is left.
func TestPlatformsClock(t *testing.T) {
	const most = 24 * time.Hour
	end := arrival.Add(2 * time.Second)
	for _, off := range []time.Duration{-time.Hour, 0, time.Hour} {
		now := arrival.Add(off)
		require.Equal(t, 2500*time.Millisecond, After(now, Left(dated(), now, end), most).Sub(now), "%v", off)
	}
	for _, header := range []http.Header{{}, {"Date": {"yesterday"}}} {
		require.Equal(t, end, After(arrival, Left(header, arrival, end), most))
	}
}
