// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/wire"
)

// Versions of Redisson with different members break each other on one limiter, with or without us. We read all of
// them, and list in Inspect().Formats which ones are there. One call of ours reclaims what has expired, whichever
// client wrote it, and corrects what is left. None of this makes such a limiter a good idea.

// tooShort is the error of Redisson's script at a member of a layout older or newer than its own.
const tooShort = "data string too short"

// formats returns the layouts that meet on a limiter, as Inspect reports them.
func (t trouble) formats() map[wire.Format]int {
	t.Helper()
	s := redistest.Must(t.limiter.Inspect(t.Context()))(t)
	return s.Formats
}

func (t trouble) left() int64 {
	t.Helper()
	n := redistest.Must(t.rdb.Get(t.Context(), t.value()).Int64())(t)
	return n
}

// strangers returns a limiter of version 4.7.0, and the same limiter as another version sees it.
func strangers(t testing.TB, other string, permits int, interval time.Duration) (newer, older trouble) {
	t.Helper()
	newer = newTrouble(t, newestListed()).another(permits, interval)
	older = newer
	older.version = listed(t, other)
	older.java = fleet.peer(t, older.version)
	return newer, older
}

// listed returns the version of that name.
func listed(t testing.TB, name string) version {
	t.Helper()
	i := slices.IndexFunc(allVersions, func(v version) bool { return v.name == name })
	require.GreaterOrEqual(t, i, 0, "no version %s", name)
	return allVersions[i]
}

// TestTroubleLc0IReadByBc0I checks that 4.7.0 takes random bytes of 3.16.8's members for permits. With one member
// that has expired and one that has not, it rejects for ages.
func TestTroubleLc0IReadByBc0I(t *testing.T) {
	t.Parallel()
	steadily(t, lc0IReadByBc0I, newestListed(), listed(t, "3.16.8"))
}

func lc0IReadByBc0I(t testing.TB) {
	const interval = 800 * time.Millisecond
	newer, older := strangers(t, "3.16.8", 5, interval)
	require.True(t, older.javaTries(1))
	time.Sleep(interval / 2)
	require.True(t, older.javaTries(1))
	require.Equal(t, map[wire.Format]int{wire.FormatLc0I: 2}, newer.formats())
	time.Sleep(interval/2 + 20*time.Millisecond)
	require.False(t, newer.javaTries(1))
	require.Less(t, newer.left(), int64(-100_000))

	require.True(t, newer.try(4).Granted, "5 less the one in use")
	require.Equal(t, map[wire.Format]int{wire.FormatLc0I: 1, wire.FormatBc0I: 1}, newer.formats())
	require.Zero(t, newer.left())
	time.Sleep(interval + 20*time.Millisecond)
	newer.spent(1) // reclaims the last member of 3.16.8
	require.Equal(t, map[wire.Format]int{wire.FormatBc0I: 1}, newer.formats())
	require.True(t, newer.javaTries(4))
	require.False(t, newer.javaTries(1))
}

// TestTroubleBc0IReadByLc0I checks that 3.16.8 fails at every member of 4.7.0 from the moment that it expires, and
// also at ours unless we use WithMemberFormat(wire.FormatLc0I).
func TestTroubleBc0IReadByLc0I(t *testing.T) {
	t.Parallel()
	for writer, write := range map[string]func(newer trouble){
		"4.7.0": func(newer trouble) { require.True(t, newer.javaTries(1)) },
		"ours":  func(newer trouble) { newer.spent(1) },
	} {
		t.Run(writer, func(t *testing.T) {
			steadily(t, func(t testing.TB) { bc0IReadByLc0I(t, write) }, newestListed(), listed(t, "3.16.8"))
		})
	}
}

func bc0IReadByLc0I(t testing.TB, write func(newer trouble)) {
	const interval = 300 * time.Millisecond
	newer, older := strangers(t, "3.16.8", 5, interval)
	write(newer)
	require.True(t, older.javaTries(1))
	require.Equal(t, map[wire.Format]int{wire.FormatLc0I: 1, wire.FormatBc0I: 1}, newer.formats())
	for range 2 {
		time.Sleep(interval + 20*time.Millisecond)
		for _, call := range [][]any{{"tryAcquire", newer.name, 1}, {"availablePermits", newer.name}} {
			_, err := older.java.call(call[0].(string), call[1:]...)
			require.ErrorContains(t, err, tooShort)
		}
	}

	writes := clienttest.New(t, newer.rdb, ratelimiter.WithMemberFormat(wire.FormatLc0I))
	defer writes.Close()
	require.True(t, redistest.Must(writes.RateLimiter(newer.name).TryAcquire(t.Context(), 2, 0))(t))
	require.True(t, older.javaTries(3))
	time.Sleep(interval + 20*time.Millisecond)
	require.True(t, older.javaTries(5))
	require.False(t, older.javaTries(1))
	require.Equal(t, map[wire.Format]int{wire.FormatLc0I: 1}, newer.formats())
}

// TestTroubleFIAndBc0I checks that the article's 3.15.5 and 4.7.0 cannot share a limiter. 4.7.0 fails at an expired
// member of 3.15.5; 3.15.5 takes random bytes of 4.7.0's for permits and then grants without limit. Either of them
// can share one with us, which is why the soak has pairs of versions that can.
func TestTroubleFIAndBc0I(t *testing.T) {
	t.Parallel()
	steadily(t, fIAndBc0I, newestListed(), listed(t, "3.15.5"))
}

func fIAndBc0I(t testing.TB) {
	const interval = 600 * time.Millisecond
	newer, older := strangers(t, "3.15.5", 5, interval)
	for range 3 { // one member in 64 has random bytes that 4.7.0 can read
		require.True(t, older.javaTries(1))
	}
	time.Sleep(interval + 20*time.Millisecond)
	_, err := newer.java.call("tryAcquire", newer.name, 1)
	require.ErrorContains(t, err, tooShort)
	require.True(t, newer.try(1).Granted)
	require.True(t, newer.javaTries(4))
	require.False(t, newer.javaTries(1))

	time.Sleep(interval + 20*time.Millisecond)
	require.True(t, older.javaTries(1))
	require.Greater(t, older.left(), int64(100_000))
	require.True(t, older.javaTries(5), "6 of 5")
	require.False(t, newer.try(1).Granted)
	require.False(t, older.javaTries(1))
	require.Equal(t, map[wire.Format]int{wire.FormatFI: 2}, newer.formats())
}
