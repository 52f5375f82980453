// SPDX-License-Identifier: Apache-2.0

package ratelimiter_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/inbound"
	"github.com/goredisson/ratelimiter/internal/http/gateway"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// This file has a server freeze, and refuse to let its clients in, as it does while a password is rotated, and checks that every way to ask for
// a permit meets that alike: what waits waits, and what does not is decided by the policy. And it has connections vanish beside a server
// that is there.

// A surface is a way to ask for a permit.
type surface struct {
	ask    func(ctx context.Context) (granted, degraded bool, err error)
	waits  bool // under FailClosed, until Redis is back
	blocks bool // under LocalQuota, until the quota grants
	tells  bool // whether a policy has decided
}

// The surfaces of one process, and what it was told.
type surfaces struct {
	of map[string]surface

	mu       sync.Mutex
	events   []string
	failures []error // of the middleware
}

func (s *surfaces) event(e ratelimiter.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := strings.Replace(fmt.Sprint(e.Err), "failed to authenticate: ", "", 1) // which some versions of go-redis say
	s.events = append(s.events, fmt.Sprint(e.Kind, ": ", text))
}

// told returns the events so far.
func (s *surfaces) told() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.events...)
}

// plenty is a rate that is never used up, and whose local quota begins soon.
var plenty = ratelimiter.Rate{Permits: 1_000_000, Interval: 200 * time.Millisecond}

// policies are those that a request can have.
var policies = []ratelimiter.OutagePolicy{ratelimiter.FailClosed(), ratelimiter.FailOpen(), ratelimiter.LocalQuota(plenty, 2)}

// roundTrip is an http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// newSurfaces returns every way to ask for a permit, on one redis client and under one policy.
func newSurfaces(t *testing.T, rdb *redis.Client, p ratelimiter.OutagePolicy) *surfaces {
	s := &surfaces{}
	hook := ratelimiter.Hook{Event: s.event}
	client := redistest.Must(ratelimiter.New(rdb, ratelimiter.WithOutagePolicy(p), ratelimiter.WithHook(hook)))(t)
	t.Cleanup(func() { _ = client.Close() })
	name := redistest.Key(t)
	l, other := client.RateLimiter(name).WithRate(plenty), client.RateLimiter(name+":other").WithRate(plenty)
	shared := redistest.Must(limit.NewShared(rdb, name+":shared", limit.TokenBucket{Rate: plenty, Burst: plenty.Permits},
		limit.WithOutagePolicy(p), limit.WithHook(hook)))(t)
	key := shared.For("a")

	platform := roundTrip(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
	})
	rule := httplimit.Rule{Limits: []httplimit.Limit{{Name: name + ":out", Rate: plenty}}}
	transport := redistest.Must(httplimit.New(client, httplimit.WithRules(rule), httplimit.WithBase(platform)))(t)
	gate := redistest.Must(gateway.New(client, []httplimit.Rule{rule}, gateway.WithAllow("http://a.example"), gateway.WithBase(platform)))(t)
	failed := inbound.WithFailures(func(_ *http.Request, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.failures = append(s.failures, err)
	})
	one := redistest.Must(inbound.New(client, name+":one", plenty, failed))(t)
	two := redistest.Must(inbound.NewRules(client, []inbound.Rule{{Name: name + ":second", Rate: plenty}, {Name: name + ":minute", Rate: plenty}}, failed))(t)

	result := func(r ratelimiter.Result, err error) (bool, bool, error) { return r.Granted, r.Degraded, err }
	served := func(h http.Handler, url string) func(context.Context) (bool, bool, error) {
		return func(ctx context.Context) (bool, bool, error) {
			a := httptest.NewRecorder()
			h.ServeHTTP(a, httptest.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody))
			if a.Code >= http.StatusInternalServerError {
				return false, false, fmt.Errorf("%d: %s", a.Code, a.Body)
			}
			return a.Code == http.StatusOK, false, nil
		}
	}
	answers := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	s.of = map[string]surface{
		"Allow": {tells: true, ask: func(ctx context.Context) (bool, bool, error) { return result(l.Allow(ctx, 1)) }},
		"TryAcquire": {waits: true, blocks: true, ask: func(ctx context.Context) (bool, bool, error) {
			ok, err := l.TryAcquire(ctx, 1, 10*time.Second)
			return ok, false, err
		}},
		"Acquire": {waits: true, blocks: true, ask: func(ctx context.Context) (bool, bool, error) { return true, false, l.Acquire(ctx, 1) }},
		"AcquireAll": {waits: true, blocks: true, ask: func(ctx context.Context) (bool, bool, error) {
			return true, false, client.AcquireAll(ctx, ratelimiter.Demand{Limiter: l, Permits: 1}, ratelimiter.Demand{Limiter: other, Permits: 1})
		}},
		"limit.Allow":          {tells: true, ask: func(ctx context.Context) (bool, bool, error) { return result(key.Allow(ctx, 1)) }},
		"limit.Wait":           {blocks: true, ask: func(ctx context.Context) (bool, bool, error) { return true, false, limit.Wait(ctx, key, 1) }},
		"inbound":              {ask: served(one.Handler(answers), "/")},
		"inbound of two rules": {ask: served(two.Handler(answers), "/")},
		"Transport": {waits: true, blocks: true, ask: func(ctx context.Context) (bool, bool, error) {
			resp, err := transport.RoundTrip(redistest.Must(http.NewRequestWithContext(ctx, http.MethodGet, "http://a.example", http.NoBody))(t))
			if err == nil {
				err = resp.Body.Close()
			}
			return err == nil, false, err
		}},
		"gateway": {waits: true, blocks: true, ask: served(gate, "http://a.example/")},
	}
	return s
}

