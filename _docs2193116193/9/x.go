package x

import (
	"context"
	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/goredisson/ratelimiter/ratelimiterpage"
	"github.com/redis/go-redis/v9"
	"net/http"
	"time"
)

func block() error {
	page, err := ratelimiterpage.New(rdb, ratelimiterpage.WithToken("a long random text"))
	if err != nil {
		return err
	}
	defer page.Close()
	mux.Handle("/limiters/", page)
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
