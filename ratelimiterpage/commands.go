// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"cmp"
	"fmt"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/doctor"
)

// WithRedisURL sets the URL of Redis in the commands that the page offers to copy, in the form of rrl's option
// --redis. The page leaves out a password; it says in which environment variable the commands read it. The default is
// built from the options of the client. If these have no address, as those of a failover client, it has the address
// of the server that holds the limiter.
func WithRedisURL(raw string) Option {
	return func(c *config) {
		to, err := doctor.ParseTarget(raw)
		if err != nil {
			c.err = cmp.Or(c.err, fmt.Errorf("%w: WithRedisURL: %w", ratelimiter.ErrInvalidArgument, err))
			return
		}
		c.url = &to
	}
}

// WithTLSFiles sets the PEM files that the page's commands name: the CA certificates, the client's certificate, and
// its key. Each may be empty.
func WithTLSFiles(ca, cert, key string) Option {
	return func(c *config) { c.files = [3]string{ca, cert, key} }
}

// target returns the Redis that commands are about: at the URL of the page, if it has one, as the user of the client.
func (h *Handler) target() doctor.Target {
	to := doctor.TargetOf(h.rdb)
	if h.url != nil {
		of := *h.url
		of.User, of.Password = cmp.Or(to.User, of.User), to.Password || of.Password
		to = of
	}
	to.CA, to.Cert, to.Key = h.files[0], h.files[1], h.files[2]
	return to
}
