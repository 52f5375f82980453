// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"iter"
	"math"
	"net"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

var contextType = reflect.TypeFor[context.Context]()

// methods returns the names of the exported methods of v that take a context.
func methods(v any) (names []string) {
	for t, i := reflect.TypeOf(v), 0; i < t.NumMethod(); i++ {
		if m := t.Method(i); m.Type.NumIn() > 1 && m.Type.In(1) == contextType {
			names = append(names, m.Name)
		}
	}
	return names
}

// callMethod calls a method of v, a *Client or a *RateLimiter, with valid arguments, and returns its error. The demands of
// a list are for a permit of each of the limiters.
func callMethod(v any, name string, ctx context.Context, limiters ...*RateLimiter) (err error) {
	args := map[reflect.Type]any{
		reflect.TypeFor[int64]():         int64(1),
		reflect.TypeFor[time.Duration](): time.Minute,
		reflect.TypeFor[time.Time]():     time.Now().Add(time.Minute),
		reflect.TypeFor[Rate]():          Rate{Permits: 1, Interval: time.Second},
	}
	in := []reflect.Value{reflect.Zero(contextType)}
	if ctx != nil {
		in[0] = reflect.ValueOf(ctx)
	}
	m := reflect.ValueOf(v).MethodByName(name)
	for j := 1; j < m.Type().NumIn(); j++ {
		switch t := m.Type().In(j); {
		case t == reflect.TypeFor[[]Demand]():
			for _, l := range limiters {
				in = append(in, reflect.ValueOf(Demand{l, 1}))
			}
		case !m.Type().IsVariadic() || j < m.Type().NumIn()-1:
			in = append(in, reflect.ValueOf(args[t]))
		}
	}
	out := m.Call(in)
	if seq, ok := out[0].Interface().(iter.Seq2[string, error]); ok {
		for _, err = range seq {
		}
		return err
	}
	err, _ = out[len(out)-1].Interface().(error)
	return err
}

// TestNilArguments checks that a context, a redis client or a Client that is nil is ErrInvalidArgument in
// each method, and never a panic, neither of the caller nor of a hook.
func TestNilArguments(t *testing.T) {
	redistest.NoServer(t)
	panics := 0
	noPanic := WithHook(Hook{Event: func(e Event) {
		if e.Kind == Panicked {
			panics++
		}
	}})

	hook := WithHook(Hook{Request: func(ctx context.Context, _ RequestInfo) { ctx.Done() }})
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	for _, c := range []struct {
		name   string
		client *Client
		ctx    context.Context
	}{
		{"no context", newClient(t, rdb, noPanic), nil},
		{"no context, with a hook", newClient(t, rdb, noPanic, hook), nil},
		{"no Client", nil, context.Background()},
		{"a Client that New has not made", &Client{}, context.Background()},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := c.client.RateLimiter("x")
			for _, v := range []any{c.client, l, l.OnOutage(FailOpen()), l.CachedRejections(time.Second)} {
				for _, method := range methods(v) {
					err := callMethod(v, method, c.ctx, l)
					require.ErrorIs(t, err, ErrInvalidArgument, method)
					require.NotContains(t, err.Error(), "panicked", method)
				}
			}
			require.Zero(t, panics)
			require.NoError(t, c.client.Close())
			_, _ = c.client.ID(), c.client.OutagePolicy()
		})
	}
	for _, v := range []any{&RateLimiter{}, (*RateLimiter)(nil), (*RateLimiter)(nil).WithRate(Rate{}).LeaveFree(1, 1).OnOutage(FailOpen()).CachedRejections(1), newClient(t, rdb)} {
		for _, method := range methods(v) {
			if method == "Ping" {
				continue // it is for no limiter
			}
			require.ErrorIs(t, callMethod(v, method, context.Background(), &RateLimiter{}), ErrInvalidArgument, method)
		}
	}
}

