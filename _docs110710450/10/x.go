package x

import (
	"context"
	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/goredisson/ratelimiter/ratelimitertest"
	"github.com/redis/go-redis/v9"
	"net/http"
	"testing"
	"time"
)

func TestSixthMessageWaits(t *testing.T) {
	ratelimitertest.Run(t, func(t *testing.T, rdb *redis.Client) {
		client := ratelimitertest.NewClient(t, rdb)
		limiter := client.RateLimiter("sms").WithRate(ratelimiter.Rate{Permits: 5, Interval: 10 * time.Second})
		start := time.Now()
		for range 6 {
			if err := limiter.Acquire(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
		}
		if waited := time.Since(start); waited != 10*time.Second { // exactly, and at once
			t.Error(waited)
		}
	})
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