// each calls f with each surface, in goroutines, and waits for all.
func (s *surfaces) each(f func(name string, x surface)) {
	var all sync.WaitGroup
	for name, x := range s.of {
		all.Go(func() { f(name, x) })
	}
	all.Wait()
}

// unknownUser is the error of a server that does not let its clients in, with advice.
const unknownUser = redistest.WrongPassword + " (check Username and Password in the redis client's options)"

// ready asks for a permit in every way, and requires that Redis grants it.
func (s *surfaces) ready(t *testing.T) {
	for name, x := range s.of {
		granted, degraded, err := x.ask(t.Context())
		require.NoError(t, err, name)
		require.True(t, granted && !degraded, name)
	}
}

// TestRefusedForTwoSeconds checks what each way to ask gets while a server that has let this user in refuses every connection for
// two seconds. What waits is served when Redis lets it in again, and the policy decides the rest: within 0.4 s, and then at once.
// The event says why.
func TestRefusedForTwoSeconds(t *testing.T) {
	redistest.NoServer(t) // it sends AUTH; for a real one see TestPasswordIsRotated
	const lasts = 2 * time.Second
	for _, p := range policies {
		t.Run(p.String(), func(t *testing.T) {
			var d redistest.Door
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
				s := newSurfaces(t, rdb, p)
				s.ready(t)
				d.Refuse()
				begin := time.Now()
				time.AfterFunc(lasts, d.Open)
				s.each(func(name string, x surface) {
					for time.Since(begin) < lasts {
						at, asked := time.Since(begin), time.Now()
						granted, degraded, err := x.ask(t.Context())
						took := time.Since(asked)
						what := fmt.Sprint(name, " after ", at, " took ", took, ": ", err)
						known := max(400*time.Millisecond-at, 0)
						switch {
						case p == ratelimiter.FailClosed() && x.waits:
							assert.NoError(t, err, what)
							assert.True(t, granted, what)
							assert.Greater(t, at+took, lasts, what)
							assert.LessOrEqual(t, at+took, lasts+1250*time.Millisecond, what)
						case p == ratelimiter.FailClosed():
							assert.Error(t, err, what)
							assert.Equal(t, known, took, what)
							if !errors.Is(err, ratelimiter.ErrUnavailable) {
								assert.ErrorContains(t, err, "503", what)
							}
						default:
							assert.NoError(t, err, what)
							if quota := 600*time.Millisecond - at; p.String() == policies[2].String() && quota > 0 { // it begins then
								assert.Equal(t, x.blocks, granted, what)
								if known = 400*time.Millisecond - at; x.blocks {
									known = quota
								}
							} else {
								assert.True(t, granted, what)
							}
							assert.Equal(t, x.tells, degraded, what)
							assert.InDelta(t, known, took, float64(time.Millisecond), what) // a list waits for whole milliseconds
						}
						time.Sleep(250 * time.Millisecond)
					}
				})
				time.Sleep(lasts)
				began := "outage began: " + unknownUser
				require.Equal(t, []string{began, began, "outage ended: <nil>", "outage ended: <nil>"}, s.told(), "those of the Client and of package limit")
				s.ready(t)
			}, d.Option)
		})
	}
}

