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
	// Gemini's requests of a day: https://ai.google.dev/gemini-api/docs/rate-limits
	pacific, err := time.LoadLocation("America/Los_Angeles")
	if err != nil {
		return err
	}
	quota, err := limit.NewShared(rdb, "gemini", limit.CalendarQuota{Permits: 250, Per: limit.Day, Location: pacific})
	if err != nil {
		return err
	}
	result, err := quota.Allow(ctx, 1)
	if err != nil {
		return err
	}
	fmt.Println(result.Granted, result.Available)
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
