// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

// TestCoolDownAndWhatIsGivenBack gives permits back in each way, before, in and after cool-downs that grow and are lifted. Neither
// side is granted any before the end. Then those that were given back are free for both, and no others.
func TestCoolDownAndWhatIsGivenBack(t *testing.T) {
	t.Parallel()
	eachJar(t, func(s *scene) {
		for _, typ := range []string{"0", "1"} {
			for _, order := range coolOrders {
				for _, way := range givenBackWays {
					s.givenBack(typ, order.steps, order.veiled, way.kept, way.give)
				}
			}
		}
	}, from("3.15.5"), every)
}

// coolOrders are orders of the calls: cool for 4 s, for longer or for less, lift, and give back. A cool-down that lasts until a
// grant has expired has taken its place: then there is nothing to give back.
var coolOrders = []struct {
	steps  []string
	veiled bool
}{
	{[]string{"give", "cool"}, false},
	{[]string{"cool", "give"}, false},
	{[]string{"cool", "less", "give"}, false},
	{[]string{"cool", "more", "give"}, false},
	{[]string{"cool", "give", "more"}, false},
	{[]string{"cool", "give", "less"}, false},
	{[]string{"cool", "give", "lift"}, false},
	{[]string{"cool", "lift", "give"}, false},
	{[]string{"cool", "give", "lift", "cool"}, false},
	{[]string{"reopen", "give"}, false},
	{[]string{"cool", "give", "most"}, false},
	{[]string{"most", "give"}, true},
	{[]string{"cool", "most", "give"}, true},
}

// givenBackWays have their callers take five permits, of which they keep some.
var givenBackWays = []struct {
	kept int64
	give func(s *scene) (give func())
}{
	{0, func(s *scene) func() { g := s.grant(5); return func() { require.NoError(s, g.Cancel(s.Context())) } }},
	{2, func(s *scene) func() { g := s.grant(5); return func() { require.NoError(s, g.Settle(s.Context(), 2)) } }},
	{7, func(s *scene) func() { g := s.grant(5); return func() { require.NoError(s, g.Settle(s.Context(), 7)) } }},
	{0, func(s *scene) func() {
		a, b := s.grant(2), s.grant(3)
		return func() { require.NoError(s, b.Cancel(s.Context())); require.NoError(s, a.Cancel(s.Context())) }
	}},
	{1, func(s *scene) func() {
		a, b := s.grant(3), s.grant(2)
		return func() {
			require.NoError(s, a.Settle(s.Context(), 1))
			require.NoError(s, b.Settle(s.Context(), 0))
		}
	}},
}

func (s *scene) grant(permits int64) *ratelimiter.Grant {
	s.Helper()
	return redistest.Must(s.limiter.AcquireGrant(s.Context(), permits))(s)
}

func (s *scene) givenBack(typ string, order []string, veiled bool, kept int64, take func(s *scene) func()) {
	const rate, interval = 10, 10 * time.Second
	s = s.another(typ, rate, interval)
	began := time.Now()
	require.True(s, s.java(2))
	give := take(s)
	var until time.Time
	cool := func(d time.Duration, opts ...ratelimiter.CoolDownOption) {
		if end := s.coolDown(d, opts...); end.After(until) {
			until = end
		}
	}
	closed := func() {
		if kept <= 5 {
			s.closed(until)
			return
		}
		require.False(s, s.try(1).Granted)
		require.False(s, s.java(1))
		require.Contains(s, []string{"0", "-2"}, s.javaLeft(), "the limiter owes what was settled beyond what was acquired")
	}
	for _, step := range order {
		time.Sleep(100 * time.Millisecond)
		switch step {
		case "cool":
			cool(4 * time.Second)
		case "more":
			cool(6 * time.Second)
		case "less":
			cool(time.Second)
		case "most":
			cool(12 * time.Second)
		case "reopen":
			cool(4*time.Second, ratelimiter.Reopen(time.Second))
		case "lift":
			require.True(s, redistest.Must(s.limiter.Admin().LiftCoolDown(s.Context()))(s))
			until = time.Time{}
		case "give":
			give()
		}
		if !until.IsZero() {
			require.False(s, s.java(1), "%v, after %s: granted %v before the end", order, step, time.Until(until))
			closed()
		}
	}
	if !until.IsZero() {
		time.Sleep(time.Until(until) - time.Millisecond)
		closed()
		time.Sleep(time.Millisecond)
	}
	if order[0] == "reopen" {
		time.Sleep(time.Second)
	}
	free := rate - 2 - kept
	if veiled || until.After(began.Add(interval)) {
		free = rate
	}
	require.Equal(s, free, redistest.Must(s.limiter.AvailablePermits(s.Context()))(s), "%v", order)
	require.True(s, s.java(free), "%v: these are back at the end", order)
	require.False(s, s.java(1), "%v: and no others are", order)
	require.False(s, s.try(1).Granted)
	s.wholeAgain(rate, interval)
}

