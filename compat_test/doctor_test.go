// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/ops/doctor"
	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/grantlog"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/test/redistest/worker"
	"github.com/goredisson/ratelimiter/internal/wire"
)

// What the doctor says of limiters that only Java uses: nothing while they are healthy, and otherwise what Java does.

// layoutOf is the layout that a version writes.
func layoutOf(v version) wire.Layout {
	switch {
	case v.since("3.21.0"):
		return wire.LayoutBc0ILong
	case v.since("3.17.0"):
		return wire.LayoutBc0IShort
	case v.since("3.16.4"):
		return wire.LayoutLc0I
	}
	return wire.LayoutFI
}

// findings returns the checks that find something above info, and what the check called writers says.
func (t trouble) findings() (checks []string, writers string) {
	t.Helper()
	r := redistest.Must((&doctor.Doctor{Survey: survey.New(t.rdb)}).Limiter(t.Context(), t.name))(t)
	require.Empty(t, r.Skipped)
	for _, f := range r.Findings {
		if f.Severity > doctor.Info {
			checks = append(checks, f.Check)
		}
		if f.Check == "writers" {
			writers = f.Found
		}
	}
	return checks, writers
}

func TestDoctorOfJavasLimiters(t *testing.T) {
	t.Parallel()
	versionsAbreast(t, func(tb testing.TB, v version) {
		l := newTrouble(tb, v, 5, time.Hour)
		for range 3 {
			require.True(l, l.javaTries(1))
		}
		checks, writers := l.findings()
		require.Empty(l, checks)
		require.Contains(l, writers, "3 by "+layoutOf(v).Writers())
		if v.since("3.38.0") {
			require.Contains(l, writers, "the hash by Redisson 3.38.0 or later")
		} else {
			require.Contains(l, writers, "the hash by Redisson before 3.38.0")
		}
		st := redistest.Must(survey.New(l.rdb).Read(l.Context(), l.name, ""))(l)
		for n := int64(1); n <= 5; n++ {
			require.Equal(l, n <= 2, redistest.Must(st.Peek(n))(l).Wait == 0, "%d permits", n)
		}
		found := false
		for lim, err := range survey.New(l.rdb).Find(l.Context(), survey.Query{Match: l.name}) {
			require.NoError(l, err)
			require.EqualValues(l, 2, lim.Available())
			found = true
		}
		require.True(l, found)

		if v.since("3.38.0") {
			require.NoError(l, l.rdb.HSet(l.Context(), l.name, "keepAliveTime", "abc").Err())
			_, err := l.java.call("tryAcquire", l.name, 1)
			require.ErrorContains(l, err, "attempt to compare number with nil")
			require.EqualValues(l, 1, redistest.Must(l.rdb.Get(l.Context(), l.value()).Int64())(l), "the permit is taken")
			checks, _ = l.findings()
			require.Equal(l, []string{"malformed"}, checks)
			require.NoError(l, l.rdb.HSet(l.Context(), l.name, "keepAliveTime", 0).Err()) // as is advised
			require.True(l, l.javaTries(1))
			require.False(l, l.javaTries(1))
			checks, _ = l.findings()
			require.Empty(l, checks)
		}

		if v.since("3.52.0") {
			l.java.must(l, "release", l.name, 2)
			checks, _ = l.findings()
			require.Equal(l, []string{"surplus"}, checks)
			require.NoError(l, l.limiter.Admin().Heal(l.Context()))
			checks, _ = l.findings()
			require.Empty(l, checks)
			require.Zero(l, redistest.Must(l.rdb.Get(l.Context(), l.value()).Int64())(l), "what was released and not acquired is taken back")
		}
	})
}

// TestDoctorOfVersionsThatDoNotMix checks that two versions on one limiter are found before either of them fails.
func TestDoctorOfVersionsThatDoNotMix(t *testing.T) {
	t.Parallel()
	for other, sick := range map[string]bool{"3.15.5": true, "3.16.8": true, "3.20.1": false, "3.34.1": false} {
		newer := newTrouble(t, newestListed(), 5, time.Hour)
		older := newer
		older.version, older.java = listed(t, other), fleet.peer(t, listed(t, other))
		require.True(t, newer.javaTries(1))
		require.True(t, older.javaTries(1))
		checks, _ := newer.findings()
		require.Equal(t, sick, len(checks) == 1 && checks[0] == "layouts", "4.7.0 and %s: %v", other, checks)
		require.Equal(t, !sick, len(checks) == 0, "4.7.0 and %s: %v", other, checks)
	}
}