// TestRefusedFromTheStart checks that a server that has never let this user in is no outage but a wrong setting: every way to ask
// gets the same error at once, which says what to set, under every policy. Only a middleware that fails open lets the request
// pass, as it does whenever it cannot decide.
func TestRefusedFromTheStart(t *testing.T) {
	redistest.NoServer(t) // it sends AUTH; for a real one see TestPasswordIsRotated
	for _, p := range policies {
		t.Run(p.String(), func(t *testing.T) {
			var d redistest.Door
			d.Refuse()
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
				s := newSurfaces(t, rdb, p)
				begin := time.Now()
				for range 3 {
					s.each(func(name string, x surface) {
						granted, _, err := x.ask(t.Context())
						switch {
						case strings.HasPrefix(name, "inbound") && p == ratelimiter.FailOpen():
							assert.True(t, granted, name)
						case strings.HasPrefix(name, "inbound"), name == "gateway":
							assert.ErrorContains(t, err, "503", name)
						default:
							assert.ErrorContains(t, err, unknownUser, name)
							assert.NotErrorIs(t, err, ratelimiter.ErrUnavailable, name)
						}
					})
				}
				require.Zero(t, time.Since(begin))
				require.Len(t, s.failures, 6)
				for _, err := range s.failures {
					require.ErrorContains(t, err, unknownUser)
				}
				d.Open()
				s.ready(t)
				require.Empty(t, s.told())
			}, d.Option)
		})
	}
}

// TestMiddlewareOnAFrozenRedis checks what a middleware with its defaults, alone in its process, replies while Redis stands still:
// it decides by the policy, at once, from when the outage is known: 0.5 s until the witness asks, 0.05 s until it looks and the connection is there, and 1 s. No
// request waits for a probe, the event tells of the outage, and Redis decides again a moment after it goes on.
func TestMiddlewareOnAFrozenRedis(t *testing.T) {
	const known = 1550 * time.Millisecond
	for _, name := range []string{"inbound", "inbound of two rules"} {
		for _, p := range policies {
			t.Run(name+", "+p.String(), func(t *testing.T) {
				var d redistest.Door
				redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
					s := newSurfaces(t, rdb, p)
					s.ready(t)
					d.Freeze()
					begin := time.Now()
					var all sync.WaitGroup
					for range 1000 { // in 10 s
						all.Go(func() {
							at := time.Since(begin)
							granted, _, err := s.of[name].ask(t.Context())
							took := time.Since(begin) - at
							switch {
							case at <= known:
								assert.LessOrEqual(t, took, time.Second, "asked after %v", at)
								assert.LessOrEqual(t, at+took, known, "asked after %v", at)
							case p.String() == policies[2].String() && at <= known+plenty.Interval: // the quota has not begun
								assert.Zero(t, took, "asked after %v", at)
							default:
								assert.Zero(t, took, "asked after %v", at)
								assert.Equal(t, p != ratelimiter.FailClosed(), granted, "asked after %v: %v", at, err)
							}
						})
						time.Sleep(10 * time.Millisecond)
						if at := time.Since(begin); at == known-10*time.Millisecond {
							require.Empty(t, s.told())
						} else if at == known+10*time.Millisecond {
							require.Len(t, s.told(), 1)
							require.Contains(t, s.told()[0], "outage began: no reply from Redis, not even within 1s on a new connection")
						}
					}
					all.Wait()
					require.Len(t, s.told(), 1)
					d.Open()
					back := time.Now()
					for len(s.told()) < 2 {
						time.Sleep(time.Millisecond)
					}
					require.LessOrEqual(t, time.Since(back), 1250*time.Millisecond)
					require.Equal(t, "outage ended: <nil>", s.told()[1])
					s.ready(t)
				}, d.Option)
			})
		}
	}
}

