// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Requests leave at the limiter's pace, at exact times.
func TestRequestsWaitForTheirPermits(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var at []time.Duration
		tr := w.transport(base(func(r *http.Request) (*http.Response, error) {
			at = append(at, w.elapsed())
			return ok(r)
		}), rules(w.limit("a", 2, time.Second)))
		for range 5 {
			_, text := get(t, tr, "http://x/")
			require.Equal(t, "ok", text)
		}
		require.Equal(t, []time.Duration{0, 0, time.Second, time.Second, 2 * time.Second}, at)
		events := w.taken()
		require.Len(t, events, 5)
		for i, wait := range []time.Duration{0, 0, time.Second, 0, time.Second} {
			require.Equal(t, EventGranted, events[i].Kind)
			require.Equal(t, wait, events[i].Wait)
			require.Equal(t, []string{"r"}, events[i].Rules)
			require.Equal(t, 1, events[i].Attempt)
		}
	})
}

// All limits of all rules that match are taken together: when one rejects, the others keep their permits.
func TestSeveralLimitsAllOrNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		tr := w.transport(base(ok), WithMaxWait(0),
			WithRules(
				Rule{Limits: []Limit{w.limit("app", 3, time.Second), w.limit("ip", 10, time.Second)}},
				Rule{Match: Match{Methods: []string{"POST"}}, Limits: []Limit{w.limit("robot", 1, time.Minute)}},
			))
		redistest.Must(tr.RoundTrip(request(t, "POST", "http://x/", nil)))(t)
		e := rejected(t, tr, request(t, "POST", "http://x/", nil))
		require.Equal(t, Error{Limiter: w.key + "robot", Wait: time.Minute, boundBy: boundTransport, Reason: ReasonWait}, *e)
		require.EqualValues(t, 2, w.available("app"))
		require.EqualValues(t, 9, w.available("ip"))
		get(t, tr, "http://x/")
		require.EqualValues(t, 1, w.available("app"))
	})
}

// Weights are spent, and add up where a limiter is named twice.
func TestWeights(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.limit("a", 100, time.Second)
		a.Weight = 5
		b := w.limit("a", 100, time.Second)
		b.WeightFunc = func(r *http.Request) int64 { return int64(len(r.URL.Path)) }
		tr := w.transport(base(ok), rules(a, b))
		get(t, tr, "http://x/234567")
		require.EqualValues(t, 100-5-7, w.available("a"))

		b.WeightFunc = func(*http.Request) int64 { return -1 }
		body := &closer{Reader: strings.NewReader("x")}
		_, err := w.transport(base(ok), rules(b)).RoundTrip(request(t, "POST", "http://x/", body))
		require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
		require.ErrorIs(t, err, ErrRejected)
		require.EqualValues(t, 1, body.closed.Load())

		b.WeightFunc = func(*http.Request) int64 { return 101 }
		_, err = w.transport(base(ok), rules(b)).RoundTrip(request(t, "GET", "http://x/", nil))
		require.ErrorIs(t, err, ratelimiter.ErrPermitsExceedRate)
		require.ErrorContains(t, err, string(ReasonRule))

		b.WeightFunc = func(*http.Request) int64 { return 0 }
		get(t, w.transport(base(ok), rules(b)), "http://x/")
		require.EqualValues(t, 100-5-7, w.available("a"), "a weight of 0 spends nothing")
	})
}