// TestDoctorOfMixedLayouts follows what the doctor advises where two versions do not mix: an interval after the last call of the other
// one, and whichever of the two stays, the limiter has all of its permits once it is healed. Until then calls fail, or take random
// bytes for permits, as in TestStrangers.
func TestDoctorOfMixedLayouts(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{{"3.15.5", "4.7.0"}, {"3.16.8", "4.7.0"}, {"3.15.5", "3.16.8"}, {"3.15.5", "3.34.1"}, {"3.16.8", "3.20.1"}} {
		for _, stays := range pair {
			t.Run(strings.Join(pair[:], " and ")+", "+stays+" stays", func(t *testing.T) {
				t.Parallel()
				l := newTrouble(t, listed(t, stays), 5, time.Second)
				for _, v := range pair {
					require.True(t, fleet.peer(t, listed(t, v)).truth(t, "tryAcquire", l.name, 1))
				}
				checks, _ := l.findings()
				require.Equal(t, []string{"layouts"}, checks)
				time.Sleep(time.Second)
				r := redistest.Must((&doctor.Doctor{Survey: survey.New(l.rdb)}).Limiter(l.Context(), l.name))(l)
				require.Len(t, r.Findings[0].Alternatives, 1)
				require.Len(t, r.Findings[0].Alternatives[0].Commands, 1)
				require.Regexp(t, "^rrl heal .* --write$", string(r.Findings[0].Alternatives[0].Commands[0]))
				require.NoError(t, l.limiter.Admin().Heal(t.Context()))
				require.True(t, l.javaTries(5))
				require.False(t, l.javaTries(1))
			})
		}
	}
}

// TestHealOfATripwire has callers of Go wait for what 3.16.8 limits, and leave behind a tripwire, at which all its calls fail until the
// limiter is healed.
func TestHealOfATripwire(t *testing.T) {
	t.Parallel()
	l := newTrouble(t, listed(t, "3.16.8"), 5, time.Second)
	ours := clienttest.New(t, redistest.Client(t)).RateLimiter(l.name)
	ctx, leave := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for range 6 {
		waiting.Go(func() {
			for ctx.Err() == nil {
				_ = ours.Acquire(ctx, 1)
			}
		})
	}
	require.Eventually(t, func() bool { return l.rdb.ZCount(t.Context(), l.permits(), "-inf", "0").Val() > 0 }, callLimit, time.Millisecond)
	leave()
	waiting.Wait()
	time.Sleep(1500 * time.Millisecond)
	_, err := l.java.call("tryAcquire", l.name, 1)
	require.ErrorContains(t, err, tooShort)
	require.NoError(t, l.limiter.Admin().Heal(t.Context()))
	require.True(t, l.javaTries(5))
	require.False(t, l.javaTries(1))
}

