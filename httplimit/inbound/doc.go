// SPDX-License-Identifier: Apache-2.0

// Package inbound limits the requests that a server gets, by limiters that all servers of a fleet share
// through Redis.
//
// A [Middleware] goes around an [http.Handler]. A request takes its permits before the handler runs, and who
// shares a limiter is told by its [KeyFunc]s: the client's address, also behind proxies ([ClientAddress]), a
// header such as an API key, or the pattern of a mux. Its limit is one of RRateLimiters ([New]), or several and of any
// limiters of package limit ([NewRules]).
//
// It stands beside package httplimit, which is for the requests that a server sends, and links nothing of it.
package inbound
