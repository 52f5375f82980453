package x

import (
	"context"
	"errors"
	"fmt"
	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/redis/go-redis/v9"
	"net/http"
	"time"
)

func block() error {
	ctx, explain := httplimit.ContextWithReason(ctx)
	err := explain(ask(ctx)) // ask calls the SDK
	var rejected *httplimit.Error
	if errors.As(err, &rejected) {
		return fmt.Errorf("not sent because of %s: %w", rejected.Limiter, err)
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
