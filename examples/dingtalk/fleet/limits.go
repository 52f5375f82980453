// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/redis/go-redis/v9"
)

// Limits gives the services limiters whose names begin with a prefix, so that a demo does not touch the
// real limiters of a company, which have the names of the profile. Another program shares limiters by the
// names of the profile and needs only ratelimiter.New(rdb).
type Limits struct {
	rdb     *redis.Client
	prefix  string
	options []ratelimiter.Option
	names   sync.Map // of the limiters that were used
}

// NewLimits returns Limits in the Redis of rdb whose names begin with prefix. It does not close rdb.
func NewLimits(rdb *redis.Client, prefix string, options ...ratelimiter.Option) *Limits {
	return &Limits{rdb: rdb, prefix: prefix, options: options}
}

// Client returns a client for one service with its own connections, and a function that closes both.
func (l *Limits) Client() (c *ratelimiter.Client, end func(), err error) {
	rdb := redis.NewClient(l.rdb.Options())
	c, err = l.On(rdb)
	return c, func() {
		_ = c.Close()
		_ = rdb.Close()
	}, err
}

// On returns a client on the connections of rdb.
func (l *Limits) On(rdb *redis.Client) (*ratelimiter.Client, error) {
	return ratelimiter.New(rdb, append([]ratelimiter.Option{ratelimiter.WithNameMapper(func(name string) string {
		l.names.Store(name, true)
		return l.prefix + name
	})}, l.options...)...)
}

// Delete deletes all limiters that were used. It takes at most two seconds and ignores the end of ctx. At the
// first error it stops and returns the error with the name of the limiter.
func (l *Limits) Delete(ctx context.Context) (name string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	c, err := l.On(l.rdb)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	l.names.Range(func(key, _ any) bool {
		_, err = c.RateLimiter(key.(string)).Delete(ctx)
		name = l.prefix + key.(string)
		return err == nil
	})
	return name, err
}
