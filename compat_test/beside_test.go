// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/wire"
)

// TestSettledGrantsBesideRedisson checks that Redisson reads a grant that was settled, to less or to more, as one of its own of
// that many permits: what is left, what the limiter owes, and that all of it comes back after the interval.
func TestSettledGrantsBesideRedisson(t *testing.T) {
	t.Parallel()
	eachJar(t, func(s *scene) {
		const rate, interval = 10, 3 * time.Second
		for actual, left := range map[int64]int64{0: 10, 2: 8, 8: 2, 10: 0, 14: 0} {
			s := s.another("0", rate, interval)
			require.NoError(s, redistest.Must(s.limiter.AcquireGrant(s.Context(), 5))(s).Settle(s.Context(), actual))
			s.requireWhole()
			require.True(s, left == 0 || s.java(left), "%d were settled", actual)
			require.False(s, s.java(1), "%d were settled", actual)
			s.requireWhole()
			time.Sleep(2 * interval)
			require.True(s, s.java(rate), "%d were settled", actual)
			require.False(s, s.java(1))
			s.requireWhole()
		}
	})
}

// TestLowerClassBesideRedisson checks that a lower class leaves its permits to Redisson, which need not know of it: it gets
// them, its permits count for the class, and the wait that the class is told is that until enough of Redisson's are back.
func TestLowerClassBesideRedisson(t *testing.T) {
	t.Parallel()
	eachJar(t, func(s *scene) {
		const rate, free, interval = 10, 3, 3 * time.Second
		s = s.another("0", rate, interval)
		low := s.limiter.LeaveFree(free, time.Hour)
		back := time.Now().Add(interval)
		require.True(s, s.java(5))
		time.Sleep(time.Second)
		require.True(s, redistest.Must(low.TryAcquire(s.Context(), 2, 0))(s))
		r := redistest.Must(low.Allow(s.Context(), 1))(s)
		require.False(s, r.Granted)
		require.Equal(s, int64(free), r.Available)
		require.Equal(s, time.Until(back), r.Wait)
		require.True(s, s.java(free), "what stays free is Redisson's")
		require.False(s, s.java(1))
		s.requireWhole()
		require.True(s, redistest.Must(low.TryAcquire(s.Context(), 2, time.Minute))(s))
		require.Contains(s, []time.Duration{0, 10 * time.Millisecond}, time.Since(back), "it may leave others room for so long")
		s.requireWhole()
	})
}

// TestTripwireBesideRedisson checks that to a call of Redisson's the tripwire of our waiting callers is a grant that has
// expired: the call removes it, and sees the limiter as it is.
func TestTripwireBesideRedisson(t *testing.T) {
	t.Parallel()
	eachJar(t, func(s *scene) {
		s = s.another("0", 3, time.Hour)
		require.True(s, s.try(2).Granted)
		require.True(s, s.try(1).Granted)
		ctx, cancel := context.WithCancel(s.Context())
		left := waits(1, func() { assert.ErrorIs(s, s.limiter.Acquire(ctx, 1), context.Canceled) })
		trips := func(call func()) {
			s.Helper()
			time.Sleep(1100 * time.Millisecond) // the queue looks in once a second
			require.Equal(s, []int64{-1, 3}, []int64{s.value(), s.members()})
			call()
			require.Equal(s, []int64{0, 2}, []int64{s.value(), s.members()})
		}
		trips(func() {
			require.Greater(s, s.redisson(twinOp{name: "tryAcquire", permits: 1}).wait, (59 * time.Minute).Milliseconds(), "it does not spin")
		})
		trips(func() { require.Equal(s, "0", s.javaLeft()) })
		cancel()
		left()
		time.Sleep(time.Second)
		require.Equal(s, "null", s.redisson(twinOp{name: "setRate", typ: "0", rate: 4, interval: 1000}).word)
		require.Equal(s, "4", s.javaLeft())
	})
}

// Versions of Redisson with different members break each other on one limiter, with or without us. We read all of them, and
// list in the members of Inspect which ones are there. One call of ours reclaims what has expired, whichever client wrote it, and
// corrects what is left. None of this makes such a limiter a good idea.
var strangers = map[string]struct {
	older string
	play  func(newer, older *scene)
}{
	"4.7.0 takes random bytes of 3.16.8's members for permits": {"3.16.8", lc0IReadByBc0I},
	"3.16.8 fails at members of 4.7.0": {"3.16.8", func(newer, older *scene) {
		require.True(newer, newer.java(1))
		bc0IReadByLc0I(newer, older)
	}},
	"3.16.8 fails at ours, unless WithRedisson316": {"3.16.8", func(newer, older *scene) {
		require.True(newer, newer.try(1).Granted)
		bc0IReadByLc0I(newer, older)
	}},
	"3.16.8 fails at a cool-down of ours, such as that of rrl, unless WithRedisson316": {"3.16.8", func(newer, older *scene) {
		require.True(older, older.java(1))
		until := newer.coolDown(1500 * time.Millisecond)
		require.Equal(older, "rejected", older.redisson(twinOp{name: "tryAcquire", permits: 1}).word)
		for range 2 {
			time.Sleep(time.Until(until) + 500*time.Millisecond)
			require.Contains(older, older.redisson(twinOp{name: "tryAcquire", permits: 1}).word, tooShort)
			require.Contains(older, older.javaLeft(), tooShort)
			until = time.Now()
		}
		require.True(older, older.try(2).Granted) // with WithRedisson316()
		require.True(older, older.java(3))
		require.False(older, older.java(1))
		older.closed(older.coolDown(1500 * time.Millisecond))
	}},
	"3.15.5 and 4.7.0 fail at each other's": {"3.15.5", fIAndBc0I},
}

