// SPDX-License-Identifier: Apache-2.0

package frameworks

import (
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/goredisson/ratelimiter/httplimit/inbound"
)

// ginLimit makes a Middleware one of gin, in which a middleware that does not abort goes on.
func ginLimit(m *inbound.Middleware) gin.HandlerFunc {
	return func(c *gin.Context) {
		passed := false
		m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			passed, c.Request = true, r
			c.Next()
		})).ServeHTTP(c.Writer, c.Request)
		if !passed {
			c.Abort()
		}
	}
}

// Gin returns a router of gin.
func Gin(l Limits) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.GET("/orders/:id", ginLimit(l.Orders), func(c *gin.Context) { c.String(http.StatusOK, "order "+c.Param("id")) })
	r.GET("/search/:word", ginLimit(l.Search), func(c *gin.Context) { c.String(http.StatusOK, "found "+c.Param("word")) })
	return r
}
