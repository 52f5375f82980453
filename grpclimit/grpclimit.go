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

// An Option configures an interceptor.
type Option func(*config)

type config struct{ health bool }

// WithHealthChecks limits the calls of grpc.health.v1.Health like any other. By default they take no permits: a
// system that restarts servers which do not respond to them would make an overload worse.
func WithHealthChecks() Option { return func(c *config) { c.health = true } }

// exempt returns a function that reports whether a call of the given full method takes no permits.
func exempt(opts []Option) func(method string) bool {
	var c config
	for _, o := range opts {
		if o == nil {
			continue
		}
		o(&c)
	}
	return func(method string) bool { return !c.health && strings.HasPrefix(method, "/grpc.health.v1.Health/") }
}

// UnaryServerInterceptor returns an interceptor that serves the calls that m grants.
func UnaryServerInterceptor(m *inbound.Middleware, opts ...Option) grpc.UnaryServerInterceptor {
	exempt := exempt(opts)
	return func(ctx context.Context, message any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if !exempt(info.FullMethod) {
			if err := admit(m, request(ctx, info.FullMethod)); err != nil {
				return nil, err
			}
		}
		return handler(ctx, message)
	}
}

// StreamServerInterceptor returns an interceptor that serves the streams that m grants. A stream takes its permits
// once, when it begins.
func StreamServerInterceptor(m *inbound.Middleware, opts ...Option) grpc.StreamServerInterceptor {
	exempt := exempt(opts)
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if !exempt(info.FullMethod) {
			if err := admit(m, request(stream.Context(), info.FullMethod)); err != nil {
				return err
			}
		}
		return handler(server, stream)
	}
}

// request returns the call as an HTTP request, for the functions of a Middleware.
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
		ctx = context.WithValue(ctx, http.LocalAddrContextKey, p.Addr) // of the same network
		if t, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			r.TLS = &t.State
		}
	}
	return r.WithContext(ctx)
}

// admit returns the status of a call that does not pass, and sets its header or trailer.
func admit(m *inbound.Middleware, r *http.Request) error {
	a := m.DecideRequest(r)
	if a.Passes() {
		setHeader(r.Context(), &a)
		return nil
	}
	trailer, err := rejection(r.Context(), &a)
	_ = grpc.SetTrailer(r.Context(), trailer)
	return err
}

// setHeader reports the limit in the header of a call. It ignores the error if an interceptor has sent the header
// already.
func setHeader(ctx context.Context, a *inbound.Decision) {
	if fields := fieldsOf(a); len(fields) > 0 {
		_ = grpc.SetHeader(ctx, fields)
	}
}

// rejection returns the trailer and the status of a call that does not pass.
func rejection(ctx context.Context, a *inbound.Decision) (metadata.MD, error) {
	wait := a.RetryAfter
	if a.Outcome == inbound.OutcomeRejected && wait > 0 {
		wait = a.Result.Wait // RetryAfter is in whole seconds
	}
	trailer := fieldsOf(a)
	trailer.Set("grpc-retry-pushback-ms", pushback(ctx, wait))
	return trailer, reason(a, wait)
}

func fieldsOf(a *inbound.Decision) metadata.MD {
	fields := metadata.MD{}
	for k, v := range a.Header() {
		fields[strings.ToLower(k)] = v
	}
	return fields
}

// pushback returns the milliseconds after which a client may retry, or -1 if a retry is useless.
func pushback(ctx context.Context, wait time.Duration) string {
	deadline, ok := ctx.Deadline()
	if wait <= 0 || ok && time.Until(deadline) <= wait {
		return "-1"
	}
	return strconv.FormatInt(int64((wait+time.Millisecond-1)/time.Millisecond), 10)
}

// reason returns the status of a call that does not pass.
func reason(a *inbound.Decision, wait time.Duration) error {
	s := status.Newf(codes.ResourceExhausted, "too many requests: the limit is %q", a.Policy)
	switch {
	case a.Outcome == inbound.OutcomeFailedClosed:
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