// TestErrorsBeforeAnyCall checks of each method that it returns the error of a context that has ended as it is, and that a
// limiter without a name and a Client that is closed are errors, before anything is sent.
func TestErrorsBeforeAnyCall(t *testing.T) {
	inWorld(t, overall(1, time.Hour), func(t *testing.T, w *world) {
		canceled, cancel := context.WithCancel(w.ctx)
		cancel()
		sent := count(w.rdb)
		each := func(ctx context.Context, l *RateLimiter, want error) {
			for _, v := range []any{l, w.client} {
				for _, method := range methods(v) {
					if method == "Ping" && l != w.l {
						continue // it is for no limiter
					}
					err := callMethod(v, method, ctx, l)
					require.ErrorIs(t, err, want, method)
					require.True(t, want != context.Canceled || err == want, method)
				}
			}
		}
		each(canceled, w.l, context.Canceled)
		require.Equal(t, context.Canceled, w.l.Acquire(canceled, -1), "the context comes first")
		each(w.ctx, w.client.RateLimiter(""), ErrInvalidArgument)
		require.NoError(t, w.client.Close())
		each(w.ctx, w.l, ErrClosed)
		require.Zero(t, sent.sent.Load())
	})
}

// dialing returns a Client whose connections are made by dial.
func dialing(t *testing.T, dial func() (net.Conn, error), opts ...Option) *Client {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: func(context.Context, string, string) (net.Conn, error) { return dial() }})
	c := newClient(t, rdb, opts...)
	t.Cleanup(func() {
		_, _ = c.Close(), rdb.Close()
		time.Sleep(time.Minute) // go-redis goes on dialing
	})
	return c
}

func reject() (net.Conn, error) { return nil, refusedDial }

// frozen returns a connection on which nobody replies.
func frozen() (net.Conn, error) {
	c, far := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, far) }()
	return c, nil
}

// waitsForRedis are the methods that wait while Redis is unavailable.
var waitsForRedis = []string{"Acquire", "TryAcquire", "AcquireGrant", "TryAcquireGrant", "AcquireAll", "TryAcquireAll", "TryAcquireAllGrants"}

// documented returns the doc comments of the exported methods, by type and name.
func documented(t *testing.T) map[string]string {
	docs := map[string]string{}
	files := must(os.ReadDir("."))(t)
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		file := must(parser.ParseFile(token.NewFileSet(), f.Name(), nil, parser.ParseComments))(t)
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
				if star, ok := fn.Recv.List[0].Type.(*ast.StarExpr); ok {
					docs["*ratelimiter."+star.X.(*ast.Ident).Name+"."+fn.Name.Name] = fn.Doc.Text()
				}
			}
		}
	}
	return docs
}

// TestUnavailable checks of each method that it returns ErrUnavailable with the cause if Redis cannot be reached, that it
// returns at once as soon as that is known, and that its comment says so.
func TestUnavailable(t *testing.T) {
	redistest.NoServer(t)
	docs := documented(t)
	for _, dial := range []func() (net.Conn, error){reject, frozen} {
		synctest.Test(t, func(t *testing.T) {
			c := dialing(t, dial, WithOutageLimit(time.Second))
			l, other := c.RateLimiter("x"), c.RateLimiter("y")
			for range 2 {
				_, err := l.Rate(t.Context())
				require.ErrorIs(t, err, ErrUnavailable)
			}
			_, down := l.handle.Health().Since()
			require.Error(t, down)
			for _, v := range []any{l, c} {
				for _, method := range methods(v) {
					require.Contains(t, docs[reflect.TypeOf(v).String()+"."+method], "ErrUnavailable", method)
					if method == "Ping" || slices.Contains(waitsForRedis, method) {
						continue // Ping asks in any case
					}
					begin := time.Now()
					err := callMethod(v, method, t.Context(), l, other)
					require.Zero(t, time.Since(begin), method)
					require.ErrorIs(t, err, ErrUnavailable, method)
					require.ErrorContains(t, err, down.Error(), method)
					require.Regexp(t, `\(.*check .*\)$`, err.Error(), "what to do next")
					require.NotContains(t, err.Error(), "_", "the name of a script")
				}
			}
			for i, v := range []any{l, l, l, l, c, c, c} {
				err := callMethod(v, waitsForRedis[i], t.Context(), l, other)
				require.ErrorIs(t, err, ErrUnavailable, waitsForRedis[i])
			}
		})
	}
}

