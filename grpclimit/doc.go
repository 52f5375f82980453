// SPDX-License-Identifier: Apache-2.0

// Package grpclimit limits the calls that a gRPC server gets, by a Middleware of package inbound: by limiters that all
// servers of a fleet share through Redis.
//
//	limits, err := inbound.New(client, "orders", ratelimiter.Rate{Permits: 100, Interval: time.Minute},
//		inbound.WithKeys(inbound.ByPattern(nil), inbound.ByHeader("authorization")))
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(grpclimit.UnaryServerInterceptor(limits)),
//		grpc.ChainStreamInterceptor(grpclimit.StreamServerInterceptor(limits)))
//
// A call is a POST of its full method, with its metadata as header fields, so that the KeyFuncs and weights of HTTP are those of gRPC: the
// pattern is the full method, such as "/shop.Orders/Create", ByHeader is for metadata and ByClientAddress for the peer, or
// for what a trusted proxy wrote to x-forwarded-for. The request has the TLS state of the connection, too, and no body.
//
// A call without permits ends with ResourceExhausted, and one that cannot be decided, because of an outage of Redis under a policy that
// is closed, with Unavailable. Both say when to come again, as RetryInfo of the status and to the client's own retries, by the trailer
// grpc-retry-pushback-ms of https://github.com/grpc/proposal/blob/master/A6-client-retries.md: the wait, or -1 where no retry is
// of use, since the request can never be granted or the client's deadline is earlier. The fields RateLimit and RateLimit-Policy
// are in the header of a call that is served, and in the trailer of one that is not.
//
// A client retries no call whose server has sent a header, so the limits stand before the interceptors that set one.
package grpclimit
