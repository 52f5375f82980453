// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"
)

// local is golang.org/x/time/rate, as an example of a limiter within one process.
type local struct{}

func (local) about() about {
	return about{key: "local", title: "x/time/rate, one process, no Redis", version: moduleVersion("golang.org/x/time"), ceiling: true}
}

func (local) open(_ context.Context, j job) (session, error) {
	limiters := make([]*rate.Limiter, j.limiters)
	for i := range limiters {
		// Hardly any refill, so that the tokens that the bucket lacks were granted.
		limiters[i] = rate.NewLimiter(1e-9, int(j.permits))
	}
	return &goSession{
		ask: func(_ context.Context, pick uint64) (int64, error) {
			return permit(limiters[pick%uint64(len(limiters))].Allow()), nil
		},
		count: func(context.Context) (int64, error) {
			spent := int64(0)
			for _, l := range limiters {
				spent += j.permits - int64(l.Tokens()+0.5)
			}
			return spent, nil
		},
	}, nil
}

func (local) close() error { return nil }

// ping is not a limiter. It shows what go-redis and the server can do with the cheapest command.
type ping struct {
	rdb   *redis.Client
	depth int // PINGs in a pipeline
}

func (p ping) about() about {
	a := about{key: "ping", title: "bare PING", version: moduleVersion("github.com/redis/go-redis/v9"), ceiling: true, unlimited: true}
	if p.depth > 1 {
		a.key, a.title = "ping-pipelined", "bare PING, 100 in a pipeline"
	}
	return a
}

func (p ping) open(_ context.Context, j job) (session, error) {
	return &goSession{
		ask: func(ctx context.Context, _ uint64) (int64, error) {
			if p.depth == 1 {
				return 1, p.rdb.Ping(ctx).Err()
			}
			_, err := p.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
				for range p.depth {
					pipe.Ping(ctx)
				}
				return nil
			})
			return int64(p.depth), err
		},
		count: func(ctx context.Context) (int64, error) {
			u, err := readUsage(ctx, p.rdb) // since the reset before the load
			return u.pings, err
		},
	}, nil
}

func (p ping) close() error { return p.rdb.Close() }