// TestNoReplyBeforeContextEnds checks of each method that a caller whose context ends before Redis is known to be
// unavailable learns that there has been no reply, and why, as far as that is known.
func TestNoReplyBeforeContextEnds(t *testing.T) {
	redistest.NoServer(t)
	for _, d := range []time.Duration{20 * time.Millisecond, 510 * time.Millisecond, 1500 * time.Millisecond} {
		for _, end := range []error{context.DeadlineExceeded, context.Canceled} {
			for _, silent := range []bool{false, true} {
				for i, method := range append(methods(&RateLimiter{}), methods(&Client{})...) {
					t.Run(fmt.Sprintf("%v %v %v %v", method, d, end, silent), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							dial := reject
							if silent {
								dial = frozen
							}
							c := dialing(t, dial)
							l := c.RateLimiter("x")
							v := any(l)
							if i >= len(methods(l)) {
								v = c
							}
							ctx, cancel := context.WithTimeout(t.Context(), d)
							if end == context.Canceled {
								ctx, cancel = context.WithCancel(t.Context())
								time.AfterFunc(d, cancel)
							}
							defer cancel()
							begin := time.Now()
							err := callMethod(v, method, ctx, l, c.RateLimiter("y"))
							require.ErrorIs(t, err, ErrUnavailable)
							if time.Since(begin) == d {
								require.ErrorIs(t, err, end)
								require.Regexp(t, `\(.*check .*\)`, err.Error(), "what to do next")
								if silent || d < 400*time.Millisecond { // otherwise it is known that Redis is down, and why
									require.ErrorContains(t, err, "no reply within")
								}
							} else {
								require.Less(t, time.Since(begin), d)
							}
							if !silent && d > 450*time.Millisecond { // go-redis dials five times before it gives up
								require.ErrorIs(t, err, syscall.ECONNREFUSED)
							}
							t.Log(err)
						})
					})
				}
			}
		}
	}
}

// TestTypeThatKeepsChanging checks that every call which depends on the type of a limiter returns ErrConflict when
// others change the type again and again, that no such call takes anything, and that the next one works.
func TestTypeThatKeepsChanging(t *testing.T) {
	inWorld(t, overall(10, time.Hour), func(t *testing.T, w *world) {
		other := w.client.RateLimiter(w.l.Name() + "{" + w.l.Name() + "}")
		require.NoError(t, other.SetRate(w.ctx, overall(10, time.Hour)))
		peer, on := redistest.Peer(t, w.rdb), false
		onScripts(w.rdb, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if on { // it has another type than a client expects before each of its calls
				peer.HSet(ctx, w.l.redis.Keys.Hash, "type", int(w.l.redis.Type().Other()))
			}
			return next(ctx, cmd)
		})
		for name, call := range map[string]func() error{
			"Try":              func() error { _, err := w.l.Allow(w.ctx, 1); return err },
			"TryAcquire":       func() error { _, err := w.l.TryAcquire(w.ctx, 1, time.Second); return err },
			"Acquire":          func() error { return w.l.Acquire(w.ctx, 1) },
			"Peek":             func() error { _, err := w.l.Peek(w.ctx, 1); return err },
			"AvailablePermits": func() error { _, err := w.l.AvailablePermits(w.ctx); return err },
			"Release":          func() error { return w.l.Release(w.ctx, 1) },
			"Inspect":          func() error { _, err := w.l.Admin().Inspect(w.ctx); return err },
			"CoolDown":         func() error { return w.l.CoolDown(w.ctx, time.Now().Add(time.Minute)) },
			"LiftCoolDown":     func() error { _, err := w.l.Admin().LiftCoolDown(w.ctx); return err },
			"TryAcquireAll": func() error {
				_, err := w.client.TryAcquireAll(w.ctx, 0, Demand{Limiter: w.l, Permits: 1}, Demand{Limiter: other, Permits: 1})
				return err
			},
		} {
			on = true
			err := call()
			on = false
			require.ErrorIs(t, err, ErrConflict, name)
			require.NotErrorIs(t, err, ErrUnavailable, name)
			require.ErrorContains(t, err, w.l.Name(), name)
			n, err := w.l.AvailablePermits(w.ctx)
			require.NoError(t, err, name)
			require.Equal(t, int64(10), n, name)
		}
	})
}

// Errors of plain commands have the name of the limiter, and the error of a context is unchanged.
func TestPlainCommandErrors(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		cause := errors.New("out of order")
		f := (&forger{err: cause}).on(w.rdb)
		ctx, cancel := context.WithCancel(w.ctx)
		for _, op := range []func() error{
			func() error { _, err := w.l.Rate(ctx); return err },
			func() error { _, err := w.l.Admin().TTL(ctx); return err },
			func() error { _, err := w.l.Admin().Exists(ctx); return err },
		} {
			require.ErrorIs(t, op(), cause)
			require.ErrorContains(t, op(), w.l.Name())
		}
		f.err = context.Canceled
		cancel()
		_, err := w.l.Rate(ctx)
		require.True(t, err == context.Canceled)
	})
}

