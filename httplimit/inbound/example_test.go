package inbound_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit/inbound"
	"github.com/redis/go-redis/v9"
)

// Where there is no net/http, such as behind a queue, Decide decides by keys of the caller's.
func ExampleMiddleware_Decide() {
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		panic(err)
	}
	defer m.Close()
	client, err := ratelimiter.New(redis.NewClient(&redis.Options{Addr: m.Addr()}))
	if err != nil {
		panic(err)
	}
	defer client.Close()
	limit, err := inbound.New(client, "jobs", ratelimiter.Rate{Permits: 2, Interval: time.Minute})
	if err != nil {
		panic(err)
	}
	for range 3 {
		answer := limit.Decide(context.Background(), 1, "tenant-7")
		fmt.Println(answer.Passes(), answer.Result.Available, answer.RetryAfter)
	}
	// Output:
	// true 1 0s
	// true 0 0s
	// false 0 1m0s
}