// TestPasswordIsRotated gives the user of a real server another password for two seconds, with all of its connections closed, as
// when a secret reaches the server before its clients, and asks in every way, all the time. Nobody gets another error than
// ErrUnavailable, what waits gets none, and there is one outage of the Client and of package limit each.
func TestPasswordIsRotated(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Since(t, 6, 0, "ACL")
	for _, p := range policies {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			admin := server.Client(t)
			password := func(to string) {
				require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "app", "reset", "on", ">"+to, "~*", "&*", "+@all").Err())
				_ = admin.Do(t.Context(), "CLIENT", "KILL", "USER", "app").Err()
			}
			password("old")
			s := newSurfaces(t, server.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "old" }), p)
			s.ready(t)
			password("new")
			begin := time.Now()
			back := time.AfterFunc(2*time.Second, func() {
				_ = admin.Do(context.Background(), "ACL", "SETUSER", "app", ">old").Err()
			})
			defer back.Stop()
			s.each(func(name string, x surface) {
				for time.Since(begin) < 2*time.Second {
					_, _, err := x.ask(t.Context())
					switch {
					case err == nil:
						assert.True(t, p != ratelimiter.FailClosed() || time.Since(begin) > 2*time.Second, "%s: nothing is granted without Redis", name)
					case p == ratelimiter.FailClosed() && !x.waits:
						if !errors.Is(err, ratelimiter.ErrUnavailable) {
							assert.ErrorContains(t, err, "503", name)
						}
					default:
						assert.NoError(t, err, name)
					}
					time.Sleep(10 * time.Millisecond)
				}
			})
			require.Eventually(t, func() bool { return len(s.told()) == 4 }, time.Minute, 10*time.Millisecond)
			const why = "WRONGPASS invalid username-password pair or user is disabled. (check Username and Password in the redis client's options)"
			require.Equal(t, []string{"outage began: " + why, "outage began: " + why, "outage ended: <nil>", "outage ended: <nil>"}, s.told())
			s.ready(t)
		})
	}
}

// TestCallsOnAFrozenRedis checks that calls which do not wait, and have no deadline, end when the outage begins, with its reason: those that
// take, those that only read, and changes.
func TestCallsOnAFrozenRedis(t *testing.T) {
	const known = 1550 * time.Millisecond
	for name, call := range map[string]func(context.Context, *ratelimiter.RateLimiter) error{
		"Allow": func(ctx context.Context, l *ratelimiter.RateLimiter) error { _, err := l.Allow(ctx, 1); return err },
		"TryAcquire": func(ctx context.Context, l *ratelimiter.RateLimiter) error {
			_, err := l.TryAcquire(ctx, 1, 0)
			return err
		},
		"AllowAtMost": func(ctx context.Context, l *ratelimiter.RateLimiter) error {
			_, _, err := l.AllowAtMost(ctx, 2)
			return err
		},
		"SetRate": func(ctx context.Context, l *ratelimiter.RateLimiter) error { return l.SetRate(ctx, plenty) },
		"Release": func(ctx context.Context, l *ratelimiter.RateLimiter) error { return l.Release(ctx, 1) },
		"Peek":    func(ctx context.Context, l *ratelimiter.RateLimiter) error { _, err := l.Peek(ctx, 1); return err },
		"Rate":    func(ctx context.Context, l *ratelimiter.RateLimiter) error { _, err := l.Rate(ctx); return err },
		"AvailablePermits": func(ctx context.Context, l *ratelimiter.RateLimiter) error {
			_, err := l.AvailablePermits(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			var d redistest.Door
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
				client := redistest.Must(ratelimiter.New(rdb))(t)
				defer client.Close()
				l := client.RateLimiter(redistest.Key(t)).WithRate(plenty)
				require.NoError(t, l.Acquire(t.Context(), 1))
				d.Freeze()
				begin := time.Now()
				for i := range 3 {
					err := call(context.Background(), l)
					require.ErrorIs(t, err, ratelimiter.ErrUnavailable)
					require.NotErrorIs(t, err, context.Canceled)
					require.ErrorContains(t, err, "no reply from Redis, not even within 1s on a new connection")
					require.Equal(t, known, time.Since(begin), "call %d", i)
				}
				d.Open()
				require.NoError(t, l.Acquire(t.Context(), 1))
				require.NoError(t, call(t.Context(), l))
			}, d.Option)
		})
	}
}

