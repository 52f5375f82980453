// SPDX-License-Identifier: Apache-2.0

package grpclimit

import (
	"net/http"
	"sync"

	"github.com/goredisson/ratelimiter/httplimit/inbound"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// MessageServerInterceptor returns an interceptor that limits the messages of streams: each message that the server
// receives takes permits of m. If it gets none, RecvMsg returns the status to the handler, which ends the stream by
// returning it; clients do not retry that by themselves. It can be combined with a StreamServerInterceptor that has
// another Middleware.
//
// The stream's header reports the limit of the first message that is served. Its trailer reports that of the last
// message that is not, if the handler returns an error.
func MessageServerInterceptor(m *inbound.Middleware, opts ...Option) grpc.StreamServerInterceptor {
	exempt := exempt(opts)
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if exempt(info.FullMethod) {
			return handler(server, stream)
		}
		s := &limitedStream{ServerStream: stream, middleware: m, request: request(stream.Context(), info.FullMethod)}
		err := handler(server, s)
		if err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			stream.SetTrailer(s.trailer)
		}
		return err
	}
}

// A limitedStream takes permits for each message. It sets the header and the trailer only once, because gRPC appends
// to what has been set.
type limitedStream struct {
	grpc.ServerStream
	middleware *inbound.Middleware
	request    *http.Request

	mu      sync.Mutex  // RecvMsg may be called in another goroutine than the handler's
	told    bool        // the header tells the limit
	trailer metadata.MD // of the last message without permits
}

func (s *limitedStream) RecvMsg(message any) error {
	if err := s.ServerStream.RecvMsg(message); err != nil {
		return err // the end of the client's messages is no message
	}
	a := s.middleware.DecideRequest(s.request)
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.Passes() {
		if !s.told {
			s.told = true
			setHeader(s.request.Context(), &a)
		}
		return nil
	}
	var err error
	s.trailer, err = rejection(s.request.Context(), &a)
	return err
}
