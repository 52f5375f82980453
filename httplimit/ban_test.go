// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// TestOutageDuringABan: a process whose requests Redis had waiting because of a ban does not send them when Redis dies
// under FailOpen, before the ban is over.
func TestOutageDuringABan(t *testing.T) {
	for _, c := range []struct {
		name     string
		interval time.Duration
		limits   int
		ban      time.Duration
	}{
		{"long", time.Second, 1, time.Minute}, {"long, several", time.Second, 2, time.Minute},
		{"short", 10 * time.Second, 1, 5 * time.Second}, {"short, several", 10 * time.Second, 2, 5 * time.Second},
	} {
		inWorldOf(t, c.name, func(t *testing.T, w *world) {
			away := w.away()
			open := ratelimiter.FailOpen()
			var limits []Limit
			for _, name := range []string{"a", "b"}[:c.limits] {
				l := w.limit(name, 99, c.interval)
				l.OutagePolicy = &open
				limits = append(limits, l)
			}
			p := &banner{w: w, bans: 1}
			get(t, w.transport(p, rules(limits...), WithDetectors(says("slow down", c.ban, ""))), "http://x/")
			tr := w.other().transport(p, rules(limits...))
			var all sync.WaitGroup
			send := func() {
				for range 5 {
					all.Go(func() { get(t, tr, "http://x/") })
				}
			}
			send()
			time.Sleep(2 * time.Second)
			away.Store(true)
			time.Sleep(time.Second)
			send()
			all.Wait()
			require.Zero(t, p.during(c.ban))
			require.Len(t, p.sent, 1+10)
		})
	}
}

// TestBanMetDuringAnOutage checks that Redis is told of a ban that a process met during an outage when the outage is over, though
// the process sends nothing more; that an earlier end does not replace a later one that somebody else set meanwhile; and that
// nothing is told when the ban is over or the Client is closed.
func TestBanMetDuringAnOutage(t *testing.T) {
	const ban = 20 * time.Second
	for _, c := range []struct {
		name  string
		back  time.Duration // when Redis is there again
		then  func(w *world)
		until time.Duration
	}{
		{"told", 5 * time.Second, nil, ban},
		{"a longer one is there", 5 * time.Second, func(w *world) {
			require.NoError(w.t, w.other().client.RateLimiter(w.key+"a").CoolDown(w.t.Context(), w.epoch.Add(time.Minute)))
		}, time.Minute},
		{"over", ban + time.Second, nil, 0},
		{"closed", 5 * time.Second, func(w *world) { require.NoError(w.t, w.client.Close()) }, 0},
	} {
		inWorldOf(t, c.name, func(t *testing.T, w *world) {
			away := w.away()
			open := ratelimiter.FailOpen()
			l := w.limit("a", 99, time.Second)
			l.OutagePolicy = &open
			require.NoError(t, w.client.RateLimiter(l.Name).SetRate(t.Context(), l.Rate))
			p := &banner{w: w, bans: 1}
			tr := w.transport(base(func(r *http.Request) (*http.Response, error) {
				away.Store(true)
				return p.RoundTrip(r)
			}), rules(l), WithDetectors(says("slow down", ban, "")))
			get(t, tr, "http://x/")
			met := p.sent[0]
			time.Sleep(c.back - w.elapsed())
			away.Store(false)
			if c.then != nil {
				c.then(w)
			}
			time.Sleep(4 * time.Second) // the outage ends within 1.6 s, and Redis is told within a second
			until := c.until
			if until == ban {
				until += met
			}
			require.InDelta(t, until, w.until("a"), float64(time.Second)) // a call that was tried again tells a later end
			require.Len(t, p.sent, 1)
			time.Sleep(time.Minute)
			tr.limiters.mu.Lock()
			state := tr.limiters.young[l.Name].limiterState
			tr.limiters.mu.Unlock()
			state.mu.Lock()
			defer state.mu.Unlock()
			require.False(t, state.telling, "nothing runs on")
		})
	}
}

