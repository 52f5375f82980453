// SPDX-License-Identifier: Apache-2.0

package grpclimit

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit/inbound"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// A world is a real server of gRPC on the loopback device, whose limits are in a Redis.
type world struct {
	t      *testing.T
	client *ratelimiter.Client
	rdb    *redis.Client
	key    string
	socket string                      // where the server listens; empty for a port
	served atomic.Int64                // calls that came to a handler
	tried  atomic.Int64                // calls that came to the server
	last   atomic.Pointer[metadata.MD] // of the last call that was served
}

func newWorld(t *testing.T) *world {
	rdb := redistest.Client(t)
	w := &world{t: t, rdb: rdb, client: clienttest.New(t, rdb), key: redistest.Key(t)}
	t.Cleanup(func() { _ = w.client.Close() })
	return w
}

func (w *world) middleware(name string, r ratelimiter.Rate, opts ...inbound.Option) *inbound.Middleware {
	w.t.Helper()
	m, err := inbound.New(w.client, w.key+name, r, opts...)
	require.NoError(w.t, err)
	return m
}

const get, other, chat = "/test.Service/Get", "/test.Service/Other", "/test.Service/Chat"

// service has two unary methods, and a stream that sends each message back.
func (w *world) service() *grpc.ServiceDesc {
	unary := func(name string) grpc.MethodDesc {
		return grpc.MethodDesc{MethodName: name, Handler: func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			in := new(emptypb.Empty)
			if err := dec(in); err != nil {
				return nil, err
			}
			return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/test.Service/" + name}, func(ctx context.Context, in any) (any, error) {
				w.served.Add(1)
				md, _ := metadata.FromIncomingContext(ctx)
				w.last.Store(&md)
				return in, nil
			})
		}}
	}
	return &grpc.ServiceDesc{ServiceName: "test.Service", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{unary("Get"), unary("Other")},
		Streams: []grpc.StreamDesc{{StreamName: "Chat", ClientStreams: true, ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
			w.served.Add(1)
			for {
				in := new(emptypb.Empty)
				if err := stream.RecvMsg(in); err == io.EOF {
					return nil
				} else if err != nil {
					return err
				}
				if err := stream.SendMsg(in); err != nil {
					return err
				}
			}
		}}}}
}

