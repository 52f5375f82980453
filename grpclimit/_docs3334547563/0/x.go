package x

import (
	"context"
	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/grpclimit"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/inbound"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"net/http"
	"time"
)

func block() error {
	limits, err := inbound.New(client, "orders", ratelimiter.Rate{Permits: 100, Interval: time.Minute},
		inbound.WithKeys(inbound.ByPattern(nil), inbound.ByHeader("authorization")))
	if err != nil {
		return err
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpclimit.UnaryServerInterceptor(limits)),
		grpc.ChainStreamInterceptor(grpclimit.StreamServerInterceptor(limits)))
	defer server.Stop()
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