// TestWaitsBeyondADuration checks intervals and cool-downs too long for a time.Duration, which Java can set. The
// waits reported are then as long as a Duration can be, and waiters send no more calls than usual.
func TestWaitsBeyondADuration(t *testing.T) {
	for _, ms := range []int64{9_000_000_000_000, 10_000_000_000_000, 1 << 52} {
		inWorld(t, overall(2, time.Second), func(t *testing.T, w *world) {
			require.NoError(t, w.rdb.HSet(w.ctx, w.l.redis.Keys.Hash, "interval", ms).Err())
			w.granted(1)
			w.granted(1)
			r := w.try(1)
			require.False(t, r.Granted)
			require.Greater(t, r.Wait, 200*365*24*time.Hour)
			require.Greater(t, r.Rate.Interval, 200*365*24*time.Hour)
			require.Equal(t, must(w.l.Rate(w.ctx))(t), r.Rate, "Rate and Allow agree")

			sent := count(w.rdb)
			other := w.client.RateLimiter(w.l.Name() + "other")
			require.NoError(t, other.SetRate(w.ctx, overall(2, time.Second)))
			before := sent.sent.Load()
			require.False(t, must(w.l.TryAcquire(w.ctx, 1, time.Minute))(t))
			require.LessOrEqual(t, sent.sent.Load()-before, int64(75), "once a second, and the looks for lost permits")
			before = sent.sent.Load()
			a := must(w.client.TryAcquireAll(w.ctx, time.Minute, Demand{w.l, 1}, Demand{other, 1}))(t)
			require.False(t, a.Granted)
			require.Positive(t, a.Wait)
			require.LessOrEqual(t, sent.sent.Load()-before, int64(600))
		})
	}
	for _, permits := range []int64{1, 2, 100} { // of which a minute's rejections ask for all, or not
		inWorld(t, overall(permits, time.Second), func(t *testing.T, w *world) {
			until := int64(math.MaxInt64 / 2)
			require.NoError(t, w.l.CoolDown(w.ctx, time.Now().Add(time.Hour)))
			require.NoError(t, w.rdb.HSet(w.ctx, w.l.redis.Keys.Hash, "coolDown", until).Err())
			r := w.try(1)
			require.False(t, r.Granted)
			require.Positive(t, r.Wait)
			sent := count(w.rdb)
			require.False(t, must(w.l.TryAcquire(w.ctx, 1, time.Minute))(t))
			require.LessOrEqual(t, sent.sent.Load(), int64(65), "once a second; a look for lost permits is no call of its own")
			must(w.l.Admin().CoolDownUntil(w.ctx))(t)
		})
	}
}

