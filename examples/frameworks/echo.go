// SPDX-License-Identifier: Apache-2.0

package frameworks

import (
	"net/http"

	echo4 "github.com/labstack/echo/v4"
	echo5 "github.com/labstack/echo/v5"
)

// Echo4 returns a router of echo 4, which wraps a middleware of net/http.
func Echo4(l Limits) http.Handler {
	e := echo4.New()
	e.GET("/orders/:id", func(c echo4.Context) error {
		return c.String(http.StatusOK, "order "+c.Param("id"))
	}, echo4.WrapMiddleware(l.Orders.Handler))
	e.GET("/search/:word", func(c echo4.Context) error {
		return c.String(http.StatusOK, "found "+c.Param("word"))
	}, echo4.WrapMiddleware(l.Search.Handler))
	return e
}

// Echo5 returns a router of echo 5, where a context is a pointer.
func Echo5(l Limits) http.Handler {
	e := echo5.New()
	e.GET("/orders/:id", func(c *echo5.Context) error {
		return c.String(http.StatusOK, "order "+c.Param("id"))
	}, echo5.WrapMiddleware(l.Orders.Handler))
	e.GET("/search/:word", func(c *echo5.Context) error {
		return c.String(http.StatusOK, "found "+c.Param("word"))
	}, echo5.WrapMiddleware(l.Search.Handler))
	return e
}
