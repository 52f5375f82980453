// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"slices"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/test/grantlog"
	"github.com/goredisson/ratelimiter/internal/test/proptest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A model is the oracle: a sliding log in memory, written from docs/design/protocol.md alone. For every state that
// only our own operations made, the limiter must return exactly what the model returns.
type model struct {
	rate     int64
	interval time.Duration
	grants   []granted // oldest first
}

type granted struct {
	at      time.Duration
	permits int64
}

// worst returns the largest number of permits in any half-open window [t, t+interval).
func (m *model) worst() int64 {
	var all grantlog.Grants
	for _, g := range m.grants {
		all = append(all, grantlog.At(time.Time{}.Add(g.at), g.permits))
	}
	return all.Most(m.interval)
}

func (m *model) used(now time.Duration) (n int64) {
	for _, g := range m.grants {
		if g.at > now-m.interval {
			n += g.permits
		}
	}
	return n
}

func (m *model) available(now time.Duration) int64 { return max(0, m.rate-m.used(now)) }

func (m *model) acquire(now time.Duration, permits int64) bool {
	if m.used(now)+permits > m.rate {
		return false
	}
	m.grants = append(m.grants, granted{now, permits})
	return true
}

// wait returns how long it takes from now until that many permits are free.
func (m *model) wait(now time.Duration, permits int64) time.Duration {
	short := m.used(now) + permits - m.rate
	for _, g := range m.grants {
		if g.at <= now-m.interval {
			continue
		}
		if short -= g.permits; short <= 0 {
			return g.at + m.interval - now
		}
	}
	panic("more permits than the rate")
}

func (m *model) release(now time.Duration, permits int64) {
	for i := len(m.grants) - 1; i >= 0 && permits > 0; i-- {
		if m.grants[i].at <= now-m.interval {
			break
		}
		n := min(permits, m.grants[i].permits)
		m.grants[i].permits -= n
		permits -= n
	}
}

// keep sets a new rate and keeps the permits in use, which may be more than it has.
func (m *model) keep(now time.Duration, rate int64, interval time.Duration) {
	m.rate, m.interval = rate, interval
	m.grants = slices.DeleteFunc(m.grants, func(g granted) bool { return g.at <= now-interval })
}

// windowGrants returns how many grants the window test checks, 200,000 in a long run.
var windowGrants = int64(redistest.Cases(25_000, 200_000))

// TestWindowSafety makes random operations over virtual time. No half-open window may hold more permits than
// the rate, every result must be that of the model, and after one idle interval all permits must be free again.
func TestWindowSafety(t *testing.T) {
	redistest.NoRace(t, "one caller at a time")
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		total, round := int64(0), 0
		proptest.Until(t, func() bool { return total >= windowGrants }, func(rt *rapid.T) {
			round++
			n := windowRound(rt, w, round)
			total += n
		})
		t.Logf("%d grants in %d rounds", total, round)
	})
}