// TestRateAndTryAgreeOnWhatIsMalformed checks that all operations fail with the same error for the same malformed
// limiter, and that none of them returns a number for it.
func TestRateAndTryAgreeOnWhatIsMalformed(t *testing.T) {
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		values := []string{"2000", "", "0", "1", "-1", "+1", "01", "1.0", "1.5", "1e3", "0x10", " 1", "1 ", "x", "nan", "-nan", "inf", "-inf", "infinity", "1e999",
			"9007199254740992", "9007199254740993", "9223372036854775807", "9223372036854775808", "1e400", "10000000000000000", "\x00", "1\n",
			strconv.FormatInt(time.Now().Add(24*time.Hour).UnixMilli(), 10) + ".5", "4102444800000.25"}
		for _, field := range []string{"rate", "interval", "type", "keepAliveTime", "minGap", "coolDown", "reopenUntil", "keptUntil"} {
			for _, v := range values {
				if (strings.ContainsAny(v, "einx") || len(v) > 18) && redistest.TTLsAreVirtual() {
					continue // the Lua of miniredis does not parse these
				}
				require.NoError(t, w.rdb.Del(w.ctx, w.l.redis.Keys.Hash, w.valueKey(), w.permitsKey()).Err())
				hash := map[string]any{"rate": "5", "interval": "1000", "keepAliveTime": "0", "type": "0"}
				hash[field] = v
				if field == "coolDown" || field == "reopenUntil" {
					hash["keepAliveTime"] = "5000" // which a cool-down makes longer
				}
				set := func() { // before each operation, because a keepAliveTime of 1 ms is soon over
					_, err := w.rdb.TxPipelined(w.ctx, func(p redis.Pipeliner) error {
						p.Del(w.ctx, w.l.redis.Keys.Hash)
						return p.HSet(w.ctx, w.l.redis.Keys.Hash, hash).Err()
					})
					require.NoError(t, err)
				}
				what := func(err error) string {
					for _, e := range []error{ErrMalformed, ErrNotInitialized, ErrPermitsExceedRate} {
						if errors.Is(err, e) {
							return e.Error()
						}
					}
					if err != nil {
						return "another error: " + err.Error()
					}
					return "none"
				}
				set()
				want, r, n := what(errOf(w.l.Rate(w.ctx))), Result{}, int64(0)
				for name, call := range map[string]func() error{
					"Allow": func() (err error) { r, err = w.l.Allow(w.ctx, 1); return err },
					"TryAcquireAll": func() error { // one in a cool-down of centuries must not wait
						return errOf(w.client.TryAcquireAll(w.ctx, 0, Demand{w.l, 1}))
					},
					"Peek":    func() error { return errOf(w.l.Peek(w.ctx, 1)) },
					"Inspect": func() error { return errOf(w.l.Admin().Inspect(w.ctx)) },
					"Release": func() error { return w.l.Release(w.ctx, 1) },
					"AvailablePermits": func() (err error) {
						if n, err = w.l.AvailablePermits(w.ctx); err != nil {
							require.Zero(t, n, "%s %q", field, v)
						}
						return err
					},
				} {
					set()
					err := call()
					if name != "AvailablePermits" || field != "keepAliveTime" { // which it does not need, because it keeps nothing alive
						require.Equal(t, want, what(err), "%s %q: %s", field, v, name)
					}
				}
				require.GreaterOrEqual(t, r.Rate.MinGap, time.Duration(0), "%s %q", field, v)
				require.LessOrEqual(t, r.Rate.MinGap, max(0, r.Rate.Interval), "%s %q", field, v)
				require.GreaterOrEqual(t, n, int64(0), "%s %q", field, v)
			}
		}
	})
}

// TestPanicsAreContained checks that a panic in a hook of go-redis fails the request, is reported, and stops nothing else.
func TestPanicsAreContained(t *testing.T) {
	h := &ledger{}
	inWorld(t, overall(5, time.Second), func(t *testing.T, w *world) {
		w.granted(1)
		var panics atomic.Bool
		panics.Store(true)
		onCommands(w.rdb, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if panics.Load() {
				panic("hook")
			}
			return next(ctx, cmd)
		})
		for _, v := range []any{w.l, w.client} {
			for _, method := range methods(v) {
				ctx, cancel := context.WithTimeout(w.ctx, time.Second)
				require.ErrorIs(t, callMethod(v, method, ctx, w.l, w.client.RateLimiter(w.l.Name()+"2")), ErrUnavailable, method)
				cancel()
			}
		}
		panics.Store(false)
		time.Sleep(10 * time.Second)
		w.granted(5)
		e := h.events[0]
		require.Equal(t, Panicked, e.Kind)
		require.ErrorContains(t, e.Err, "hook")
		require.Equal(t, w.l.Name(), e.Limiter)
	}, WithHook(h.hook()))
}

