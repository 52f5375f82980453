package x

import (
	"context"
	"fmt"
	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/redis/go-redis/v9"
	"net/http"
	"time"
)

func block() error {
	api, err := limit.NewShared(rdb, "api", limit.TokenBucket{
		Rate:  ratelimiter.PerSecond(10),
		Burst: 20,
	})
	if err != nil {
		return err
	}
	result, err := api.For(userID).Allow(ctx, 1) // each user has a bucket
	if err != nil {
		return err // no permits were granted
	}
	if !result.Granted {
		return fmt.Errorf("too many requests, try again in %v", result.Wait)
	}
	return nil
}

var (
	ctx    context.Context
	client *ratelimiter.Client
	rdb    *redis.Client
	mux    *http.ServeMux
	w      http.ResponseWriter
	r      *http.Request
	rules  []httplimit.Rule
	text   []byte
	userID string
	api    *limit.Shared

	newMine func(permits int, interval time.Duration) limit.Limiter
	ask     func(context.Context) error // a call of an SDK
	send    func(context.Context) error
)
