// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"testing"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// A world is a Client in a bubble of virtual time.
type world struct {
	t      *testing.T
	client *ratelimiter.Client
	rdb    *redis.Client
	key    string // the start of every limiter's name
}

func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		f(t, &world{t: t, client: clienttest.InBubble(t, rdb), rdb: rdb, key: redistest.Key(t)})
	})
}

// inWorldOf is inWorld as a subtest of that name.
func inWorldOf(t *testing.T, name string, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inWorld(t, f) })
}
