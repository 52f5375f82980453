// SPDX-License-Identifier: Apache-2.0

package grpclimit

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/httplimit/inbound"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// UnaryServerInterceptor returns an interceptor that serves the calls which m grants.
func UnaryServerInterceptor(m *inbound.Middleware) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, message any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if err := admit(m, request(ctx, info.FullMethod)); err != nil {
			return nil, err
		}
		return handler(ctx, message)
	}
}

// StreamServerInterceptor returns an interceptor that serves the streams which m grants. A stream takes its permits once, when it
// begins.
func StreamServerInterceptor(m *inbound.Middleware) grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if err := admit(m, request(stream.Context(), info.FullMethod)); err != nil {
			return err
		}
		return handler(server, stream)
	}
}

// MessageServerInterceptor returns an interceptor that limits the messages of streams: each message that the server receives takes
// permits of m. When it gets none, RecvMsg returns the status to the handler, which ends the stream by returning it; no client retries
// that by itself. It can stand beside a StreamServerInterceptor, with another Middleware.
func MessageServerInterceptor(m *inbound.Middleware) grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		return handler(server, &limitedStream{stream, m, request(stream.Context(), info.FullMethod)})
	}
}

type limitedStream struct {
	grpc.ServerStream
	middleware *inbound.Middleware
	request    *http.Request
}

func (s *limitedStream) RecvMsg(message any) error {
	if err := s.ServerStream.RecvMsg(message); err != nil {
		return err // the end of the client's messages is no message
	}
	return admit(s.middleware, s.request)
}

// request returns the call as a request of HTTP, for the functions of a Middleware.
func request(ctx context.Context, method string) *http.Request {
	r := &http.Request{Method: http.MethodPost, URL: &url.URL{Path: method}, Pattern: method, Body: http.NoBody, Header: http.Header{},
		Proto: "HTTP/2.0", ProtoMajor: 2}
	md, _ := metadata.FromIncomingContext(ctx)
	for k, v := range md {
		if k == ":authority" && len(v) > 0 {
			r.Host = v[0]
		} else if !strings.HasPrefix(k, ":") {
			r.Header[http.CanonicalHeaderKey(k)] = v
		}
	}
	if p, ok := peer.FromContext(ctx); ok {
		r.RemoteAddr = p.Addr.String()
		if t, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			r.TLS = &t.State
		}
	}
	return r.WithContext(ctx)
}

// admit returns the status of a call that does not pass. A header or trailer that cannot be set any more, in the middle of a stream, is
// not missed.
func admit(m *inbound.Middleware, r *http.Request) error {
	a := m.DecideRequest(r)
	fields := metadata.MD{}
	for k, v := range a.Header() {
		fields[strings.ToLower(k)] = v
	}
	if a.Passes() {
		if len(fields) > 0 {
			_ = grpc.SetHeader(r.Context(), fields)
		}
		return nil
	}
	wait := a.RetryAfter
	if a.Outcome == inbound.OutcomeRejected && wait > 0 {
		wait = a.Result.Wait // RetryAfter is in whole seconds
	}
	fields.Set("grpc-retry-pushback-ms", pushback(r.Context(), wait))
	_ = grpc.SetTrailer(r.Context(), fields)
	return reason(a, wait)
}

// pushback returns the milliseconds after which a client may retry, and -1 where that is of no use.
func pushback(ctx context.Context, wait time.Duration) string {
	deadline, ok := ctx.Deadline()
	if wait <= 0 || ok && time.Until(deadline) <= wait {
		return "-1"
	}
	return strconv.FormatInt(int64((wait+time.Millisecond-1)/time.Millisecond), 10)
}

// reason returns the status of a call that does not pass.
func reason(a inbound.Answer, wait time.Duration) error {
	s := status.Newf(codes.ResourceExhausted, "too many requests: the limit is %q", a.Policy)
	switch {
	case a.Outcome == inbound.OutcomeClosed:
		s = status.New(codes.Unavailable, "the limit cannot be checked now")
	case wait <= 0:
		s = status.Newf(codes.ResourceExhausted, "the call needs more than the limit %q ever grants", a.Policy)
	}
	if wait > 0 {
		if detailed, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)}); err == nil {
			s = detailed
		}
	}
	return s.Err()
}
