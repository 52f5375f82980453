// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// busy is a platform that throttles every request to the hosts, with a Retry-After or without.
func busy(after string, hosts ...string) base {
	return func(r *http.Request) (*http.Response, error) {
		for _, host := range hosts {
			if r.URL.Hostname() == host {
				resp := respond(429, "text/plain", "")
				if after != "" {
					resp.Header.Set("Retry-After", after)
				}
				return resp, nil
			}
		}
		return ok(r)
	}
}

// A penalty of one host is for the limiter as a whole only where the rules say that its word counts so far.
func TestWhoseLimiterCoolsDown(t *testing.T) {
	ab := []string{"a.example.com", "b.example.com"}
	for _, c := range []struct {
		name  string
		rules func(l Limit) []Rule
		whole bool
	}{
		{"one host", func(l Limit) []Rule { return []Rule{{Match: Match{Hosts: ab[:1]}, Limits: []Limit{l}}} }, true},
		{"one host by its pattern", func(l Limit) []Rule {
			return []Rule{{Match: Match{Patterns: []string{"GET A.example.com/x", "a.example.com/"}}, Limits: []Limit{l}}}
		}, true},
		{"one host by its pattern among several", func(l Limit) []Rule {
			return []Rule{{Match: Match{Hosts: ab, Patterns: []string{"a.example.com/"}}, Limits: []Limit{l}}}
		}, true},
		{"one host in two rules", func(l Limit) []Rule {
			return []Rule{{Match: Match{Hosts: ab[:1], Methods: []string{"GET"}}, Limits: []Limit{l}}, {Match: Match{Hosts: []string{"A.EXAMPLE.com"}, Methods: []string{"POST"}}, Limits: []Limit{l}}}
		}, true},
		{"a limiter for each host", func(l Limit) []Rule { l.Name += "{host}"; return []Rule{{Limits: []Limit{l}}} }, true},
		{"a limiter for each host, hashed", func(l Limit) []Rule { l.Name += "{host|hash}"; return []Rule{{Limits: []Limit{l}}} }, true},
		{"one platform", func(l Limit) []Rule { return []Rule{{Match: Match{Hosts: ab}, OnePlatform: true, Limits: []Limit{l}}} }, true},
		{"one platform of a wildcard", func(l Limit) []Rule {
			return []Rule{{Match: Match{Hosts: []string{"*.example.com"}}, OnePlatform: true, Limits: []Limit{l}}}
		}, true},
		{"a platform's limiter that others spend too", func(l Limit) []Rule {
			return []Rule{{Limits: []Limit{l}}, {Match: Match{Hosts: ab}, OnePlatform: true, Limits: []Limit{l}}}
		}, true},
		{"a key, one host", func(l Limit) []Rule {
			name := l.Name
			l.Name, l.Key = "", func(*http.Request) string { return name }
			return []Rule{{Match: Match{Hosts: ab[:1]}, Limits: []Limit{l}}, {Match: Match{Hosts: ab[1:]}, Limits: []Limit{{Name: l.Name, Key: l.Key}}}}
		}, true},

		{"several hosts", func(l Limit) []Rule { return []Rule{{Match: Match{Hosts: ab}, Limits: []Limit{l}}} }, false},
		{"a wildcard", func(l Limit) []Rule {
			return []Rule{{Match: Match{Hosts: []string{"*.example.com"}}, Limits: []Limit{l}}}
		}, false},
		{"no host", func(l Limit) []Rule { return []Rule{{Limits: []Limit{l}}} }, false},
		{"a pattern without a host", func(l Limit) []Rule {
			return []Rule{{Match: Match{Patterns: []string{"a.example.com/x", "/"}}, Limits: []Limit{l}}}
		}, false},
		{"two rules of a host each", func(l Limit) []Rule {
			return []Rule{{Match: Match{Hosts: ab[:1]}, Limits: []Limit{l}}, {Match: Match{Hosts: ab[1:]}, Limits: []Limit{l}}}
		}, false},
		{"another rule for all", func(l Limit) []Rule {
			return []Rule{{Match: Match{Hosts: ab[:1]}, Limits: []Limit{l}}, {Match: Match{Methods: []string{"POST"}}, Limits: []Limit{l}}}
		}, false},
		{"a key of several hosts", func(l Limit) []Rule {
			name := l.Name
			l.Name, l.Key = "", func(*http.Request) string { return name }
			return []Rule{{Match: Match{Hosts: ab}, Limits: []Limit{l}}}
		}, false},
	} {
		inWorldOf(t, c.name, func(t *testing.T, w *world) {
			tr := w.transport(busy("99999999", ab[0]), WithRules(c.rules(w.limit("l", 99, time.Second))...), WithDetectors(HTTPDetector()), WithMaxWait(0))
			get(t, tr, "http://a.example.com:8080/x")
			events := w.taken()
			throttled, cooled := events[len(events)-2], events[len(events)-1]
			require.Equal(t, EventThrottled, throttled.Kind)
			require.Equal(t, "a.example.com", throttled.Host)
			require.Equal(t, time.Hour, throttled.Until.Sub(w.epoch))
			require.Equal(t, 99999999*time.Second, throttled.Asked.Sub(w.epoch), "the event says what was asked for")
			require.Equal(t, time.Hour, cooled.Until.Sub(w.epoch))
			require.Equal(t, throttled.Asked, cooled.Asked)
			until := redistest.Must(w.client.RateLimiter(cooled.Limiter).Admin().CoolDownUntil(t.Context()))(t)
			kind, reason := EventHostCoolDown, ReasonHost
			if c.whole {
				kind, reason = EventCoolDown, ReasonCoolDown
			}
			require.Equal(t, kind, cooled.Kind)
			require.Equal(t, c.whole, !until.IsZero())

			e := rejected(t, tr, request(t, "GET", "http://A.example.com./x", nil))
			require.Equal(t, []any{reason, time.Hour, cooled.Limiter}, []any{e.Reason, e.Wait, e.Limiter})
			if !c.whole {
				get(t, tr, "http://b.example.com/x")
			}
			time.Sleep(time.Hour)
			get(t, tr, "http://a.example.com/x")
		})
	}
}

