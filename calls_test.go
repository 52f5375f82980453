package ratelimiter

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"iter"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
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
	for _, v := range []any{&RateLimiter{}, newClient(t, rdb)} {
		for _, method := range methods(v) {
			require.ErrorIs(t, callMethod(v, method, context.Background(), &RateLimiter{}), ErrInvalidArgument, method)
		}
	}
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
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, parser.ParseComments)
		require.NoError(t, err)
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
					if slices.Contains(waitsForRedis, method) {
						continue
					}
					begin := time.Now()
					err := callMethod(v, method, t.Context(), l, other)
					require.Zero(t, time.Since(begin), method)
					require.ErrorIs(t, err, ErrUnavailable, method)
					require.ErrorContains(t, err, down.Error(), method)
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
	for _, d := range []time.Duration{20 * time.Millisecond, 500 * time.Millisecond, 1500 * time.Millisecond} {
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
								require.ErrorContains(t, err, "no reply within")
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
