// SPDX-License-Identifier: Apache-2.0

// Package frameworks has package inbound in web frameworks, one file each, to read and to copy: a limit for each of two routes, in
// which all values of a route's parameter share what a client may do.
//
// A framework on net/http takes the Handler of a Middleware as it is, or in a line or two. One that is not, such as hertz or
// fiber, asks Decide. A Middleware that stands around all routes of another router than http.ServeMux cannot use
// inbound.ByPattern, since such a router does not set the pattern: it has a Middleware for each route, as here.
//
// Beside them stands a queue: AsynqLimit has a task of asynq that gets no permit go back into its queue.
package frameworks

import (
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit/inbound"
)

// Limits are the limits of the two routes.
type Limits struct {
	Orders, Search *inbound.Middleware
}

// NewLimits returns the limits: for each client address two orders and three searches an hour.
func NewLimits(client *ratelimiter.Client) (l Limits, err error) {
	byAddress := inbound.WithKeys(inbound.ByClientAddress(inbound.ClientAddress{}))
	if l.Orders, err = inbound.New(client, "orders", ratelimiter.Rate{Permits: 2, Interval: time.Hour}, byAddress); err != nil {
		return l, err
	}
	l.Search, err = inbound.New(client, "search", ratelimiter.Rate{Permits: 3, Interval: time.Hour}, byAddress)
	return l, err
}
