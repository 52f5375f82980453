// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Node returns a Sender to the one server that holds a key, for commands about a server and not a key, such as SCAN.
// That server is the master of the key's slot in a cluster, or its shard of a ring. For every other client Node
// returns s itself.
func Node(ctx context.Context, s Sender, key string) (Sender, error) {
	switch s := Alone(s).(type) {
	case *pinnedRing:
		return s.shard(key)
	case interface {
		MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	}:
		return s.MasterForKey(ctx, key)
	}
	return Alone(s), nil
}
