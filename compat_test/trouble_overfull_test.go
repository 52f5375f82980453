// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// requireFull requests n permits an interval, evenly and for five intervals. It checks that the fullest window of those that
// began at least an interval and two calls after the first has the rate, that all but one of it is used, and that value and
// the permits in use add up to it.
func (t trouble) requireFull(n, rate int, interval time.Duration) {
	t.Helper()
	begin, every := time.Now(), interval/time.Duration(n)
	var grants []time.Time
	for i := range 5 * n {
		time.Sleep(time.Until(begin.Add(time.Duration(i) * every)))
		if r := t.try(1); r.Granted && r.Time.After(begin.Add(interval+2*every)) {
			grants = append(grants, r.Time)
		}
	}
	most := len(redistest.Fullest(grants, interval, func(at time.Time) (time.Time, time.Time, int64) { return at, at, 1 }))
	require.LessOrEqual(t, most, rate)
	require.GreaterOrEqual(t, most, rate-1)
	t.requireWhole(int64(rate))
}

// spread takes n permits through Java, one by one and evenly over the interval.
func (t trouble) spread(n int, interval time.Duration) {
	t.Helper()
	begin := time.Now()
	for i := range n {
		time.Sleep(time.Until(begin.Add(time.Duration(i) * interval / time.Duration(n))))
		require.True(t, t.javaTries(1))
	}
}

// requireWhole checks that value and the permits in use add up to the rate.
func (t trouble) requireWhole(rate int64) {
	t.Helper()
	require.Equal(t, rate, redistest.Must(t.rdb.Get(t.Context(), t.value()).Int64())(t)+used(t, t.rdb, t.permits()))
}

// TestTroubleReleaseByJava checks that our calls put right what Redisson's release leaves: it keeps the grants, so
// that value and the members are more than the rate, and a caller of ours that is never rejected would get as many
// more in every window. The caller loses nothing of what was released.
func TestTroubleReleaseByJava(t *testing.T) {
	t.Parallel()
	versionsSteadily(t, func(tb testing.TB, v version) {
		const rate, interval = 10, time.Second
		l := newTrouble(tb, v).another(rate, interval)
		l.spread(rate, interval)
		l.java.must(l, "release", l.name, 5)
		require.EqualValues(l, 5, l.java.number(l, "availablePermits", l.name))
		for range 5 {
			require.True(l, l.try(1).Granted, "what was released is free")
		}
		l.requireFull(15, rate, interval)
	}, from("3.52.0"))
}

// TestTroubleUpdateRateByJava checks the same after an updateRate, which keeps all earlier grants even if the new
// rate is lower.
func TestTroubleUpdateRateByJava(t *testing.T) {
	t.Parallel()
	for name, seen := range map[string]bool{"seen": true, "not seen": false} { // by us, before the update
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			versionsSteadily(t, func(tb testing.TB, v version) {
				const rate, interval = 5, time.Second
				l := newTrouble(tb, v).another(8, interval)
				if seen {
					require.True(l, l.try(1).Granted)
					time.Sleep(interval)
				}
				l.spread(8, interval)
				require.True(l, l.java.truth(l, "updateRate", l.name, overall, rate, interval, "-", true))
				require.EqualValues(l, 8, used(l, l.rdb, l.permits()))
				l.requireFull(8, rate, interval)
			}, from("4.4.0"))
		})
	}
}

// TestTroubleLowerRateOfAllClients checks that a PER_CLIENT rate that a client of ours lowers holds for a client of
// Redisson's, which would take what it had left of the higher rate. So does a rate that Redisson lowers, once the
// permits of that client are healed, as the doctor advises.
func TestTroubleLowerRateOfAllClients(t *testing.T) {
	t.Parallel()
	versionsSteadily(t, func(tb testing.TB, v version) {
		const interval = time.Hour
		lower := ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 10, Interval: interval}
		for how, f := range map[string]func(t trouble, ours *ratelimiter.RateLimiter) error{
			"SetRate": func(t trouble, ours *ratelimiter.RateLimiter) error { return ours.SetRate(t.Context(), lower) },
			"SetRate, state kept": func(t trouble, ours *ratelimiter.RateLimiter) error {
				return ours.SetRate(t.Context(), lower, ratelimiter.KeepState())
			},
			"UpdateRate": func(t trouble, ours *ratelimiter.RateLimiter) error {
				_, err := ours.UpdateRate(t.Context(), lower, ratelimiter.KeepState())
				return err
			},
			"healed": func(t trouble, _ *ratelimiter.RateLimiter) error {
				if err := t.rdb.HSet(t.Context(), t.name, "rate", 10).Err(); err != nil {
					return err
				}
				checks, _ := t.findings()
				require.Equal(t, []string{"surplus"}, checks)
				return t.limiter.Heal(t.Context())
			},
		} {
			l := newTrouble(tb, v)
			l.name = redistest.Key(tb)
			l.limiter = newGoSide(tb, l.rdb, v, l.java.id).client.RateLimiter(l.name)
			require.True(l, l.java.truth(l, "trySetRate", l.name, perClient, 20, interval))
			require.True(l, l.javaTries(5))
			client := clienttest.New(tb, l.rdb)
			defer client.Close()
			require.NoError(l, f(l, client.RateLimiter(l.name)))
			granted := 5
			for range 20 {
				if l.javaTries(1) {
					granted++
				}
			}
			require.Equal(l, 10, granted, how)
		}
	})
}
