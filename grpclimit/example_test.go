// SPDX-License-Identifier: Apache-2.0

package grpclimit_test

import (
	"fmt"
	"net/http"

	"github.com/alicebob/miniredis/v2"
	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/grpclimit"
	"github.com/goredisson/ratelimiter/httplimit/inbound"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
)

// A hundred calls a minute of each method and user, of which one method has ten, and ten messages a second in each stream.
func Example() {
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
	user := inbound.ByHeader("authorization")
	calls, err := inbound.NewRules(client, []inbound.Rule{{
		Name: "calls",
		Rate: ratelimiter.PerMinute(100),
		Keys: []inbound.KeyFunc{inbound.ByPattern(nil), user},
	}, {
		Name: "create",
		Rate: ratelimiter.PerMinute(10),
		Keys: []inbound.KeyFunc{user, func(r *http.Request) (string, bool) { return "", r.Pattern == "/shop.Orders/Create" }},
	}})
	if err != nil {
		panic(err)
	}
	messages, err := inbound.New(client, "messages", ratelimiter.PerSecond(10), inbound.WithKeys(user))
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpclimit.UnaryServerInterceptor(calls)),
		grpc.ChainStreamInterceptor(grpclimit.StreamServerInterceptor(calls), grpclimit.MessageServerInterceptor(messages)),
	)
	defer server.Stop()
	fmt.Println(len(server.GetServiceInfo()), "services")
	// Output:
	// 0 services
}

// A server whose health service anybody may call: its calls take permits as all others do.
func ExampleWithHealthChecks() {
	window, err := limit.NewLocal(limit.FixedWindow{Rate: ratelimiter.PerMinute(100)})
	if err != nil {
		panic(err)
	}
	calls, err := inbound.NewRules(nil, []inbound.Rule{{Name: "calls", LimiterFor: func(string) limit.Limiter { return window }}})
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(grpclimit.UnaryServerInterceptor(calls, grpclimit.WithHealthChecks())))
	fmt.Println(len(server.GetServiceInfo()), "services yet")
	// Output:
	// 0 services yet
}
