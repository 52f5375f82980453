package x

import (
	"context"
	"errors"
	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/redis/go-redis/v9"
	"net/http"
	"time"
)

func block() error {
	client, err := ratelimiter.New(rdb)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil { // the address, the password or TLS is wrong
		return err
	}
	limiter := client.RateLimiter("sms").WithRate(ratelimiter.Rate{Permits: 5, Interval: 10 * time.Second})

	ok, err := limiter.TryAcquire(ctx, 1, time.Minute)
	if err != nil {
		return err // no permits were acquired
	}
	if !ok {
		return errors.New("too many text messages")
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