// TestDoctorOfAMixedRedis has three Redisson versions that read each other's members and two Go processes use the same
// limiters of one server. The doctor has nothing to complain of, meanwhile and afterwards: what it found would be noise to
// somebody on call.
func TestDoctorOfAMixedRedis(t *testing.T) {
	t.Parallel()
	during := time.Duration(redistest.Cases(10, 60)) * time.Second
	server := redistest.Start(t, "--appendonly", "yes")
	rdb := server.Client(t)
	client := clienttest.New(t, rdb)
	defer client.Close()
	limiters := map[string]ratelimiter.Rate{
		"orders:create": {Permits: 50, Interval: time.Second},
		"mail":          {Permits: 40, Interval: 5 * time.Second, KeepAlive: time.Minute},
		"export":        {Permits: 2000, Interval: 10 * time.Second},
		"users":         {Type: ratelimiter.PerClient, Permits: 10, Interval: time.Second},
		"seldom":        {Permits: 5, Interval: time.Hour},
	}
	for name, rate := range limiters {
		require.NoError(t, client.RateLimiter(name).SetRate(t.Context(), rate))
	}
	var java []*pending
	for _, version := range []string{"3.34.1", "3.52.0", "4.7.0"} {
		p := startPeer(t, listed(t, version), server.Addr())
		for name := range limiters {
			java = append(java, p.begin("hammer", name, 2, during, "1,1,3", "wait:200", 5))
		}
	}
	load := &worker.Load{Addr: server.Addr(), Limiters: slices.Collect(maps.Keys(limiters)), Mix: []int64{1, 1, 3},
		Modes: []string{"try", "wait:200ms"}, Pause: 5 * time.Millisecond, During: during}
	workers, begun := worker.Start(t, load, load), time.Now()

	healthy := func(when string) {
		t.Helper()
		d := &doctor.Doctor{Survey: survey.New(rdb)}
		r := redistest.Must(d.All(t.Context(), survey.Query{}, 100, nil))(t)
		require.Equal(t, len(limiters), r.Limiters)
		for name := range limiters {
			r.Add(redistest.Must(d.Limiter(t.Context(), name))(t))
		}
		for _, f := range r.Findings {
			require.Equal(t, doctor.Info, f.Severity, "%s: %+v", when, f)
		}
	}
	for time.Since(begun) < during {
		time.Sleep(3 * time.Second)
		healthy("in use")
	}
	for _, call := range java {
		redistest.Must(call.wait(during + callLimit))(t)
	}
	for _, w := range workers {
		of := map[string]grantlog.Told{}
		require.NoError(t, w.Result(&of))
		for name, told := range of {
			require.Empty(t, told.Errors, name)
			require.NotZero(t, len(told.Grants)+told.Rejected, name)
		}
	}
	healthy("afterwards")
}

// TestDoctorOfATTL follows what the doctor advises of a limiter of Java's that expires while its permits are in use: whatever version it
// is, no key of it expires any more, whatever Java calls, and no permit in use is free.
func TestDoctorOfATTL(t *testing.T) {
	t.Parallel()
	versionsAbreast(t, func(tb testing.TB, v version) {
		for what, harm := range map[string]func(l trouble){
			"Java alone": func(trouble) {},
			"Go has added a keep-alive": func(l trouble) {
				require.NoError(l, l.rdb.HSet(l.Context(), l.name, "keepAliveTime", 1000).Err())
			},
		} {
			l := newTrouble(tb, v, 5, time.Hour)
			require.True(l, l.javaTries(3))
			harm(l)
			keys := []string{l.name, l.value(), l.permits()}
			for _, key := range keys {
				require.NoError(l, l.rdb.PExpire(l.Context(), key, 10*time.Minute).Err())
			}
			r := redistest.Must((&doctor.Doctor{Survey: survey.New(l.rdb)}).Limiter(l.Context(), l.name))(l)
			followed := 0
			for _, f := range r.Findings {
				if f.Check != "ttl" {
					continue
				}
				require.NotContains(l, f.Fix, "--keep-alive 1h", what)
				require.Empty(l, f.Commands, what)
				require.Len(l, f.Alternatives, 1, what)
				for _, c := range f.Alternatives[0].Commands {
					if strings.HasPrefix(string(c), "rrl ") {
						require.Contains(l, c, "--keep-alive 0s --write")
						rate := redistest.Must(l.limiter.Rate(l.Context()))(l)
						rate.KeepAlive = 0
						require.NoError(l, l.limiter.SetRate(l.Context(), rate, ratelimiter.KeepState()))
					} else {
						require.Regexp(l, " persist '?[^ ]+$", string(c))
						words := strings.Split(string(c), " ")
						require.NoError(l, l.rdb.Do(l.Context(), "persist", strings.Trim(words[len(words)-1], "'")).Err())
					}
					followed++
				}
			}
			require.GreaterOrEqual(l, followed, 3, what)
			stays := func() {
				for _, key := range keys {
					require.EqualValues(l, noTTL, l.rdb.PTTL(l.Context(), key).Val(), "%s: %s", what, key)
				}
			}
			stays()
			require.True(l, l.javaTries(2), what)
			require.False(l, l.javaTries(1), "%s: permits in use were freed", what)
			stays()
		}
	})
}
