// SPDX-License-Identifier: Apache-2.0

// Package inbound limits the requests that a server receives, by limiters that all servers of a fleet share through
// Redis.
//
// A [Middleware] wraps an [http.Handler]. A request takes its permits before the handler runs. [KeyFunc]s decide
// which requests share a limiter. It may be those with the same client address, also behind proxies
// ([ClientAddress]), with the same value of a header, such as an API key, or with the same pattern of a mux. A
// Middleware has one limit by RRateLimiters ([New]), or several limits by any limiters of package limit ([NewRules]).
//
// Package httplimit is the counterpart for the requests that a server sends; this package links nothing of it.
package inbound