// TestCoolDownAndAReservation checks a caller that waits for more permits than are free, and leaves in a cool-down: what it has
// reserved is free for both sides at the end, and not before.
func TestCoolDownAndAReservation(t *testing.T) {
	t.Parallel()
	eachJar(t, func(s *scene) {
		for _, typ := range []string{"0", "1"} {
			const rate, interval = 10, 10 * time.Second
			s := s.another(typ, rate, interval)
			require.True(s, s.java(4))
			ctx, cancel := context.WithCancel(s.Context())
			left := waits(1, func() { require.Error(s, s.limiter.Acquire(ctx, 9)) })
			time.Sleep(2 * time.Second)
			until := s.coolDown(4 * time.Second)
			time.Sleep(time.Second)
			cancel()
			left()
			for ; time.Until(until) > time.Millisecond; time.Sleep(time.Millisecond) {
				require.False(s, s.java(1), "granted %v before the end", time.Until(until))
			}
			s.closed(until)
			time.Sleep(time.Millisecond)
			require.True(s, s.java(rate-4))
			require.False(s, s.java(1))
			time.Sleep(interval)
			s.wholeAgain(rate, interval)
		}
	}, from("3.15.5"), every)
}

// TestRateInACoolDown checks that a rate with another interval, or a higher one beside what a lower one had parked, opens a
// cool-down for neither side before its end.
func TestRateInACoolDown(t *testing.T) {
	t.Parallel()
	eachJar(t, func(s *scene) {
		for _, typ := range []ratelimiter.RateType{ratelimiter.Overall, ratelimiter.PerClient} {
			for _, to := range []ratelimiter.Rate{
				{Type: typ, Permits: 10, Interval: 2 * time.Second}, {Type: typ, Permits: 10, Interval: time.Minute},
				{Type: typ, Permits: 12, Interval: time.Second}, {Type: typ, Permits: 8, Interval: 5 * time.Second}, {Type: typ, Permits: 12, Interval: 10 * time.Second},
			} {
				s := s.another(map[ratelimiter.RateType]string{ratelimiter.Overall: "0", ratelimiter.PerClient: "1"}[typ], 10, 10*time.Second)
				require.True(s, s.java(3))
				s.grant(4)
				lower := ratelimiter.Rate{Type: typ, Permits: 5, Interval: 10 * time.Second}
				require.NoError(s, s.limiter.SetRate(s.Context(), lower, ratelimiter.KeepState()))
				time.Sleep(500 * time.Millisecond)
				until := s.coolDown(4 * time.Second)
				time.Sleep(time.Second)
				require.NoError(s, s.limiter.SetRate(s.Context(), to, ratelimiter.KeepState()))
				for ; time.Until(until) > 5*time.Millisecond; time.Sleep(5 * time.Millisecond) {
					require.False(s, s.java(1), "%v: granted %v before the end", to, time.Until(until))
				}
				s.closed(until)
				time.Sleep(time.Until(until))
				free := to.Permits
				if to.Interval > 4500*time.Millisecond {
					free -= 7 // of before, in use still
				}
				require.Equal(s, free, redistest.Must(s.limiter.AvailablePermits(s.Context()))(s), "%v", to)
				require.True(s, s.java(free), "%v", to)
				require.False(s, s.java(1), "%v", to)
				s.wholeAgain(to.Permits, to.Interval)
			}
		}
	}, from("3.15.5"), every)
}