// TestPing checks how Ping ends. The programs of the documentation show what it says of wrong settings; see docs.
func TestPing(t *testing.T) {
	inWorld(t, overall(1, time.Second), func(t *testing.T, w *world) {
		require.NoError(t, w.client.Ping(w.ctx))
		canceled, cancel := context.WithCancel(w.ctx)
		cancel()
		require.Equal(t, context.Canceled, w.client.Ping(canceled))
		var none context.Context
		require.ErrorIs(t, w.client.Ping(none), ErrInvalidArgument)
		require.ErrorIs(t, (*Client)(nil).Ping(w.ctx), ErrInvalidArgument)

		c := cutOff(w, refusedDial)
		c.down.Store(true)
		err := w.client.Ping(w.ctx)
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorIs(t, err, refusedDial)
		require.ErrorContains(t, err, "(nothing listens there; check host and port)")
		require.False(t, w.l.handle.Health().Down(), "it decides nothing about outages")
		c.failsWith(redisError("WRONGPASS no"))
		err = w.client.Ping(w.ctx)
		require.NotErrorIs(t, err, ErrUnavailable)
		require.ErrorContains(t, err, "ratelimiter: Ping: WRONGPASS no (check Username and Password")
		c.down.Store(false)

		onCommands(w.rdb, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if ctx.Err() == nil {
				time.Sleep(time.Minute)
			}
			return next(ctx, cmd)
		})
		require.NoError(t, w.client.Ping(w.ctx), "a new connection has a reply")
		dial := w.rdb.Options().Dialer
		w.rdb.Options().Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			time.Sleep(time.Minute)
			return dial(ctx, network, addr)
		}
		begun := w.elapsed()
		err = w.client.Ping(w.ctx)
		require.ErrorIs(t, err, ErrUnavailable)
		require.Equal(t, begun+2*time.Second, w.elapsed())
		left, cancel := context.WithTimeout(w.ctx, time.Second)
		defer cancel()
		err = w.client.Ping(left)
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, begun+3*time.Second, w.elapsed())
		time.Sleep(time.Hour)
		require.NoError(t, w.client.Close())
		require.Equal(t, ErrClosed, w.client.Ping(w.ctx))
	})
}

// After a lost reply the call is sent again, and what was granted once is taken once.
func TestLostReplyIsAskedForAgain(t *testing.T) {
	for _, lost := range []int64{1, 2, 3} {
		inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
			f := inject(w, true, io.EOF)
			f.left.Store(lost)
			w.granted(4)
			require.Zero(t, f.left.Load())
			require.EqualValues(t, 6, w.value())
			used, members := w.used()
			require.EqualValues(t, 4, used)
			require.Equal(t, 1, members)
		})
	}
	// Also with the last permits, when the call that is sent again finds none left but its own grant.
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		f := inject(w, true, io.EOF)
		f.left.Store(1)
		w.granted(10)
		require.Zero(t, w.value())
	})
}

// TestReleaseIsNotSentAgain checks that a release whose reply is lost is not sent again: it would give back what others hold.
func TestReleaseIsNotSentAgain(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.granted(5)
		require.NoError(t, w.l.Release(w.ctx, 1))
		f := inject(w, true, io.EOF)
		f.left.Store(1)
		require.ErrorIs(t, w.l.Release(w.ctx, 1), io.EOF)
		require.EqualValues(t, 1, f.sent.Load())
		w.available(7)
	})
}

// TestListThatIsSentAgain checks that a list which something below this package sends again takes its permits once,
// and that it is granted what it was granted the first time even if there would be too little for a second time.
func TestListThatIsSentAgain(t *testing.T) {
	inResends(t, overall(10, time.Minute), func(t *testing.T, w *world, twice *resender) {
		l := append(w.others(overall(10, time.Minute), Rate{Type: PerClient, Permits: 10, Interval: time.Minute}), w.l)
		for i := range 3 {
			r := must(w.client.TryAcquireAll(w.ctx, 0, Demand{l[0], 3}, Demand{l[1], 2}, Demand{l[2], 1}))(t)
			w.same(AllResult{Granted: true}, r)
			for j, each := range []int64{3, 2, 1} {
				left := 10 - each*int64(i+1)
				w.has(l[j], left)
				w.holds(l[j], 10, 10-left)
			}
		}
		// One permit of the first is left. A rejection is a rejection both times.
		r := must(w.client.TryAcquireAll(w.ctx, 0, Demand{l[0], 2}, Demand{l[1], 1}))(t)
		w.same(AllResult{RejectedBy: l[0], Wait: time.Minute}, r)
		w.has(l[1], 4)
		// What expires meanwhile is reclaimed once.
		w.at(time.Minute)
		r = must(w.client.TryAcquireAll(w.ctx, 0, Demand{l[0], 7}, Demand{l[1], 5}))(t)
		w.same(AllResult{Granted: true}, r)
		for j, used := range []int64{7, 5} {
			w.holds(l[j], 10, used)
		}
	})
}

