// SPDX-License-Identifier: Apache-2.0

package frameworks

import (
	"net"
	"net/http"

	kratos "github.com/go-kratos/kratos/v2/transport/http"
)

// Kratos returns a server of kratos, whose filters are middleware of net/http.
func Kratos(l Limits, listener net.Listener) *kratos.Server {
	s := kratos.NewServer(kratos.Listener(listener))
	r := s.Route("/")
	r.GET("/orders/{id}", func(c kratos.Context) error {
		return c.String(http.StatusOK, "order "+c.Vars().Get("id"))
	}, l.Orders.Handler)
	r.GET("/search/{word}", func(c kratos.Context) error {
		return c.String(http.StatusOK, "found "+c.Vars().Get("word"))
	}, l.Search.Handler)
	return s
}