// A request to a host that is held waits, with the context's bound; another host's does not. Without an end
// the holds double, each host's by itself.
func TestHostHold(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		after := "90"
		tr := w.transport(base(func(r *http.Request) (*http.Response, error) { return busy(after, "a")(r) }),
			WithRules(Rule{Limits: []Limit{w.limit("l", 99, time.Second)}}), WithDetectors(HTTPDetector()))
		get(t, tr, "http://a/")
		get(t, tr, "http://b/")
		require.Zero(t, w.elapsed())
		after = ""
		for _, want := range []time.Duration{90, 91, 93, 97} {
			get(t, tr, "http://a/")
			require.Equal(t, want*time.Second, w.elapsed())
			get(t, tr, "http://b/")
			require.Equal(t, want*time.Second, w.elapsed())
		}
		require.Zero(t, w.until("l"))
		require.LessOrEqual(t, w.available("l"), int64(98))
	})
	inWorld(t, func(t *testing.T, w *world) {
		opts := []Option{WithRules(Rule{Limits: []Limit{w.limit("l", 99, time.Second)}}), WithDetectors(HTTPDetector())}
		tr := w.transport(busy("90", "a"), append(opts, WithDryRun())...)
		get(t, tr, "http://a/")
		require.Equal(t, []EventKind{EventGranted, EventThrottled, EventHostCoolDown}, w.kinds())
		get(t, tr, "http://a/")
		require.Zero(t, w.elapsed(), "a dry run holds nothing")

		tr = w.transport(busy("90", "a"), append(opts, WithMaxWait(80*time.Second), WithEarlyRejection())...)
		get(t, tr, "http://a/")
		for i := range 3 * maxLimiters { // other names do not push it out
			tr.limiters.get(w.key+fmt.Sprint(i), &Limit{}, tr.set.Load().id)
		}
		require.Equal(t, ReasonHost, rejected(t, tr, request(t, "GET", "http://a/", nil)).Reason)
		require.Zero(t, w.elapsed(), "rejected at once")
	})
}