// vanishes returns a client of a pool of ten connections, all of them idle, that have vanished without a word beside a healthy Redis
// when vanish returns.
func vanishes(t *testing.T) (c *ratelimiter.Client, vanish func()) {
	proxy := redistest.StartProxy(t, redistest.Client(t).Options().Addr)
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), PoolSize: 10, ReadTimeout: time.Minute})
	t.Cleanup(func() {
		proxy.Cut(true) // the Close of go-redis 9.19 waits for every read
		_ = rdb.Close()
	})
	return redistest.Must(ratelimiter.New(rdb))(t), func() {
		var conns []*redis.Conn
		for range 10 {
			conns = append(conns, rdb.Conn())
			require.NoError(t, conns[len(conns)-1].Ping(t.Context()).Err())
		}
		for _, conn := range conns {
			require.NoError(t, conn.Close())
		}
		proxy.Spoil(redistest.SpoilSilent)
	}
}

// TestVanishedConnections has all connections of a pool vanish without a word, and the ReadTimeout be a minute: each kind of call that takes
// or asks is made again soon, and takes once what it asks for.
func TestVanishedConnections(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(ctx context.Context, c *ratelimiter.Client, l *ratelimiter.RateLimiter) (took int64, err error){
		"Allow": func(ctx context.Context, _ *ratelimiter.Client, l *ratelimiter.RateLimiter) (int64, error) {
			_, err := l.Allow(ctx, 3)
			return 3, err
		},
		"Allow of a caller who does not leave": func(_ context.Context, _ *ratelimiter.Client, l *ratelimiter.RateLimiter) (int64, error) {
			_, err := l.Allow(context.Background(), 3)
			return 3, err
		},
		"TryAcquire": func(ctx context.Context, _ *ratelimiter.Client, l *ratelimiter.RateLimiter) (int64, error) {
			_, err := l.TryAcquire(ctx, 3, 10*time.Second)
			return 3, err
		},
		"Acquire": func(ctx context.Context, _ *ratelimiter.Client, l *ratelimiter.RateLimiter) (int64, error) {
			return 3, l.Acquire(ctx, 3)
		},
		"AllowAtMost": func(ctx context.Context, _ *ratelimiter.Client, l *ratelimiter.RateLimiter) (int64, error) {
			n, _, err := l.AllowAtMost(ctx, 3)
			return n, err
		},
		"AcquireAll": func(ctx context.Context, c *ratelimiter.Client, l *ratelimiter.RateLimiter) (int64, error) {
			other := c.RateLimiter(l.Name() + " other").WithRate(ratelimiter.Rate{Permits: 10, Interval: time.Hour})
			return 3, c.AcquireAll(ctx, ratelimiter.Demand{Limiter: l, Permits: 3}, ratelimiter.Demand{Limiter: other, Permits: 1})
		},
		"Peek": func(ctx context.Context, _ *ratelimiter.Client, l *ratelimiter.RateLimiter) (int64, error) {
			_, err := l.Peek(ctx, 1)
			return 0, err
		},
		"Rate": func(ctx context.Context, _ *ratelimiter.Client, l *ratelimiter.RateLimiter) (int64, error) {
			_, err := l.Rate(ctx)
			return 0, err
		},
		"AvailablePermits": func(ctx context.Context, _ *ratelimiter.Client, l *ratelimiter.RateLimiter) (int64, error) {
			_, err := l.AvailablePermits(ctx)
			return 0, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, vanish := vanishes(t)
			defer c.Close()
			l := c.RateLimiter(redistest.Key(t)).WithRate(ratelimiter.Rate{Permits: 100, Interval: time.Hour})
			require.True(t, redistest.Must(l.Allow(t.Context(), 1))(t).Granted)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			vanish()
			begin := time.Now()
			took, err := call(ctx, c, l)
			require.NoError(t, err)
			require.Less(t, time.Since(begin), 2500*time.Millisecond)
			require.EqualValues(t, 99-took, redistest.Must(l.AvailablePermits(t.Context()))(t))
		})
	}
}