// serve starts a server with the interceptors, and returns a connection of a client with that service config.
func (w *world) serve(serviceConfig string, unary grpc.UnaryServerInterceptor, streams ...grpc.StreamServerInterceptor) *grpc.ClientConn {
	w.t.Helper()
	count := func(ctx context.Context, in any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		w.tried.Add(1)
		return next(ctx, in)
	}
	s := grpc.NewServer(grpc.ChainUnaryInterceptor(count, unary), grpc.ChainStreamInterceptor(streams...))
	s.RegisterService(w.service(), nil)
	healthpb.RegisterHealthServer(s, health.NewServer())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	target := "dns:///"
	if w.socket != "" {
		l, err = net.Listen("unix", w.socket)
		target = "unix:"
	}
	require.NoError(w.t, err)
	go func() { _ = s.Serve(l) }()
	w.t.Cleanup(s.Stop)
	cc, err := grpc.NewClient(target+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithMaxHeaderListSize(8<<10))
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// call makes one call, of a user.
func call(t *testing.T, cc *grpc.ClientConn, method, user string, opts ...grpc.CallOption) error {
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-user", user)
	return cc.Invoke(ctx, method, new(emptypb.Empty), new(emptypb.Empty), opts...)
}

// retryDelay returns the delay of RetryInfo in a status, and 0 where there is none.
func retryDelay(t *testing.T, err error) time.Duration {
	for _, d := range status.Convert(err).Details() {
		info, ok := d.(*errdetails.RetryInfo)
		require.True(t, ok)
		return info.GetRetryDelay().AsDuration()
	}
	return 0
}

// TestCalls: each method and each user has permits of its own, and a call without any says when to come again.
func TestCalls(t *testing.T) {
	w := newWorld(t)
	m := w.middleware("", ratelimiter.Rate{Permits: 1, Interval: time.Hour}, inbound.WithKeys(inbound.ByPattern(nil), inbound.ByHeader("x-user")),
		inbound.WithFailures(func(_ *http.Request, err error) { t.Error(err) }))
	cc := w.serve("{}", UnaryServerInterceptor(m), StreamServerInterceptor(m))
	for i, c := range []struct {
		method, user string
		code         codes.Code
	}{
		{get, "ann", codes.OK}, {get, "ann", codes.ResourceExhausted}, {get, "bob", codes.OK}, {other, "ann", codes.OK}, {other, "ann", codes.ResourceExhausted},
	} {
		var header, trailer metadata.MD
		err := call(t, cc, c.method, c.user, grpc.Header(&header), grpc.Trailer(&trailer))
		require.Equal(t, c.code, status.Code(err), i)
		if c.code == codes.OK {
			require.Contains(t, header.Get("ratelimit")[0], ";r=0")
			continue
		}
		require.Empty(t, header.Get("ratelimit"))
		require.Contains(t, trailer.Get("ratelimit")[0], ";r=0;t=")
		require.InDelta(t, time.Hour, retryDelay(t, err), float64(time.Minute))
		require.Len(t, trailer.Get("grpc-retry-pushback-ms")[0], len("3599000"))
	}
	require.EqualValues(t, 3, w.served.Load())

	stream := func() error {
		s, err := cc.NewStream(t.Context(), &w.service().Streams[0], chat)
		require.NoError(t, err)
		require.NoError(t, s.CloseSend())
		return s.RecvMsg(new(emptypb.Empty))
	}
	require.Equal(t, io.EOF, stream())
	require.Equal(t, codes.ResourceExhausted, status.Code(stream()))
}

// TestMessages: a stream ends at the message that is one too many, whichever stream took the others.
func TestMessages(t *testing.T) {
	w := newWorld(t)
	m := w.middleware("", ratelimiter.Rate{Permits: 3, Interval: time.Hour})
	cc := w.serve("{}", UnaryServerInterceptor(m), MessageServerInterceptor(m))
	for _, granted := range []int{2, 1} {
		s, err := cc.NewStream(t.Context(), &w.service().Streams[0], chat)
		require.NoError(t, err)
		for range granted {
			require.NoError(t, s.SendMsg(new(emptypb.Empty)))
			require.NoError(t, s.RecvMsg(new(emptypb.Empty)))
		}
		if granted == 2 {
			require.NoError(t, s.CloseSend())
			require.Equal(t, io.EOF, s.RecvMsg(new(emptypb.Empty)), "the end takes no permit")
			continue
		}
		require.NoError(t, s.SendMsg(new(emptypb.Empty)))
		err = s.RecvMsg(new(emptypb.Empty))
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		require.NotZero(t, retryDelay(t, err))
	}
}

// TestManyMessages: what tells a limit is sent once for a stream, so that a client takes the header whose list of fields is
// 8 KiB at most. The trailer tells of the last message that was not served.
func TestManyMessages(t *testing.T) {
	const messages = 20_000
	w := newWorld(t)
	rate := ratelimiter.Rate{Permits: messages, Interval: time.Hour}
	window, err := limit.NewLocal(limit.FixedWindow{Rate: ratelimiter.Rate{Permits: messages, Interval: 1000 * time.Hour}})
	require.NoError(t, err)
	m, err := inbound.NewRules(nil, []inbound.Rule{{Name: "messages", Rate: rate, LimiterFor: func(string) limit.Limiter { return window }}}, inbound.WithXRateLimit())
	require.NoError(t, err)
	count := func(_ any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, _ grpc.StreamHandler) error {
		served, in := 0, new(emptypb.Empty)
		for {
			switch err := stream.RecvMsg(in); {
			case err == nil:
				served++
			case err == io.EOF:
				return status.Errorf(codes.ResourceExhausted, "served %d", served)
			case status.Code(err) != codes.ResourceExhausted:
				return err
			}
		}
	}
	cc := w.serve("{}", UnaryServerInterceptor(m), MessageServerInterceptor(m), count)
	s, err := cc.NewStream(t.Context(), &w.service().Streams[0], chat)
	require.NoError(t, err)
	for range messages + 3 {
		require.NoError(t, s.SendMsg(new(emptypb.Empty)))
	}
	require.NoError(t, s.CloseSend())
	require.ErrorContains(t, s.RecvMsg(new(emptypb.Empty)), fmt.Sprint("served ", messages))
	header, err := s.Header()
	require.NoError(t, err)
	for name, values := range map[string][]string{"ratelimit": header.Get("ratelimit"), "x-ratelimit-limit": header.Get("x-ratelimit-limit"),
		"pushback": s.Trailer().Get("grpc-retry-pushback-ms"), "ratelimit of the last": s.Trailer().Get("ratelimit")} {
		require.Len(t, values, 1, name)
	}
}

// retries is a client that retries, whose own backoff is an hour or a millisecond.
func retries(backoff string) string {
	return `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 3, "initialBackoff": "` + backoff + `", "maxBackoff": "` + backoff + `",
		"backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"]}}]}`
}

// TestRetriesObeyThePushback: a real client comes again when the server says, whatever its own backoff is, and not at all where
// that is of no use.
func TestRetriesObeyThePushback(t *testing.T) {
	t.Run("after the wait", func(t *testing.T) {
		w := newWorld(t)
		cc := w.serve(retries("3600s"), UnaryServerInterceptor(w.middleware("", ratelimiter.Rate{Permits: 1, Interval: 2 * time.Second})))
		require.NoError(t, call(t, cc, get, "ann"))
		require.NoError(t, call(t, cc, get, "ann"), "it does not wait for an hour")
		require.Equal(t, []string{"1"}, w.last.Load().Get("grpc-previous-rpc-attempts"))
		require.EqualValues(t, 3, w.tried.Load())
	})
	never := func(*http.Request) int64 { return 2 }
	for name, c := range map[string]struct {
		weight  func(*http.Request) int64
		timeout time.Duration
		code    codes.Code
	}{
		"never: more than there are":           {never, time.Hour, codes.ResourceExhausted},
		"never: the client's deadline is over": {nil, time.Minute, codes.ResourceExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			m := w.middleware("", ratelimiter.Rate{Permits: 1, Interval: time.Hour}, inbound.WithWeight(func(r *http.Request) int64 {
				if c.weight != nil {
					return c.weight(r)
				}
				return 1
			}))
			m.Decide(t.Context(), 1)
			ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
			defer cancel()
			var trailer metadata.MD
			err := w.serve(retries("0.001s"), UnaryServerInterceptor(m)).Invoke(ctx, get, new(emptypb.Empty), new(emptypb.Empty), grpc.Trailer(&trailer))
			require.Equal(t, c.code, status.Code(err))
			require.Equal(t, []string{"-1"}, trailer.Get("grpc-retry-pushback-ms"))
			require.EqualValues(t, 1, w.tried.Load())
			require.Equal(t, c.weight == nil, retryDelay(t, err) > 0)
		})
	}
}

