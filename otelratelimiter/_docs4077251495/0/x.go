package x

import (
	"context"
	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/goredisson/ratelimiter/otelratelimiter"
	"github.com/redis/go-redis/v9"
	"net/http"
	"strings"
	"time"
)

func block() error {
	hook, err := otelratelimiter.NewHook(otelratelimiter.WithPolicies(func(limiter string) string {
		name, _, _ := strings.Cut(limiter, ":")
		return name
	}))
	if err != nil {
		return err
	}
	client, err := ratelimiter.New(rdb, ratelimiter.WithHook(hook))
	if err != nil {
		return err
	}
	defer client.Close()
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
