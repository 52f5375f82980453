package x

import (
	"context"
	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/platform"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/redis/go-redis/v9"
	"net/http"
	"time"
)

func block() error {
	transport, err := httplimit.New(client, httplimit.WithProfile(platform.DingTalk("dingappkey",
		platform.WithRate(platform.ScopeAppAPI, 60, time.Second)))) // a larger limit that you have bought
	if err != nil {
		return err
	}
	api := &http.Client{Transport: transport}
	if _, err := api.Get("https://oapi.dingtalk.com/topapi/v2/user/get"); err != nil {
		return httplimit.Redact(err)
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
