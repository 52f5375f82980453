// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"strconv"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// The contestants here are redis_rate with its own script, on clients that gather commands into pipelines by
// themselves.
const (
	autoPipelineKey = "redis_rate-autopipeline"
	rueidisKey      = "redis_rate-rueidis"
)

// newAutoPipelined returns redis_rate on the AutoPipeline of go-redis, which is experimental.
func newAutoPipelined(rdb redis.UniversalClient) (*redisRate, error) {
	pipeline, err := rdb.AutoPipeline()
	if err != nil {
		return nil, err
	}
	return &redisRate{rdb: rdb, limiter: redis_rate.NewLimiter(pipeline), key: autoPipelineKey,
		title: "redis_rate on go-redis' AutoPipeline", end: pipeline.Close}, nil
}

// newRueidis returns redis_rate on rueidis, which pipelines all commands over one connection.
func newRueidis(addr string, pool int) (*redisRate, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true,
		Dialer: net.Dialer{KeepAlive: -1}, // no PING each second while others are measured
	})
	if err != nil {
		return nil, err
	}
	rdb := newClient(addr, pool)
	return &redisRate{rdb: rdb, limiter: redis_rate.NewLimiter(onRueidis{rdb, client}), key: rueidisKey,
		title: "redis_rate's script on rueidis", end: func() error { client.Close(); return nil }}, nil
}

// onRueidis sends scripts through rueidis, and what else there is through go-redis.
type onRueidis struct {
	*redis.Client
	client rueidis.Client
}

func (r onRueidis) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return r.do(ctx, "EVAL", script, keys, args)
}

func (r onRueidis) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return r.do(ctx, "EVALSHA", sha, keys, args)
}

func (r onRueidis) do(ctx context.Context, name, script string, keys []string, args []any) *redis.Cmd {
	c := r.client.B().Arbitrary(name, script, strconv.Itoa(len(keys))).Keys(keys...)
	for _, arg := range args {
		switch v := arg.(type) {
		case int:
			c = c.Args(strconv.Itoa(v))
		case float64:
			c = c.Args(strconv.FormatFloat(v, 'f', -1, 64))
		default:
			panic("redis_rate has another type of argument")
		}
	}
	cmd := redis.NewCmd(ctx)
	v, err := r.client.Do(ctx, c.Build()).ToAny()
	if redisErr, ok := rueidis.IsRedisErr(err); ok {
		cmd.SetErr(replied(redisErr.Error()))
	} else if err != nil {
		cmd.SetErr(err)
	}
	cmd.SetVal(v)
	return cmd
}

// replied is an error that Redis replied, as go-redis has it.
type replied string

func (e replied) Error() string { return string(e) }
func (replied) RedisError()     {}