// However many other hosts answer with a penalty, longer ones too, no hold ends early, and the memory of them is bounded. A
// host that never throttled is held by those of others at worst until these end.
func TestHostHoldsAreBounded(t *testing.T) {
	l, now, cfg := &limiter{limiterState: &limiterState{}}, time.Unix(1000, 0), config{}
	hosts := 10 * maxHosts
	end := func(i int) time.Duration { return time.Duration(i%maxHosts+1) * time.Second }
	for i := range hosts {
		l.holdHost(fmt.Sprint(i), now.Add(end(i)), now, now, cfg)
	}
	require.LessOrEqual(t, len(l.hosts), maxHosts+sharedHolds)
	for i := range hosts {
		require.GreaterOrEqual(t, l.hostLeft(fmt.Sprint(i), now), end(i), "%d", i)
	}
	l.holdHost("0", now.Add(time.Hour), now, now, cfg)
	require.Equal(t, time.Hour, l.hostLeft("0", now))
	require.Less(t, l.hostLeft("1", now), time.Hour, "each of the first has its own")
	require.LessOrEqual(t, l.hostLeft("another", now), maxHosts*time.Second)

	l.holdHost("new", now.Add(2*time.Hour), now, now.Add(time.Hour/2), cfg)
	require.Len(t, l.hosts, 2, "those that are over go first")
	l.holdHost("new", now.Add(time.Minute), now, now, cfg)
	require.Equal(t, 2*time.Hour, l.hostLeft("new", now), "the longest wins")
}

// TestLimitersWithHoldsAreKept: of too many limiters with a ban the process forgets those that Redis has have their ban.
func TestLimitersWithHoldsAreKept(t *testing.T) {
	redistest.NoRace(t, "one goroutine")
	s, end := newLimiters(nil), time.Now().Add(time.Hour)
	held := &limiter{name: "held", limiterState: &limiterState{}}
	held.holdHost("a", end, time.Now(), time.Now(), config{})
	s.keep(held)
	for i := range maxKept + 200 {
		s.keep(&limiter{name: fmt.Sprint(i), limiterState: &limiterState{ban: ban{until: end.Add(time.Hour)}}})
	}
	require.Len(t, s.kept, maxKept)
	require.NotNil(t, s.kept["held"])
}

// What a base brings from another host, to which it was redirected, is nobody's penalty; what it brings from
// a proxy of its own is the host's that was asked.
func TestRedirectedBase(t *testing.T) {
	for name, hop := range map[string]string{"another": "http://storage.example.com/f", "its own": "http://PLATFORM.example.com:8080/f", "a proxy": ""} {
		inWorld(t, func(t *testing.T, w *world) {
			tr := w.transport(base(func(r *http.Request) (*http.Response, error) {
				resp := respond(429, "text/plain", "")
				resp.Header.Set("Retry-After", "60")
				resp.Request = request(t, "GET", "http://127.0.0.1/", nil)
				if hop != "" {
					resp.Request = request(t, "GET", hop, nil)
					resp.Request.Response = respond(302, "text/plain", "")
				}
				return resp, nil
			}), WithRules(Rule{Match: Match{Hosts: []string{"platform.example.com"}}, Limits: []Limit{w.limit("l", 99, time.Second)}}),
				WithDetectors(HTTPDetector()), WithRetry(3), WithMaxWait(0))
			get(t, tr, "http://platform.example.com/")
			events := w.taken()
			last := events[len(events)-1]
			if name == "another" {
				require.Len(t, events, 2)
				require.Equal(t, EventIgnored, last.Kind)
				require.Equal(t, "storage.example.com", last.Host)
				require.EqualError(t, last.Err, "httplimit: no rejection: host storage.example.com answered, after a redirect")
				require.Zero(t, w.until("l"))
				return
			}
			require.Equal(t, EventCoolDown, last.Kind, name)
			require.Equal(t, time.Minute, w.until("l"), name)
		})
	}
}

func TestMaxRetryAfter(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{time.Minute: time.Minute, maxPenalty: maxPenalty} {
		inWorld(t, func(t *testing.T, w *world) {
			tr := w.transport(busy("99999999", "x"), rules(w.limit("l", 99, time.Second)), WithDetectors(HTTPDetector()), WithMaxRetryAfter(d))
			get(t, tr, "http://x/")
			require.Equal(t, want, w.until("l"))
		})
	}
	for _, d := range []time.Duration{0, -1, maxPenalty + 1} {
		_, err := New(clienttest.Unused(t), WithMaxRetryAfter(d))
		require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
	}
}
