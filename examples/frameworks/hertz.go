// SPDX-License-Identifier: Apache-2.0

package frameworks

import (
	"context"
	"net/http"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/goredisson/ratelimiter/httplimit/inbound"
)

// hertzLimit asks a Middleware, since hertz is not on net/http. The key is what ByClientAddress would return; ClientIP believes
// any proxy until Engine.SetClientIPFunc says which.
func hertzLimit(m *inbound.Middleware) app.HandlerFunc {
	return func(ctx context.Context, c *app.RequestContext) {
		d := m.Decide(ctx, 1, c.ClientIP())
		for name, values := range d.Header() {
			for _, v := range values {
				c.Response.Header.Add(name, v)
			}
		}
		if !d.Passes() {
			c.AbortWithStatus(d.Status())
			return
		}
		c.Next(ctx)
	}
}

// Hertz adds the routes to a server of hertz.
func Hertz(l Limits, h *server.Hertz) {
	h.GET("/orders/:id", hertzLimit(l.Orders), func(_ context.Context, c *app.RequestContext) {
		c.String(http.StatusOK, "order "+c.Param("id"))
	})
	h.GET("/search/:word", hertzLimit(l.Search), func(_ context.Context, c *app.RequestContext) {
		c.String(http.StatusOK, "found "+c.Param("word"))
	})
}