// TestRejections checks what bounds the wait of a request, what its error says of it, and whose timeout it is. The longest wait of a
// context, and the Timeout of an http.Client, which would hide the cause, come before its end. A rejected body is closed
// once, and nothing is sent.
func TestRejections(t *testing.T) {
	type end func(context.Context) (context.Context, context.CancelFunc)
	deadline := func(d time.Duration) end {
		return func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, d) }
	}
	atMost := func(d time.Duration) end {
		return func(ctx context.Context) (context.Context, context.CancelFunc) {
			return ContextWithMaxWait(ctx, d), func() {}
		}
	}
	canceled := func(after time.Duration) end {
		return func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			if after == 0 {
				cancel()
			}
			time.AfterFunc(after, cancel)
			return ctx, cancel
		}
	}
	late := context.DeadlineExceeded
	for name, c := range map[string]struct {
		client  time.Duration // its Timeout
		ctx     end
		opts    []Option
		elapsed time.Duration
		is      error
		by      bound
		text    string
	}{
		"default":              {0, nil, nil, 30 * time.Second, nil, boundDefault, "), 30s allowed by DefaultMaxWait"},
		"longest wait":         {0, deadline(time.Hour), []Option{WithMaxWait(3 * time.Second)}, 3 * time.Second, nil, boundTransport, ", 3s allowed by WithMaxWait"},
		"no wait":              {0, nil, []Option{WithMaxWait(0)}, 0, nil, boundTransport, ", 0s allowed by WithMaxWait"},
		"context":              {0, atMost(10 * time.Minute), nil, 10 * time.Minute, nil, boundContext, ", 10m0s allowed by ContextWithMaxWait"},
		"context is shorter":   {0, atMost(3 * time.Second), []Option{WithMaxWait(5 * time.Second)}, 3 * time.Second, nil, boundContext, ""},
		"context is longer":    {0, atMost(time.Minute), []Option{WithMaxWait(5 * time.Second)}, 5 * time.Second, nil, boundTransport, ""},
		"context does not":     {0, atMost(0), nil, 0, nil, boundContext, ""},
		"context, negative":    {0, atMost(-1), nil, 0, nil, boundContext, ""},
		"deadline":             {0, deadline(5 * time.Minute), []Option{WithMaxWait(time.Hour)}, 5*time.Minute - reserve, late, boundDeadline, "the deadline of its context: context deadline exceeded"},
		"short deadline":       {0, deadline(50 * time.Millisecond), nil, 40 * time.Millisecond, late, boundDeadline, ""},
		"http.Client":          {5 * time.Second, nil, nil, 5*time.Second - reserve, late, boundDeadline, ""},
		"early":                {0, nil, []Option{WithEarlyRejection()}, 0, nil, boundDefault, "to wait), 30s allowed by DefaultMaxWait"},
		"early, by a deadline": {0, deadline(2 * time.Second), []Option{WithEarlyRejection()}, 0, late, boundDeadline, ""},
		"canceled":             {0, canceled(time.Second), nil, time.Second, context.Canceled, "", string(ReasonContext)},
		"over before":          {0, canceled(0), nil, 0, context.Canceled, "", string(ReasonContext)},
	} {
		inWorldOf(t, name, func(t *testing.T, w *world) {
			sent := 0
			tr := redistest.Must(New(w.client, append(c.opts, WithEvents(w.event), rules(w.limit("a", 1, time.Hour)), WithBase(base(func(r *http.Request) (*http.Response, error) {
				sent++
				time.Sleep(time.Minute) // the bound is that of the wait alone
				return respond(200, "text/plain", "ok"), r.Context().Err()
			})))...))(t)
			redistest.Must(tr.RoundTrip(request(t, "GET", "http://x/", nil).WithContext(ContextWithMaxWait(t.Context(), time.Second))))(t)
			w.epoch = time.Now()
			w.taken()
			ctx := t.Context()
			if c.ctx != nil {
				var cancel context.CancelFunc
				ctx, cancel = c.ctx(ctx)
				defer cancel()
			}
			body := &closer{Reader: strings.NewReader("hello")}
			_, err := (&http.Client{Transport: tr, Timeout: c.client}).Do(request(t, "POST", "http://x/", body).WithContext(ctx))
			require.Equal(t, c.elapsed, w.elapsed())
			require.Equal(t, 1, sent)
			require.EqualValues(t, 1, body.closed.Load())
			require.ErrorIs(t, err, ErrRejected)
			var outer *url.Error
			require.ErrorAs(t, err, &outer)
			require.Equal(t, c.is == late, outer.Timeout())
			var rejected *Error
			require.ErrorAs(t, err, &rejected)
			require.True(t, errors.Is(rejected.Err, c.is), "%v", rejected.Err)
			require.Equal(t, []any{w.key + "a", c.by}, []any{rejected.Limiter, rejected.boundBy})
			require.Contains(t, rejected.Error(), c.text)
			if c.is == context.Canceled {
				require.Equal(t, ReasonContext, rejected.Reason)
			} else {
				require.Equal(t, ReasonWait, rejected.Reason)
				require.InDelta(t, 59*time.Minute-c.elapsed, rejected.Wait, float64(100*time.Millisecond), "the wait that is left")
			}
			events := w.taken()
			require.Len(t, events, 1)
			require.Equal(t, EventRejected, events[0].Kind)
			require.Equal(t, error(rejected), events[0].Err)
			require.Equal(t, rejected.Limiter, events[0].Limiter)
		})
	}
}

