// SPDX-License-Identifier: Apache-2.0

package frameworks

import (
	"github.com/gofiber/fiber/v2"
	"github.com/goredisson/ratelimiter/httplimit/inbound"
)

// fiberLimit asks a Middleware, since fiber is on fasthttp. The key is what ByClientAddress would return; IP believes no proxy
// unless the Config of fiber says which header holds the address.
func fiberLimit(m *inbound.Middleware) fiber.Handler {
	return func(c *fiber.Ctx) error {
		d := m.Decide(c.UserContext(), 1, c.IP())
		for name, values := range d.Header() {
			c.Append(name, values...)
		}
		if !d.Passes() {
			return c.SendStatus(d.Status())
		}
		return c.Next()
	}
}

// Fiber returns an app of fiber.
func Fiber(l Limits) *fiber.App {
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Get("/orders/:id", fiberLimit(l.Orders), func(c *fiber.Ctx) error { return c.SendString("order " + c.Params("id")) })
	app.Get("/search/:word", fiberLimit(l.Search), func(c *fiber.Ctx) error { return c.SendString("found " + c.Params("word")) })
	return app
}