// TestReservationThatIsSentAgain checks the same for permits that a list reserves.
func TestReservationThatIsSentAgain(t *testing.T) {
	for _, free := range []int64{9, 5, 4, 2} {
		inResends(t, overall(10, time.Minute), func(t *testing.T, w *world, twice *resender) {
			twice.on.Store(false)
			w.granted(10 - free)
			twice.on.Store(true)
			v := permit.Reservation{ID: w.client.redis.NewID()}
			for _, want := range []int64{4, 3, 4, 0, 1} {
				v.Want = want
				a := must(w.l.redis.Reserve(w.ctx, v))(t)
				if want > free { // all or nothing
					want = min(want, v.Held)
				}
				require.Equal(t, want, a.Held)
				w.holds(w.l, 10, 10-free+a.Held)
				v.Held = a.Held
			}
		})
	}
}

// TestOperationsThatAreSentAgain checks that value and the members add up to the rate after every other script that is
// sent again, and that all but a release, which nothing identifies, have the effect of one.
func TestOperationsThatAreSentAgain(t *testing.T) {
	for _, rate := range []Rate{overall(10, time.Minute), {Type: PerClient, Permits: 10, Interval: time.Minute}} {
		inResends(t, rate, func(t *testing.T, w *world, twice *resender) {
			holds := func(total, used int64) {
				t.Helper()
				w.holds(w.l, total, used)
			}
			w.granted(3)
			holds(10, 3)
			w.granted(2)
			w.granted(2)
			w.rejected(4, time.Minute)
			holds(10, 7)
			id := w.client.redis.NewID()
			grant := permit.Grant{ID: id.Run(0), Permits: 3}
			twice.on.Store(false)
			a := w.ask(permit.Batch{ID: id, Type: permit.Type(rate.Type), Runs: []permit.Run{{Permits: 3, Count: 1}}})
			require.EqualValues(t, 1, a.Granted[0])
			twice.on.Store(true)
			grant.Keep = 1
			require.NoError(t, w.l.redis.Refund(w.ctx, permit.Type(rate.Type), grant))
			holds(10, 8)
			require.NoError(t, w.l.Release(w.ctx, 2)) // twice
			holds(10, 4)
			lower := rate
			lower.Permits = 3
			require.NoError(t, w.l.SetRate(w.ctx, lower, KeepState()))
			holds(3, 4)
			require.NoError(t, w.l.SetRate(w.ctx, rate, KeepState()))
			holds(10, 4)
			require.NoError(t, healed(w.ctx, w.l, permit.Type(rate.Type), permit.Checked))
			holds(10, 4)
			require.NoError(t, w.l.CoolDown(w.ctx, w.epoch.Add(time.Hour)))
			holds(10, 10)
			require.False(t, must(w.l.Admin().LiftCoolDown(w.ctx))(t), "the second one found none")
			holds(10, 4)
			require.False(t, must(w.l.TrySetRate(w.ctx, lower))(t))
			must(w.l.Admin().Expire(w.ctx, time.Hour))(t)
			must(w.l.Admin().ClearExpire(w.ctx))(t)
			w.available(6)
			holds(10, 4)
			w.at(time.Minute)
			w.granted(4)
			holds(10, 4)
			require.False(t, must(w.l.Admin().Delete(w.ctx))(t), "the second one found nothing")
			require.Zero(t, w.rdb.Exists(w.ctx, keysAll(w.l, Overall)...).Val())
		})
	}
}

// overfill puts a state into the keys that holds 900 permits more than the rate of 2,000, in a set of 1,300 members
// of up to three permits, which is too large for one call.
func (w *world) overfill() {
	w.t.Helper()
	for i := range 1300 {
		w.put(time.Duration(i)*time.Millisecond-2*time.Second, grant(uint32(1+i%3)))
	}
	used, _ := w.used()
	w.setValue(2900 - used)
}

// TestHealThatIsSentAgain checks that what is too much is taken out of a large set once, and to the permit, if something
// below this package sends the request again: the grants behind it are in use, and their permits must not be free.
func TestHealThatIsSentAgain(t *testing.T) {
	for _, first := range []bool{false, true} {
		inResends(t, overall(2000, time.Minute), func(t *testing.T, w *world, twice *resender) {
			twice.only, twice.first = scripts.Heal, first
			w.overfill()
			used, _ := w.used()
			require.NoError(t, healed(w.ctx, w.l, permit.Overall, permit.Checked))
			w.holds(w.l, 2000, used-900)
		})
	}
}
