// SPDX-License-Identifier: Apache-2.0

// Package inbound limits the requests that a server receives. All servers of a fleet share the limits through Redis.
//
//	limit, err := inbound.New(client, "api", ratelimiter.Rate{Permits: 100, Interval: time.Minute},
//		inbound.WithKeys(inbound.ByClientAddress(inbound.ClientAddress{})))
//	if err != nil {
//		return err
//	}
//	return http.ListenAndServe(":8080", limit.Handler(mux))
//
// Here each client address may send 100 requests a minute. A request above that gets status 429 with Retry-After and
// never reaches the handler. No request waits for permits.
//
// [New] returns a [Middleware] with one limit; [NewRules] combines several, with any algorithm of package limit.
// [WithKeys] says which requests share permits: those of one address ([ByClientAddress], which also works behind
// proxies), with one value of a header, such as an API key ([ByHeader]), of one pattern of a mux ([ByPattern]),
// or whatever a [KeyFunc] of yours returns. Without it all requests share one limiter. The limiters' names begin with
// the name of the Middleware: the one of above is "api:192.0.2.7" for that address.
//
// While Redis is unavailable, requests get status 503, or pass, as [WithOutagePolicy] says. [WithDecisions] reports each
// request for logs and metrics, and [WithDryRun] rejects none.
//
// Frameworks that do not use net/http call [Middleware.DecideRequest] or [Middleware.Decide]; examples/frameworks has
// chi, echo, gin, kratos, go-zero, hertz and fiber. Package grpclimit does the same for gRPC, and package httplimit
// limits the requests that a program sends.
package inbound
