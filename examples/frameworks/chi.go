// SPDX-License-Identifier: Apache-2.0

package frameworks

import (
	"fmt"
	"net/http"

	"github.com/go-chi/chi/v5"
)

// Chi returns a router of chi, whose middleware is that of net/http.
func Chi(l Limits) http.Handler {
	r := chi.NewRouter()
	r.With(l.Orders.Handler).Get("/orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "order", chi.URLParam(r, "id"))
	})
	r.With(l.Search.Handler).Get("/search/{word}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "found", chi.URLParam(r, "word"))
	})
	return r
}
