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

// ServerOf returns the address of the server that holds a key, whether or not it is up: the master of the key's slot in a
// cluster, or its shard of a ring. It returns "" for any other client, and if that is not known without asking. It does not
// block.
func ServerOf(s Sender, key string) (addr string) {
	d, _ := s.(*Dispatcher)
	switch {
	case d == nil || d.single != nil:
		return ""
	case d.ring != nil:
		return d.ring.addrOf(key)
	case !d.settled.Load():
		return ""
	}
	master, err := d.cluster.MasterForKey(context.Background(), key)
	if err != nil {
		return ""
	}
	return master.Options().Addr
}
