// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"io"
	"net"
	"reflect"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// allCalls returns every way to ask l, which may be nil.
func allCalls(l Limiter) map[string]func(context.Context) error {
	calls := map[string]func(context.Context) error{
		"Wait":        func(ctx context.Context) error { return Wait(ctx, l, 1) },
		"WaitTimeout": func(ctx context.Context) error { _, err := WaitTimeout(ctx, l, 1, time.Minute); return err },
	}
	v := reflect.ValueOf(l)
	for i := 0; v.IsValid() && i < v.NumMethod(); i++ {
		m := v.Method(i)
		if m.Type().NumIn() == 0 || m.Type().In(0) != reflect.TypeFor[context.Context]() {
			continue
		}
		calls[v.Type().Method(i).Name] = func(ctx context.Context) error {
			var in []reflect.Value
			for i := range m.Type().NumIn() {
				switch of := m.Type().In(i); {
				case i == 0 && ctx != nil:
					in = append(in, reflect.ValueOf(ctx))
				case of.Kind() == reflect.Int64:
					in = append(in, reflect.ValueOf(int64(1)).Convert(of))
				case !m.Type().IsVariadic() || i < m.Type().NumIn()-1:
					in = append(in, reflect.Zero(of))
				}
			}
			out := m.Call(in)
			err, _ := out[len(out)-1].Interface().(error)
			return err
		}
	}
	return calls
}

// TestNilArguments checks that a context, a redis client or a limiter that is nil is ErrInvalidArgument.
func TestNilArguments(t *testing.T) {
	redistest.NoServer(t)
	a := GCRA{Rate: ratelimiter.Rate{Permits: 1, Interval: time.Second}, Burst: 1}
	for _, rdb := range []redis.UniversalClient{nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil), (*redis.Ring)(nil)} {
		_, err := NewShared(rdb, "x", a)
		require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
	}
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	told := 0
	hook := ratelimiter.Hook{
		Request: func(ctx context.Context, _ ratelimiter.RequestInfo) { ctx.Done() },
		Event:   func(ratelimiter.Event) { told++ },
	}
	shared := redistest.Must(NewShared(rdb, "x", a, WithHook(hook), WithHook(hook)))(t)
	local := redistest.Must(NewLocal(a))(t)
	for _, l := range []Limiter{shared, local, clienttest.New(t, rdb).RateLimiter("x"), (*ratelimiter.RateLimiter)(nil), nil} {
		for name, call := range allCalls(l) {
			require.ErrorIs(t, call(nil), ratelimiter.ErrInvalidArgument, name)
			if l == nil || reflect.ValueOf(l).IsNil() {
				require.ErrorIs(t, call(context.Background()), ratelimiter.ErrInvalidArgument, name)
			}
		}
	}
	require.Zero(t, told, "a hook panicked")
}

// TestZeroValues: a limiter that its function did not return says so, and its methods without a context do not panic.
func TestZeroValues(t *testing.T) {
	local := (&Local{})
	for _, l := range []Limiter{&Shared{}, (*Shared)(nil), (&Shared{}).For("key"), (*Shared)(nil).For("key"), local, (*Local)(nil), &ratelimiter.RateLimiter{}, (*ratelimiter.RateLimiter)(nil)} {
		calls := allCalls(l)
		require.Greater(t, len(calls), 3)
		for name, call := range calls {
			require.ErrorIs(t, call(t.Context()), ratelimiter.ErrInvalidArgument, "%T.%s", l, name)
		}
		v := reflect.ValueOf(l)
		for i := range v.NumMethod() {
			if m := v.Method(i); m.Type().NumIn() == 0 {
				require.NotPanics(t, func() { m.Call(nil) }, "%T.%s", l, v.Type().Method(i).Name)
			}
		}
	}
	require.ErrorIs(t, (*Grant)(nil).Cancel(t.Context()), ratelimiter.ErrInvalidArgument)
	require.Zero(t, (*Grant)(nil).Permits())
}

// TestNoReplyBeforeContextEnds checks that a caller whose context ends before there has been a reply is told so, and why,
// as far as that is known.
func TestNoReplyBeforeContextEnds(t *testing.T) {
	redistest.NoServer(t)
	rejected := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for silent, dial := range []func(context.Context, string, string) (net.Conn, error){
		func(context.Context, string, string) (net.Conn, error) { return nil, rejected },
		func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, far) }()
			return near, nil
		},
	} {
		// Silence is an outage after 1.5 s, a refusal at half a second.
		for _, d := range []time.Duration{510 * time.Millisecond, 1200 * time.Millisecond} {
			for name := range allCalls(&Shared{}) {
				synctest.Test(t, func(t *testing.T) {
					rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: dial})
					var opts []Option
					if name == "Start" { // which does nothing otherwise
						opts = []Option{WithFleetParameters(KeepState)}
					}
					l := redistest.Must(NewShared(rdb, "x", GCRA{Rate: ratelimiter.Rate{Permits: 1, Interval: time.Second}, Burst: 1}, opts...))(t)
					ctx, cancel := context.WithTimeout(t.Context(), d)
					defer cancel()
					err := allCalls(l.For("tok-12345678"))[name](ctx)
					require.ErrorIs(t, err, ratelimiter.ErrUnavailable, name)
					require.NotContains(t, err.Error(), "tok-", "%s: the key may be a token", name)
					if silent == 0 {
						require.ErrorIs(t, err, syscall.ECONNREFUSED, name)
					} else {
						require.ErrorIs(t, err, context.DeadlineExceeded, name)
						require.ErrorContains(t, err, "no reply within "+d.String(), name)
					}
					require.NoError(t, rdb.Close())
					time.Sleep(time.Minute) // go-redis goes on dialing
				})
			}
		}
	}
}