// lose loses what Redis has of the world's limiters, as FLUSHALL does, but only what is the test's own.
func (w *world) lose() {
	w.t.Helper()
	for _, pattern := range []string{w.key + "*", "{" + w.key + "*"} {
		keys := redistest.Must(w.rdb.Keys(w.t.Context(), pattern).Result())(w.t)
		if len(keys) > 0 {
			require.NoError(w.t, w.rdb.Del(w.t.Context(), keys...).Err())
		}
	}
}

// A banner is a base that bans once, for d, and notes when requests arrive.
type banner struct {
	w    *world
	mu   sync.Mutex
	bans int
	sent []time.Duration
}

func (b *banner) RoundTrip(r *http.Request) (*http.Response, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sent = append(b.sent, b.w.elapsed())
	if b.bans > 0 {
		b.bans--
		return respond(200, "text/plain", "slow down"), nil
	}
	return ok(r)
}

// during returns how many requests arrived in the ban, which began with the first of them.
func (b *banner) during(ban time.Duration) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, at := range b.sent[1:] {
		if at < b.sent[0]+ban {
			n++
		}
	}
	return n
}

// TestBanThatRedisForgot: what a process knows of a ban it keeps until its end, whatever Redis loses, and tells
// Redis again; one that somebody lifted it forgets.
func TestBanThatRedisForgot(t *testing.T) {
	const ban = 3 * time.Second
	for _, c := range []struct {
		name string
		then func(t *testing.T, w *world) // a second after the ban began
		sent int                          // how many of 60 requests are sent in the ban
	}{
		{"kept", func(*testing.T, *world) {}, 0},
		{"flushed", func(t *testing.T, w *world) { w.lose() }, 0},
		{"flushed, and made again by another process", func(t *testing.T, w *world) {
			w.lose()
			redistest.Must(w.client.RateLimiter(w.key+"a").TrySetRate(t.Context(), w.limit("a", 99, time.Second).Rate))(t)
		}, 0},
		{"a failover that lost the cool-down and not the limiter", func(t *testing.T, w *world) {
			w.lose()
			l := w.client.RateLimiter(w.key + "a")
			redistest.Must(l.TrySetRate(t.Context(), w.limit("a", 99, time.Second).Rate))(t)
			// The trace of a ban that is over is there still.
			require.NoError(t, w.client.RateLimiter(redisson.Suffixed(w.key+"a", "told")).SetRate(t.Context(), ratelimiter.Rate{
				Permits: time.Now().Unix() - 1, Interval: time.Millisecond, KeepAlive: time.Minute}))
		}, 0},
		{"lifted", func(t *testing.T, w *world) {
			require.True(t, redistest.Must(w.other().client.RateLimiter(w.key+"a").Admin().LiftCoolDown(t.Context()))(t))
		}, 60},
		{"deleted", func(t *testing.T, w *world) {
			redistest.Must(w.other().client.RateLimiter(w.key + "a").Admin().Delete(t.Context()))(t)
		}, 60},
	} {
		for _, how := range []string{"met", "waited"} {
			inWorldOf(t, how+", "+c.name, func(t *testing.T, w *world) {
				p := &banner{w: w, bans: 1}
				opts := []Option{rules(w.limit("a", 99, time.Second)), WithDetectors(says("slow down", ban, ""))}
				first := w.transport(p, opts...)
				get(t, first, "http://x/")
				tr := first
				if how == "waited" { // the process did not meet the ban itself: a request of its had to wait
					tr = w.other().transport(p, opts...)
					ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
					defer cancel()
					_, err := tr.RoundTrip(request(t, "GET", "http://x/", nil).WithContext(ctx))
					require.ErrorIs(t, err, ErrRejected)
				}
				time.Sleep(time.Second - w.elapsed())
				c.then(t, w)
				var all sync.WaitGroup
				for range 60 {
					all.Go(func() { get(t, tr, "http://x/") })
				}
				time.Sleep(500 * time.Millisecond)
				if c.sent == 0 {
					require.Equal(t, ban, w.until("a"), "Redis knows of it again")
				}
				all.Wait()
				require.Equal(t, c.sent, p.during(ban))
				if c.sent == 0 {
					require.Equal(t, ban, w.elapsed(), "and no longer than that")
				}
			})
		}
	}
}