// TestStrangers plays them on a limiter of 5 permits.
func TestStrangers(t *testing.T) {
	t.Parallel()
	for name, c := range strangers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newer, older := newJar(t, newestListed()), newJar(t, listed(t, c.older))
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
				s := newScene(t, rdb, newer).another("0", 5, time.Second)
				c.play(s, s.by(older))
			})
		})
	}
}

// tooShort is the error of Redisson's script at a member of a layout older or newer than its own.
const tooShort = "data string too short"

// formats returns the layouts that meet on a limiter, as Inspect reports them.
func (s *scene) formats() map[wire.Format]int {
	s.Helper()
	count := map[wire.Format]int{}
	for _, m := range redistest.Must(s.limiter.Admin().Inspect(s.Context()))(s).Members {
		member, _ := wire.ParseMember(m.Raw)
		count[member.Format]++
	}
	return count
}

// lc0IReadByBc0I has one member of 3.16.8 that has expired and one that has not, and so 4.7.0 rejects for ages.
func lc0IReadByBc0I(newer, older *scene) {
	require.True(older, older.java(1))
	time.Sleep(500 * time.Millisecond)
	require.True(older, older.java(1))
	require.Equal(older, map[wire.Format]int{wire.FormatLc0I: 2}, newer.formats())
	time.Sleep(500 * time.Millisecond)
	require.False(newer, newer.java(1))
	require.Less(newer, newer.value(), int64(-100_000))

	require.Zero(newer, newer.mixed.Load())
	require.True(newer, newer.try(4).Granted, "5 less the one in use")
	require.EqualValues(newer, 1, newer.mixed.Load(), "it reports that 3.16.8 is there")
	require.Equal(newer, map[wire.Format]int{wire.FormatLc0I: 1, wire.FormatBc0I: 1}, newer.formats())
	require.Zero(newer, newer.value())
	time.Sleep(time.Second)
	require.True(newer, newer.try(1).Granted, "it reclaims the last member of 3.16.8")
	require.Equal(newer, map[wire.Format]int{wire.FormatBc0I: 1}, newer.formats())
	require.True(newer, newer.java(4))
	require.False(newer, newer.java(1))
	require.EqualValues(newer, 1, newer.mixed.Load(), "once")
}

// bc0IReadByLc0I begins with a member that 3.16.8 cannot read, at which it fails from the moment that it expires.
func bc0IReadByLc0I(newer, older *scene) {
	require.True(older, older.java(1))
	require.Equal(older, map[wire.Format]int{wire.FormatLc0I: 1, wire.FormatBc0I: 1}, newer.formats())
	for range 2 {
		time.Sleep(time.Second)
		require.Contains(older, older.redisson(twinOp{name: "tryAcquire", permits: 1}).word, tooShort)
		require.Contains(older, older.javaLeft(), tooShort)
	}
	require.Zero(older, older.mixed.Load())
	require.True(older, older.try(2).Granted) // with WithRedisson316()
	require.EqualValues(older, 1, older.mixed.Load(), "it reports why 3.16.8 failed")
	require.True(older, older.java(3))
	time.Sleep(time.Second)
	require.True(older, older.java(5))
	require.False(older, older.java(1))
	require.Equal(older, map[wire.Format]int{wire.FormatLc0I: 1}, newer.formats())
}

// fIAndBc0I checks that 4.7.0 fails at an expired member of the article's 3.15.5, which takes random bytes of 4.7.0's for permits
// and then grants without limit. Either of them can share a limiter with us, which is why the soak has pairs of versions that can.
func fIAndBc0I(newer, older *scene) {
	for range 3 { // one member in 64 has random bytes that 4.7.0 can read
		require.True(older, older.java(1))
	}
	time.Sleep(time.Second)
	require.Contains(newer, newer.redisson(twinOp{name: "tryAcquire", permits: 1}).word, tooShort)
	require.True(newer, newer.try(1).Granted)
	require.True(newer, newer.java(4))
	require.False(newer, newer.java(1))

	time.Sleep(time.Second)
	require.True(older, older.java(1))
	require.Greater(older, older.value(), int64(100_000))
	require.True(older, older.java(5), "6 of 5")
	require.False(newer, newer.try(1).Granted)
	require.False(older, older.java(1))
	require.Equal(older, map[wire.Format]int{wire.FormatFI: 2}, newer.formats())
}
