package x

import (
	"context"
	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/inbound"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/redis/go-redis/v9"
	"net/http"
	"time"
)

func block() error {
	limit, err := inbound.New(client, "api", ratelimiter.Rate{Permits: 100, Interval: time.Minute},
		inbound.WithKeys(inbound.ByClientAddress(inbound.ClientAddress{})))
	if err != nil {
		return err
	}
	return http.ListenAndServe(":8080", limit.Handler(mux))
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
