// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"time"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/embedredis"
	"github.com/redis/go-redis/v9"
)

// A store is the Redis that the demo runs on, and the name of its limiter there.
type store struct {
	rdb   *redis.Client
	where string // for people; it never holds a password
	name  string
	close func()
}

// pingTimeout bounds the PING that checks whether a Redis can be reached.
const pingTimeout = 2 * time.Second

// openStore connects to the Redis at rawURL, or starts an embedded one if rawURL is empty. In a Redis
// that others may use, each run has a limiter with a random name.
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
		return nil, urlError(err)
	}
	if err := checkUser(opts.Username, opts.Password); err != nil {
		return nil, err
	}
	rdb := redis.NewClient(opts)
	ping, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if err := rdb.Ping(ping).Err(); err != nil {
		_ = rdb.Close()
		if ctx.Err() != nil {
			return nil, command.ErrInterrupted
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

// urlError returns err, with which a URL of a Redis could not be parsed, as wrong usage. It leaves out the URL, in
// which there may be a password.
func urlError(err error) error {
	var parse *url.Error
	if errors.As(err, &parse) {
		err = parse.Err
	}
	return command.UsageError{Err: fmt.Errorf("invalid Redis URL: %w; it looks like redis://127.0.0.1:6379/0", err)}
}

// checkUser returns an error if there is a user without a password, which go-redis would leave out: it would connect as
// the default user. The error does not have the name of the user, since somebody may have written a password in its
// place.
func checkUser(user, password string) error {
	if user == "" || password != "" {
		return nil
	}
	return command.UsageError{Err: errors.New("a user is given without a password: add it in the URL, as in redis://USER:PASSWORD@HOST:PORT, or set REDIS_PASSWORD " +
		"(for a user with nopass any will do; a password alone is redis://:PASSWORD@HOST:PORT)")}

}
