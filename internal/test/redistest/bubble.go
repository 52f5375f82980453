// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/embedredis"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Run runs f in a [testing/synctest] bubble, with a client of the lane's server: time.Sleep and timers take no real
// time, and elapsed times are exact. The client is closed when f returns.
//
// In the miniredis lane the server is new and lives in the bubble too: TIME and TTLs follow the bubble's clock, which
// starts at 2000-01-01 UTC. In a real lane the server is the one shared by this process, whose TIME and TTLs are
// real: f passes its own clock to whatever must be exact, and calls [TTLsAreVirtual] before it waits for a TTL.
//
// The opts get the finished options, including the Dialer, so that a test can wrap the Dialer to break connections.
// They must not lower PoolSize below the number of goroutines that use the client. [Peer] returns further clients of
// the same server.
func Run(t *testing.T, f func(t *testing.T, rdb *redis.Client), opts ...func(*redis.Options)) {
	t.Helper()
	var addr string
	if Lane() != miniLane {
		addr = sharedServer(t).Addr() // outside the bubble, which the server outlives
	}
	synctest.Test(t, func(t *testing.T) {
		// A command under way fails when its client is closed, and go-redis sleeps before it tries again. A bubble
		// whose test has ended has no more time for that, so it is given here, once all clients are closed.
		t.Cleanup(func() { time.Sleep(time.Minute) })
		o := options(addr)
		if addr == "" {
			s := embedredis.InBubble()
			t.Cleanup(s.Close)
			o = s.Options()
		}
		o.PoolSize = embedredis.BubblePoolSize
		f(t, newClient(t, o, opts))
	})
}

// Peer returns a further client of the server that rdb is connected to, with its own pool: to Redis it is another
// process. It belongs to the bubble, if any, that calls Peer, and is closed when t ends.
func Peer(t testing.TB, rdb *redis.Client, opts ...func(*redis.Options)) *redis.Client {
	t.Helper()
	o := options(rdb.Options().Addr)
	o.Dialer = rdb.Options().Dialer
	o.PoolSize = rdb.Options().PoolSize
	return newClient(t, o, opts)
}

// options returns the options that every client here starts from. The Dialer is always set, so that tests can wrap
// it.
func options(addr string) *redis.Options {
	return &redis.Options{
		Addr:            addr,
		DisableIdentity: true,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

func newClient(t testing.TB, o *redis.Options, opts []func(*redis.Options)) *redis.Client {
	for _, opt := range opts {
		opt(o)
	}
	rdb := redis.NewClient(o)
	t.Cleanup(func() { rdb.Close() })
	return rdb
}