// TestChangeWithoutReply checks that a change whose reply is long in coming, beside a Redis that replies to others, is not made once more: its
// caller gets the reply, however late, or ErrUnavailable when the time of the redis client is up.
func TestChangeWithoutReply(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(ctx context.Context, l *ratelimiter.RateLimiter, g *ratelimiter.Grant) error{
		"SetRate": func(ctx context.Context, l *ratelimiter.RateLimiter, _ *ratelimiter.Grant) error {
			return l.SetRate(ctx, ratelimiter.Rate{Permits: 50, Interval: time.Hour})
		},
		"UpdateRate": func(ctx context.Context, l *ratelimiter.RateLimiter, _ *ratelimiter.Grant) error {
			_, err := l.UpdateRate(ctx, ratelimiter.Rate{Permits: 50, Interval: time.Hour})
			return err
		},
		"Release": func(ctx context.Context, l *ratelimiter.RateLimiter, _ *ratelimiter.Grant) error {
			return l.Release(ctx, 2)
		},
		"Delete": func(ctx context.Context, l *ratelimiter.RateLimiter, _ *ratelimiter.Grant) error {
			_, err := l.Admin().Delete(ctx)
			return err
		},
		"Settle": func(ctx context.Context, _ *ratelimiter.RateLimiter, g *ratelimiter.Grant) error {
			return g.Settle(ctx, 1)
		},
		"CoolDown": func(ctx context.Context, l *ratelimiter.RateLimiter, _ *ratelimiter.Grant) error {
			return l.CoolDown(ctx, time.Now().Add(time.Second))
		},
		"LiftCoolDown": func(ctx context.Context, l *ratelimiter.RateLimiter, _ *ratelimiter.Grant) error {
			_, err := l.Admin().LiftCoolDown(ctx)
			return err
		},
	} {
		for _, late := range []time.Duration{1500 * time.Millisecond, time.Hour} {
			t.Run(name+" after "+late.String(), func(t *testing.T) {
				t.Parallel()
				proxy := redistest.StartProxy(t, redistest.Client(t).Options().Addr)
				rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: 2 * time.Second})
				defer rdb.Close()
				c := redistest.Must(ratelimiter.New(rdb))(t)
				defer c.Close()
				l := c.RateLimiter(redistest.Key(t)).WithRate(ratelimiter.Rate{Permits: 100, Interval: time.Hour})
				warm := l.Name() + " warm"
				g := redistest.Must(c.RateLimiter(warm).WithRate(ratelimiter.Rate{Permits: 100, Interval: time.Hour}).AcquireGrant(t.Context(), 5))(t)
				require.NoError(t, change(t.Context(), c.RateLimiter(warm), g)) // its script is loaded
				g = redistest.Must(l.AcquireGrant(t.Context(), 5))(t)
				var sent atomic.Int64
				proxy.Judge(func(words []string) (f redistest.Fault) {
					if strings.HasPrefix(strings.ToLower(words[0]), "eval") && sent.Add(1) == 1 {
						f.Hold = late
					}
					return f
				})
				begin := time.Now()
				err := change(t.Context(), l, g)
				if late < time.Minute {
					require.NoError(t, err)
					require.GreaterOrEqual(t, time.Since(begin), late)
					require.EqualValues(t, 1, sent.Load())
				} else if err != nil {
					require.ErrorIs(t, err, ratelimiter.ErrUnavailable)
					require.EqualValues(t, 1, sent.Load())
				}
				require.GreaterOrEqual(t, time.Since(begin), min(late, 2*time.Second))
			})
		}
	}
}