// TestWithoutRedis: the outage policy decides, as for HTTP.
func TestWithoutRedis(t *testing.T) {
	for policy, code := range map[ratelimiter.OutagePolicy]codes.Code{ratelimiter.FailOpen(): codes.OK, ratelimiter.FailClosed(): codes.Unavailable} {
		w := newWorld(t)
		m := w.middleware("", ratelimiter.Rate{Permits: 1, Interval: time.Hour}, inbound.WithOutagePolicy(policy))
		cc := w.serve("{}", UnaryServerInterceptor(m))
		require.NoError(t, w.rdb.Close())
		for range 2 {
			var trailer metadata.MD
			err := call(t, cc, get, "ann", grpc.Trailer(&trailer))
			require.Equal(t, code, status.Code(err))
			if code != codes.OK {
				require.Equal(t, time.Second, retryDelay(t, err))
				require.Equal(t, []string{"1000"}, trailer.Get("grpc-retry-pushback-ms"))
			}
		}
	}
}

// TestRequest: what the functions of a Middleware see of a call.
func TestRequest(t *testing.T) {
	w := newWorld(t)
	var last atomic.Pointer[http.Request]
	m := w.middleware("", ratelimiter.Rate{Permits: 9, Interval: time.Hour}, inbound.WithKeys(func(r *http.Request) (string, bool) {
		last.Store(r)
		return "", true
	}))
	cc := w.serve("{}", UnaryServerInterceptor(m))
	require.NoError(t, call(t, cc, get, "ann"))
	seen := last.Load()
	require.Equal(t, "POST /test.Service/Get /test.Service/Get ann", seen.Method+" "+seen.URL.Path+" "+seen.Pattern+" "+seen.Header.Get("X-User"))
	require.Equal(t, cc.Target(), "dns:///"+seen.Host)
	addr, ok := inbound.ClientAddress{}.Of(seen)
	require.True(t, ok)
	require.True(t, addr.IsLoopback())
}

// TestHealthChecks: calls of the health service take no permits unless they are to.
func TestHealthChecks(t *testing.T) {
	for limited, opts := range map[bool][]Option{false: nil, true: {WithHealthChecks()}} {
		w := newWorld(t)
		m := w.middleware("", ratelimiter.Rate{Permits: 1, Interval: time.Hour})
		cc := w.serve("{}", UnaryServerInterceptor(m, opts...), MessageServerInterceptor(m, opts...), StreamServerInterceptor(m, opts...))
		require.NoError(t, call(t, cc, get, "ann"))
		_, err := healthpb.NewHealthClient(cc).Check(t.Context(), new(healthpb.HealthCheckRequest))
		require.Equal(t, limited, status.Code(err) == codes.ResourceExhausted, err)
		s, err := healthpb.NewHealthClient(cc).Watch(t.Context(), new(healthpb.HealthCheckRequest))
		require.NoError(t, err)
		_, err = s.Recv()
		require.Equal(t, limited, status.Code(err) == codes.ResourceExhausted, err)
		require.Equal(t, codes.ResourceExhausted, status.Code(call(t, cc, get, "ann")), "and nothing else is let through")
	}
}

// TestUnixSocket: behind a proxy that connects by a Unix socket, the clients that it names do not share a limit.
func TestUnixSocket(t *testing.T) {
	w := newWorld(t)
	m := w.middleware("", ratelimiter.Rate{Permits: 1, Interval: time.Hour}, inbound.WithKeys(inbound.ByClientAddress(inbound.ClientAddress{TrustedUnix: true})))
	w.socket = filepath.Join(t.TempDir(), "s")
	cc := w.serve("{}", UnaryServerInterceptor(m))
	for _, c := range []struct {
		from string
		code codes.Code
	}{{"192.0.2.1", codes.OK}, {"192.0.2.2", codes.OK}, {"192.0.2.1", codes.ResourceExhausted}} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-forwarded-for", c.from)
		require.Equal(t, c.code, status.Code(cc.Invoke(ctx, get, new(emptypb.Empty), new(emptypb.Empty))), c.from)
	}
}