// deepCopy is what can be compared of a request after RoundTrip.
func deepCopy(r *http.Request) *http.Request {
	c := r.Clone(r.Context())
	c.Body, c.GetBody, c.Response = nil, nil, nil
	return c
}

// A RoundTripper must not change the request; not even where rules normalise it to match.
func TestRequestIsNotModified(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		throttle := true
		var seen []*http.Request
		tr := w.transport(base(func(r *http.Request) (*http.Response, error) {
			seen = append(seen, r)
			_, _ = io.Copy(io.Discard, r.Body)
			_ = r.Body.Close()
			if throttle = !throttle; !throttle {
				return respond(200, "text/plain", "slow down"), nil
			}
			return ok(r)
		}), WithRetry(1), WithRules(Rule{
			Match: Match{Patterns: []string{"POST api.example.com/a/{id}/"}, Header: map[string]string{"X-App": "*"},
				Query: map[string]string{"token": "*"},
				Func:  func(r *http.Request) bool { r.SetPathValue("id", "changed"); return true }},
			Limits:    []Limit{{Name: w.key + "{path.id}{query.token|hash}{header.x-app}{host}", Rate: ratelimiter.Rate{Permits: 9, Interval: time.Second}}},
			Detectors: []Detector{says("slow down", time.Second, "")},
		}))
		req := request(t, "POST", "http://API.example.com:8080//a/../a/%31/b?token=s&b=%20", strings.NewReader("hello"))
		req.Header.Set("X-App", "app")
		req.Trailer = http.Header{"X-End": nil}
		req.SetPathValue("id", "the caller's")
		before, values := deepCopy(req), *req
		require.Same(t, req, redistest.Must(tr.RoundTrip(req))(t).Request)
		require.True(t, reflect.DeepEqual(before, deepCopy(req)), "%v\n%v", before, deepCopy(req))
		require.Equal(t, "the caller's", req.PathValue("id"))
		require.True(t, values.Body == req.Body)
		require.Len(t, seen, 2)
		require.Same(t, req.URL, seen[0].URL, "the base gets what the caller has, not what is normalised")
		require.Equal(t, "http://API.example.com:8080//a/../a/%31/b?token=s&b=%20", seen[1].URL.String())
		require.Equal(t, []EventKind{EventGranted, EventThrottled, EventCoolDown, EventRetry, EventGranted}, w.kinds())
	})
}

// The base's error comes through as it is, and the permits are spent: the request may have arrived.
func TestErrorsOfTheBase(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mine := errors.New("mine")
		tr := w.transport(base(func(*http.Request) (*http.Response, error) { return nil, mine }), WithRetry(3),
			rules(w.limit("a", 5, time.Second)))
		_, err := tr.RoundTrip(request(t, "GET", "http://x/", nil))
		require.Equal(t, mine, err)
		require.EqualValues(t, 4, w.available("a"))
	})
}

// A dry run holds nothing up, and says what it would have rejected.
func TestDryRun(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		tr := w.transport(always("slow down"),
			WithDryRun(), WithRetry(5), WithDetectors(says("slow down", time.Hour, "")),
			rules(w.limit("a", 1, time.Minute)))
		for range 2 {
			_, text := get(t, tr, "http://x/")
			require.Equal(t, "slow down", text)
		}
		require.Zero(t, w.elapsed())
		require.Zero(t, w.until("a"), "a dry run cools nothing down")
		require.Zero(t, w.available("a"))
		events := w.taken()
		var kinds []EventKind
		for _, e := range events {
			kinds = append(kinds, e.Kind)
			require.True(t, e.DryRun)
		}
		require.Equal(t, []EventKind{EventGranted, EventThrottled, EventCoolDown,
			EventRejected, EventGranted, EventThrottled, EventCoolDown}, kinds)
		require.Equal(t, time.Minute, events[3].Wait)
		require.ErrorIs(t, events[3].Err, ErrRejected)
		require.Equal(t, w.key+"a", events[3].Limiter)
	})
}