func windowRound(rt *rapid.T, w *world, round int) (grants int64) {
	interval := rapid.SampledFrom([]time.Duration{time.Millisecond, 7 * time.Millisecond, 250 * time.Millisecond,
		time.Second, time.Hour}).Draw(rt, "interval")
	rate := rapid.SampledFrom([]int64{1, 3, 20, 100, 1000, 5000}).Draw(rt, "rate")
	m := &model{rate: rate, interval: interval}
	l := w.client.RateLimiter(w.l.Name() + "#" + rapid.StringMatching(`[a-z]{8}`).Draw(rt, "name"))
	require.NoError(rt, l.SetRate(w.ctx, Rate{Permits: rate, Interval: interval}))
	steps := rapid.IntRange(20, 80).Draw(rt, "steps")
	now := w.elapsed
	for range steps {
		switch op := rapid.IntRange(0, 99).Draw(rt, "op"); {
		case op < 45: // several requests in one call, decided as if one after another
			n := rapid.SampledFrom([]int64{1, 1, min(2, m.rate), max(1, m.rate/7)}).Draw(rt, "permits")
			count := rapid.Int64Range(1, 300).Draw(rt, "requests")
			if op < 5 {
				n, count = rapid.Int64Range(1, m.rate).Draw(rt, "permits"), 1
			}
			got, last, err := together(w.ctx, l, n, count)
			require.NoError(rt, err)
			var want int64
			for want < count && m.acquire(now(), n) {
				want++
			}
			require.Equal(rt, want, got, "granted of %d × %d at %v", count, n, now())
			require.Equal(rt, m.available(now()), last.Available)
			if got < count {
				require.Equal(rt, m.wait(now(), n), last.Wait)
			} else {
				require.Zero(rt, last.Wait)
			}
			grants += got
		case op < 48:
			got := must(l.AvailablePermits(w.ctx))(rt)
			require.Equal(rt, m.available(now()), got)
		case op < 50:
			n := rapid.Int64Range(1, m.rate).Draw(rt, "peek")
			got := must(l.Peek(w.ctx, n))(rt)
			require.Equal(rt, m.available(now()), got.Available)
			require.Equal(rt, m.available(now()) >= n, got.Granted)
			if got.Granted {
				require.Zero(rt, got.Wait)
			} else {
				require.Equal(rt, m.wait(now(), n), got.Wait, "until %d at %v", n, now())
			}
		case op < 55:
			n := rapid.Int64Range(1, m.rate).Draw(rt, "release")
			require.NoError(rt, l.Release(w.ctx, n))
			m.release(now(), n)
		case op < 57: // a lower rate, or a higher one that finds what is in use
			n := rapid.Int64Range(1, rate).Draw(rt, "new rate")
			require.NoError(rt, l.SetRate(w.ctx, Rate{Permits: n, Interval: m.interval}, KeepState()))
			m.keep(now(), n, m.interval)
		case op < 58:
			require.NoError(rt, l.SetRate(w.ctx, Rate{Permits: m.rate, Interval: m.interval}))
			m.grants = nil
		default:
			d := rapid.SampledFrom([]time.Duration{time.Millisecond, m.interval / 20, m.interval / 3, m.interval - time.Millisecond,
				m.interval, m.interval + time.Millisecond, 5 * m.interval}).Draw(rt, "sleep")
			time.Sleep(d.Truncate(time.Millisecond))
		}
	}
	require.LessOrEqual(rt, m.worst(), rate, "the highest there was")
	time.Sleep(m.interval)
	require.Equal(rt, m.rate, must(l.AvailablePermits(w.ctx))(rt), "after one idle interval")
	require.True(rt, must(l.TryAcquire(w.ctx, m.rate, 0))(rt), "the whole rate after one idle interval")
	must(l.Admin().Delete(w.ctx))(rt)
	return grants
}

// TestDamageHeals puts the keys into any state. No call may fail, no wait may be longer than the interval, and
// one interval after the first rejection all permits must be free again.
func TestDamageHeals(t *testing.T) {
	const rate, interval = 40, time.Second
	inWorld(t, overall(rate, interval), func(t *testing.T, w *world) {
		proptest.Check(t, func(rt *rapid.T) {
			require.NoError(rt, w.l.SetRate(w.ctx, overall(rate, interval)))
			w.epoch = time.Now()
			for range rapid.IntRange(1, 6).Draw(rt, "damages") {
				switch rapid.IntRange(0, 6).Draw(rt, "damage") {
				case 0:
					w.rdb.Del(w.ctx, w.valueKey())
				case 1:
					w.rdb.Del(w.ctx, w.permitsKey())
				case 2:
					w.setValue(rapid.SampledFrom([]any{-1 << 40, -1, 0, 1, rate, rate + 1, 1 << 40, "", "x", "1.5", "-0", "007", "9223372036854775807", "9223372036854775808", "-9007199254740992"}).Draw(rt, "value"))
				case 3:
					n := rapid.Uint32Range(0, 2*rate).Draw(rt, "permits")
					for _, m := range redistest.JavaMembers(n) {
						w.put(time.Duration(rapid.IntRange(-3000, 0).Draw(rt, "age"))*time.Millisecond+w.elapsed(), m)
					}
				case 4:
					w.put(w.elapsed()+time.Duration(rapid.IntRange(1, 90_000).Draw(rt, "ahead"))*time.Millisecond,
						grant(rapid.Uint32Range(1, rate).Draw(rt, "permits")))
				case 5:
					w.put(w.elapsed(), []byte(rapid.StringN(0, 30, 30).Draw(rt, "junk")))
				case 6:
					must(w.l.Allow(w.ctx, rapid.Int64Range(1, rate).Draw(rt, "acquire")))(rt)
				}
			}
			avail := must(w.l.AvailablePermits(w.ctx))(rt)
			require.True(rt, 0 <= avail && avail <= rate, "available %d", avail)
			r := must(w.l.Allow(w.ctx, rate))(rt)
			for tries := 0; !r.Granted || tries == 0; tries++ {
				// Rejected at most twice, because a value that was too high hides from the first call what lies
				// ahead of the clock.
				require.Less(rt, tries, 3, "%+v", r)
				require.LessOrEqual(rt, r.Wait, interval)
				time.Sleep(interval)
				r = must(w.l.Allow(w.ctx, rate))(rt)
			}
			require.Zero(rt, r.Available)
		})
	})
}
