package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"time"

	"github.com/goredisson/ratelimiter/internal/embedredis"
	"github.com/redis/go-redis/v9"
)

// A store is the Redis that the demo runs on, and the name of its limiter there.
type store struct {
	rdb   *redis.Client
	where string // for people; never with a password
	name  string
	close func()
}

// pingTimeout is how long a Redis may take to say that it is there.
const pingTimeout = 3 * time.Second

// openStore opens the Redis at rawURL, or an embedded one when that is empty. In a Redis that others
// use the limiter has a name of its own for each run.
func openStore(ctx context.Context, rawURL string) (*store, error) {
	if rawURL == "" {
		s, err := embedredis.Start()
		if err != nil {
			return nil, err
		}
		rdb := s.NewClient()
		return &store{rdb: rdb, where: "an embedded Redis on " + s.Addr(), name: "rrl-demo", close: func() {
			_ = rdb.Close()
			s.Close()
		}}, nil
	}
	opts, err := redis.ParseURL(rawURL)
	if err != nil {
		// url.Error repeats the URL, and with it a password.
		var parse *url.Error
		if errors.As(err, &parse) {
			err = parse.Err
		}
		return nil, usageError{fmt.Errorf("the Redis URL is not one: %w", err)}
	}
	rdb := redis.NewClient(opts)
	ping, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if err := rdb.Ping(ping).Err(); err != nil {
		_ = rdb.Close()
		if ctx.Err() != nil {
			return nil, errInterrupted
		}
		return nil, fmt.Errorf("the Redis at %s does not answer: %w", opts.Addr, err)
	}
	return &store{
		rdb:   rdb,
		where: fmt.Sprintf("the Redis at %s, database %d", opts.Addr, opts.DB),
		name:  fmt.Sprintf("rrl-demo:%08x", rand.Uint32()),
		close: func() { _ = rdb.Close() },
	}, nil
}