// sentinelScript starts a sentinel with the arguments that redistest gives to a server.
const sentinelScript = `#!/bin/sh
while [ $# -gt 0 ]; do
    case $1 in
    --port) port=$2 ;;
    --dir) dir=$2 ;;
    --sentinel-of) master=$2 ;;
    esac
    shift 2
done
cat >"$dir/sentinel.conf" <<EOT
port $port
bind 127.0.0.1
sentinel monitor limits 127.0.0.1 $master 2
EOT
exec %s-server "$dir/sentinel.conf" --sentinel
`

// TestSentinelsOfWhichSomeAreMute has one, and then all, of three Sentinels accept connections and never reply. Beside one, Ping and
// a call succeed as soon as go-redis has turned to another, and there is no outage. Beside three, the error says that it is Sentinel
// that fails.
func TestSentinelsOfWhichSomeAreMute(t *testing.T) {
	redistest.NeedReal(t)
	master := redistest.Start(t)
	_, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	script := filepath.Join(t.TempDir(), "sentinel")
	require.NoError(t, os.WriteFile(script, fmt.Appendf(nil, sentinelScript, redistest.Lane()), 0o700))
	var sentinels, mute []string
	for range 3 {
		s := redistest.Must(redistest.NewServer(script, t.TempDir(), "--sentinel-of", port))(t)
		t.Cleanup(s.Close)
		sentinels = append(sentinels, s.Addr())
		l := redistest.Must(net.Listen("tcp", "127.0.0.1:0"))(t) // the kernel accepts, and nobody reads
		t.Cleanup(func() { _ = l.Close() })
		mute = append(mute, l.Addr().String())
	}
	client := func(t *testing.T, read, dial time.Duration, dials int, addrs ...string) *ratelimiter.Client {
		rdb := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "limits", SentinelAddrs: addrs, DialTimeout: dial, ReadTimeout: read, DialerRetries: dials})
		t.Cleanup(func() { _ = rdb.Close() })
		c := redistest.Must(ratelimiter.New(rdb, ratelimiter.WithOutagePolicy(ratelimiter.FailOpen()), ratelimiter.WithHook(ratelimiter.Hook{
			Event: func(e ratelimiter.Event) {
				if e.Kind == ratelimiter.OutageBegan {
					t.Error("an outage beside a healthy Redis:", e.Err)
				}
			}})))(t)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	for i := range 3 {
		addrs := []string{sentinels[0], sentinels[1], sentinels[2]}
		addrs[i] = mute[i]
		// When such a Sentinel has been waited for, no time is left for the only dial of the second.
		for _, c := range []struct {
			read, dial time.Duration
			dials      int
		}{
			{time.Second, time.Second, 5},
			{time.Second, 500 * time.Millisecond, 1},
			{2 * time.Second, time.Second, 1}, // as docs/production.md has them
			{2 * time.Second, 300 * time.Millisecond, 1},
		} {
			t.Run(fmt.Sprintf("number %d, %v, %v, %d dials", i, c.read, c.dial, c.dials), func(t *testing.T) {
				t.Parallel()
				require.NoError(t, client(t, c.read, c.dial, c.dials, addrs...).Ping(t.Context()))
				l := client(t, c.read, c.dial, c.dials, addrs...).RateLimiter(redistest.Key(t)).WithRate(ratelimiter.Rate{Permits: 10, Interval: time.Minute})
				r, err := l.Allow(t.Context(), 1)
				require.NoError(t, err)
				require.True(t, r.Granted && !r.Degraded)
			})
		}
	}
	t.Run("all", func(t *testing.T) {
		t.Parallel()
		err := client(t, time.Second, time.Second, 5, mute...).Ping(t.Context())
		require.ErrorIs(t, err, ratelimiter.ErrUnavailable)
		require.ErrorContains(t, err, "sentinel has not named a master")
		t.Log(err)
	})
}
