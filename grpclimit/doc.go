// SPDX-License-Identifier: Apache-2.0

// Package grpclimit limits the calls that a gRPC server receives. It uses a Middleware of package inbound, whose
// limiters all servers of a fleet share through Redis.
//
//	limits, err := inbound.New(client, "orders", ratelimiter.Rate{Permits: 100, Interval: time.Minute},
//		inbound.WithKeys(inbound.ByPattern(nil), inbound.ByHeader("authorization")))
//	if err != nil {
//		return err
//	}
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(grpclimit.UnaryServerInterceptor(limits)),
//		grpc.ChainStreamInterceptor(grpclimit.StreamServerInterceptor(limits)))
//	defer server.Stop()
//
// KeyFuncs and weights see a call as an HTTP request: a POST of its full method, with its metadata as header fields,
// the TLS state of the connection, and no body. So ByPattern uses the full method, such as "/shop.Orders/Create",
// ByHeader uses metadata, and ByClientAddress uses the peer, or the address that a trusted proxy wrote to
// x-forwarded-for.
//
// A call that gets no permits ends with ResourceExhausted. A call that cannot be decided, because Redis is
// unavailable and the outage policy is closed, ends with Unavailable. Both say when to come again, in two ways. The
// status has a RetryInfo. The trailer has grpc-retry-pushback-ms
// (https://github.com/grpc/proposal/blob/master/A6-client-retries.md) for the client's automatic retries: the wait,
// or -1 if a retry is useless, because the request can never be granted or the client's deadline is earlier.
//
// The fields RateLimit and RateLimit-Policy are in the header of a call that is served, and in the trailer of one
// that is not. Each appears once, however many messages a stream has.
//
// Calls of the health service, grpc.health.v1.Health, take no permits: see [WithHealthChecks].
//
// Put these interceptors before those that send a header: once a server has sent one, the client does not retry the
// call.
package grpclimit
