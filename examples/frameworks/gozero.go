// SPDX-License-Identifier: Apache-2.0

package frameworks

import (
	"fmt"
	"net/http"

	"github.com/goredisson/ratelimiter/httplimit/inbound"
	"github.com/zeromicro/go-zero/rest"
	"github.com/zeromicro/go-zero/rest/pathvar"
)

// goZeroLimit adapts a Middleware to go-zero's.
func goZeroLimit(m *inbound.Middleware) rest.Middleware {
	return func(next http.HandlerFunc) http.HandlerFunc { return m.Handler(next).ServeHTTP }
}

// GoZero adds the routes to a server of go-zero.
func GoZero(l Limits, s *rest.Server) {
	s.AddRoutes(rest.WithMiddleware(goZeroLimit(l.Orders), rest.Route{Method: http.MethodGet, Path: "/orders/:id",
		Handler: func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "order", pathvar.Vars(r)["id"]) }}))
	s.AddRoutes(rest.WithMiddleware(goZeroLimit(l.Search), rest.Route{Method: http.MethodGet, Path: "/search/:word",
		Handler: func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "found", pathvar.Vars(r)["word"]) }}))
}