// Without Redis nothing is sent, and a dry run is delayed by dryRunDelay at most.
func TestRedisAway(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.away().Store(true)
		sent := 0
		counted := base(func(r *http.Request) (*http.Response, error) { sent++; return ok(r) })
		tr := w.transport(counted, rules(w.limit("a", 1, time.Minute)), WithMaxWait(0))
		body := &closer{Reader: strings.NewReader("hello")}
		_, err := tr.RoundTrip(request(t, "POST", "http://x/", body))
		require.ErrorIs(t, err, ratelimiter.ErrUnavailable)
		require.ErrorIs(t, err, ErrRejected)
		require.ErrorContains(t, err, string(ReasonUnavailable))
		require.Zero(t, sent)
		require.EqualValues(t, 1, body.closed.Load())

		before := w.elapsed()
		dry := w.transport(counted, rules(w.limit("a", 1, time.Minute)), WithDryRun())
		get(t, dry, "http://x/")
		require.Equal(t, 1, sent)
		require.LessOrEqual(t, w.elapsed()-before, dryRunDelay)
	})
}

// A limiter that has expired gets its rate again; one that has another rate is left, and told of once.
func TestRatesOfLimiters(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		tr := w.transport(base(ok), rules(w.limit("a", 2, time.Minute)), WithMaxWait(0))
		get(t, tr, "http://x/")
		redistest.Must(w.client.RateLimiter(w.key + "a").Admin().Delete(ctx))(t)
		get(t, tr, "http://x/")
		require.EqualValues(t, 1, w.available("a"))
		require.Equal(t, []EventKind{EventGranted, EventGranted}, w.kinds())

		other := w.client.RateLimiter(w.key + "b")
		require.NoError(t, other.SetRate(ctx, ratelimiter.Rate{Permits: 5, Interval: time.Second}))
		tr = w.transport(base(ok), rules(w.limit("b", 2, time.Minute)), WithMaxWait(0))
		get(t, tr, "http://x/")
		get(t, tr, "http://x/")
		require.EqualValues(t, 5, redistest.Must(other.Rate(ctx))(t).Permits)
		events := w.taken()
		require.Equal(t, EventGranted, events[0].Kind, "the comparison does not delay the request")
		require.Equal(t, EventRateDiffers, events[1].Kind)
		require.Equal(t, w.key+"b", events[1].Limiter)
		require.Contains(t, events[1].Reason, "5/1s")
		require.Len(t, events, 3)

		// The Transport that begins last sets its rate, once, and what is taken counts.
		renewed := w.transport(base(ok), rules(w.limit("b", 3, time.Minute)), WithMaxWait(0), WithRuleRates())
		get(t, renewed, "http://x/")
		require.Equal(t, w.limit("b", 3, time.Minute).Rate, redistest.Must(other.Rate(ctx))(t))
		require.EqualValues(t, 0, w.available("b"))
		require.Equal(t, []EventKind{EventGranted, EventRateDiffers}, w.kinds())
		require.NoError(t, other.SetRate(ctx, ratelimiter.Rate{Permits: 9, Interval: time.Minute}, ratelimiter.KeepState()))
		get(t, renewed, "http://x/")
		require.EqualValues(t, 5, w.available("b"))
		require.NoError(t, renewed.SetRules(Rule{Limits: []Limit{w.limit("b", 7, time.Minute)}}))
		get(t, renewed, "http://x/")
		require.EqualValues(t, 2, w.available("b"))

		_, err := w.transport(base(ok), rules(Limit{Name: w.key + "c"})).RoundTrip(request(t, "GET", "http://x/", nil))
		require.ErrorIs(t, err, ratelimiter.ErrNotInitialized)
		require.ErrorIs(t, err, ErrRejected)
	})
}

// A hundred first requests at one instant give a limiter its rate once, and as many limiters as there
// are requests are forgotten in time.
func TestLimitersAreRemembered(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var sets atomic.Int64 // scripts with one key and arguments: TrySetRate is the only one
		w.rdb.AddHook(redistest.OnCommand(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			err := next(ctx, cmd)
			if args := cmd.Args(); err == nil && strings.HasPrefix(cmd.Name(), "eval") && args[2] == 1 && len(args) > 4 {
				sets.Add(1)
			}
			return err
		}))
		tr := w.transport(base(ok), rules(w.limit("a", 1000, time.Minute)))
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { get(t, tr, "http://x/") })
		}
		all.Wait()
		require.Positive(t, sets.Load())
		require.Less(t, sets.Load(), int64(20), "callers that miss the rate together set it once; one that has missed it before and is late sets it again")

		for i := range 3 * maxLimiters {
			tr.limiters.get(fmt.Sprint(i), &Limit{}, tr.set.Load().id)
		}
		require.LessOrEqual(t, len(tr.limiters.young)+len(tr.limiters.old), 2*maxLimiters)
		kept := tr.limiters.get("kept", &Limit{}, tr.set.Load().id)
		for i := range 3 * maxLimiters {
			tr.limiters.get(fmt.Sprint(i), &Limit{}, tr.set.Load().id)
			require.Same(t, kept, tr.limiters.get("kept", &Limit{}, tr.set.Load().id), "one in use stays")
		}
	})
}