// TestBanOfALostLimiter checks that Redis is told of a ban whose limiters it has lost while the request was on its way, all of them or one:
// they have their rates again, and another process waits for the end.
func TestBanOfALostLimiter(t *testing.T) {
	const ban = 3 * time.Second
	for name, lose := range map[string]func(w *world){
		"all": (*world).lose,
		"one": func(w *world) {
			redistest.Must(w.other().client.RateLimiter(w.key + "b").Admin().Delete(w.t.Context()))(w.t)
		},
	} {
		inWorldOf(t, name, func(t *testing.T, w *world) {
			p := &banner{w: w, bans: 1}
			limits := rules(w.limit("a", 99, time.Second), w.limit("b", 99, time.Second))
			get(t, w.transport(base(func(r *http.Request) (*http.Response, error) {
				lose(w)
				return p.RoundTrip(r)
			}), limits, WithDetectors(says("slow down", ban, ""))), "http://x/")
			for _, limiter := range []string{"a", "b"} {
				require.Equal(t, ban, w.until(limiter), limiter)
				rate := redistest.Must(w.client.RateLimiter(w.key + limiter).Rate(t.Context()))(t)
				require.Equal(t, w.limit(limiter, 99, time.Second).Rate, rate)
			}
			get(t, w.other().transport(p, limits), "http://x/")
			require.Zero(t, p.during(ban))
			require.Equal(t, ban, w.elapsed())
		})
	}
}

// TestBanOutlivesOtherNames: a ban is kept while the process uses many other limiters, though Redis could not be told. Memory is bounded: of too many bans the one that ends first goes.
func TestBanOutlivesOtherNames(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		away := w.away()
		p := &banner{w: w, bans: 1}
		tr := w.transport(base(func(r *http.Request) (*http.Response, error) {
			resp, err := p.RoundTrip(r)
			away.Store(true) // Redis cannot be told
			return resp, err
		}), rules(w.limit("a", 99, time.Second)), WithDetectors(says("slow down", time.Minute, "")), WithMaxWait(0))
		get(t, tr, "http://x/")
		away.Store(false)
		for i := range 3 * maxLimiters {
			tr.limiters.get(w.key+time.Duration(i).String(), &Limit{}, tr.set.Load().id)
		}
		require.Equal(t, ReasonCoolDown, rejected(t, tr, request(t, "GET", "http://x/", nil)).Reason)
		require.Len(t, p.sent, 1)

		s := tr.limiters
		const all = maxKept + 100
		for i := range all {
			l := s.get(w.key+"x"+time.Duration(i).String(), &Limit{}, tr.set.Load().id)
			l.ban.until = time.Now().Add(time.Hour + time.Duration(i)*time.Second)
			s.keep(l)
		}
		require.Len(t, s.kept, maxKept)
		require.NotContains(t, s.kept, w.key+"a", "it ends first")
		require.Contains(t, s.kept, w.key+"x"+time.Duration(all-1).String())
		time.Sleep(2 * time.Hour)
		s.keep(s.get(w.key+"last", &Limit{}, tr.set.Load().id))
		require.Less(t, len(s.kept), maxKept, "those that are over go")
	})
}

// TestNewNamesWithoutRedis: while Redis is known to be away a limiter that this process has not used before costs a
// request no time: its outage policy, and WithMaxWait, decide as for any other.
func TestNewNamesWithoutRedis(t *testing.T) {
	for _, policy := range []ratelimiter.OutagePolicy{ratelimiter.FailOpen(), ratelimiter.FailClosed()} {
		inWorld(t, func(t *testing.T, w *world) {
			w.away().Store(true)
			tr := w.transport(base(ok), WithMaxWait(0), rules(Limit{Name: w.key + "{path}", OutagePolicy: &policy,
				Rate: ratelimiter.Rate{Permits: 9, Interval: time.Second}}))
			_, _ = tr.RoundTrip(request(t, "GET", "http://x/known", nil)) //nolint:bodyclose // the one that finds out
			begin := time.Now()
			for i := range 100 {
				resp, err := tr.RoundTrip(request(t, "GET", "http://x/"+time.Duration(i).String(), nil))
				if policy == ratelimiter.FailOpen() {
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
				} else {
					require.ErrorIs(t, err, ratelimiter.ErrUnavailable)
				}
			}
			require.Zero(t, time.Since(begin))
		})
	}
}
