// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"github.com/goredisson/ratelimiter/internal/link"
)

// A Handle is how a caller reaches one limiter: its wait queue in this process, and by the Link, for calls that do not come from
// the queue, its permits in Redis. It holds no state of the limiter; handles with the same QueueID share one.
type Handle struct {
	link.Link
	shard *shard
}

// Handle returns a Handle of the limiter with that key. Errors call the limiter name.
func (e *Engine) Handle(key, name string, b link.Backend) Handle {
	s := e.shardOf(key)
	return Handle{Link: link.Link{QueueID: link.QueueID{Key: key}, Name: name, Backend: b, System: &e.system, Queue: s}, shard: s}
}