// The first request of a limiter, which sets its rate, is no error in the hooks of the Client, nor is the first after its keys are gone.
func TestFirstRequestIsNoError(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		var told []ratelimiter.RequestInfo
		client := clienttest.InBubble(t, rdb, ratelimiter.WithHook(ratelimiter.Hook{
			Request: func(_ context.Context, r ratelimiter.RequestInfo) { told = append(told, r) },
		}))
		name := redistest.Key(t)
		tr, err := New(client, WithBase(base(ok)), WithRules(Rule{Limits: []Limit{{Name: name, Rate: ratelimiter.Rate{Permits: 9, Interval: time.Minute}}}}))
		require.NoError(t, err)
		for range 2 {
			get(t, tr, "http://x/")
			redistest.Must(client.RateLimiter(name).Admin().Delete(t.Context()))(t)
		}
		require.Len(t, told, 2)
		for _, r := range told {
			require.NoError(t, r.Err)
			require.Equal(t, ratelimiter.RequestGranted, r.Outcome)
		}
	})
}

func TestOptions(t *testing.T) {
	client := clienttest.New(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}))
	_, err := New(nil)
	require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
	_, err = New(client, nil)
	require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
	for _, o := range []Option{WithBase(nil), WithMaxWait(-1), WithRetry(-1), WithPeek(0, 0), WithPeek(maxPeek+1, 0),
		WithPeek(1, -1), WithBackOff(0, 0), WithBackOff(2*time.Second, time.Second), WithMaxCoolDown(0), WithDetectors(nil)} {
		_, err := New(client, o)
		require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
	}
	redistest.Must(New(client))(t)
}

// A nil URL is the base's to reject; idle connections are the base's to close.
func TestWhatTheBaseDecides(t *testing.T) {
	client := clienttest.New(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}))
	tr := redistest.Must(New(client))(t)
	body := &closer{Reader: &bytes.Buffer{}}
	_, err := tr.RoundTrip(&http.Request{Body: body})
	require.Error(t, err)
	require.EqualValues(t, 1, body.closed.Load())

	idle := &idleBase{}
	tr = redistest.Must(New(client, WithBase(idle)))(t)
	(&http.Client{Transport: tr}).CloseIdleConnections()
	require.True(t, idle.closed)
}

type idleBase struct {
	http.RoundTripper
	closed bool
}

func (b *idleBase) CloseIdleConnections() { b.closed = true }

// TestNothingBetweenPermitsAndSending: a request with its permits leaves at once, also the first of its limiters:
// another question to Redis would make it arrive with those that were granted later.
func TestNothingBetweenPermitsAndSending(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		redistest.Must(w.client.RateLimiter(w.key+"a").TrySetRate(t.Context(), ratelimiter.Rate{Permits: 5, Interval: time.Second}))(t)
		get(t, w.transport(base(ok), rules(w.limit("b", 5, time.Second))), "http://x/") // loads the scripts
		asked := 0                                                                      // beside the scripts of the acquire, which have three keys and may be two when it checks the state
		w.rdb.AddHook(redistest.Failing(func(cmd redis.Cmder) error {
			if args := cmd.Args(); cmd.Name() != "eval" && (cmd.Name() != "evalsha" || args[2] != 3) {
				asked++
			}
			return nil
		}))
		atSending := 99
		tr := w.transport(base(func(r *http.Request) (*http.Response, error) { atSending = asked; return ok(r) }),
			rules(w.limit("a", 5, time.Second)))
		get(t, tr, "http://x/")
		require.Zero(t, atSending, "only the acquire")
		require.Equal(t, 1, asked, "and the comparison of the rate, when the response was there")
	})
}
