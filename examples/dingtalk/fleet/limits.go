package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/redis/go-redis/v9"
)

// Limits gives the services their limiters, all under a name of the demo's own, also in a Redis that
// others use: the names that a profile gives are those of the company's real limiters. A program of yours
// shares limiters by these names, and needs ratelimiter.New(rdb) and no more.
type Limits struct {
	rdb     *redis.Client
	prefix  string
	options []ratelimiter.Option
	names   sync.Map // of the limiters that were used
}

// NewLimits returns Limits whose names begin with prefix, in the Redis of rdb, which stays the caller's.
func NewLimits(rdb *redis.Client, prefix string, options ...ratelimiter.Option) *Limits {
	return &Limits{rdb: rdb, prefix: prefix, options: options}
}

// Client returns the client of one service, on connections of its own, and what ends both.
func (l *Limits) Client() (c *ratelimiter.Client, end func()) {
	rdb := redis.NewClient(l.rdb.Options())
	c = l.On(rdb)
	return c, func() {
		_ = c.Close()
		_ = rdb.Close()
	}
}

// On returns a client on connections that are there.
func (l *Limits) On(rdb *redis.Client) *ratelimiter.Client {
	return ratelimiter.New(rdb, append([]ratelimiter.Option{ratelimiter.WithNameMapper(func(name string) string {
		l.names.Store(name, true)
		return l.prefix + name
	})}, l.options...)...)
}

// Delete leaves no limiter in a Redis that others use, within two seconds, also when ctx has ended. It
// returns the first error with the name of the limiter that it could not delete, and tries no other then.
func (l *Limits) Delete(ctx context.Context) (name string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	c := l.On(l.rdb)
	defer func() { _ = c.Close() }()
	l.names.Range(func(key, _ any) bool {
		_, err = c.RateLimiter(key.(string)).Delete(ctx)
		name = l.prefix + key.(string)
		return err == nil
	})
	return name, err
}
