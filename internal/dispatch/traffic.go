// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
)

// Traffic is what a process has in flight to one server, as far as it can tell. Only calls that may share round trips
// are counted.
type Traffic struct {
	Left    int64 // round trips that have left
	Replied int64 // those that have had a reply
	Newest  int64 // the number of the last one to leave that has had a reply; 0 for none
	Sent    int   // at least so many of those that have not ended have got a connection
}

// TrafficTo returns the Traffic of s to the server that holds a key. It is zero if that is not known.
func TrafficTo(s Sender, key string) (t Traffic) {
	d, ok := s.(*Dispatcher)
	if !ok {
		return t
	}
	l, err := d.laneOf(context.Background(), key)
	if err != nil || l == nil {
		return t
	}
	l.mu.Lock()
	t = Traffic{Left: l.left, Replied: l.replied, Newest: l.newest.n, Sent: len(l.air)}
	l.mu.Unlock()
	// Those that wait for a connection may all be ours. They are counted last, so that the number is not too large.
	t.Sent = max(0, t.Sent-int(statsOf(l.pool()).PendingRequests))
	if preparesConns(l.pool()) {
		t.Sent = 0
	}
	return t
}

// preparesConns reports whether a client calls functions of its user on a new connection before it sends anything,
// for example one that asks a vault for a password. Then a call with a connection may not have been sent.
func preparesConns(rdb any) bool {
	c, ok := rdb.(interface{ Options() *redis.Options })
	if !ok {
		return false
	}
	o := c.Options()
	return o != nil && (o.OnConnect != nil || o.CredentialsProvider != nil || o.CredentialsProviderContext != nil || o.StreamingCredentialsProvider != nil)
}

// A pool is a client with the connections of one node, or of several.
type pool interface{ PoolStats() *redis.PoolStats }

// statsOf returns the statistics of a pool, which may belong to a client that is not of go-redis.
func statsOf(p pool) (stats redis.PoolStats) {
	_ = retry.Contain("PoolStats", func() { stats = *p.PoolStats() })
	return stats
}

func (l *lane) pool() pool {
	if l.node != nil {
		return l.node
	}
	return l.d.rdb
}

// ShortageTo returns a *[retry.Shortage] if calls to the server that holds a key wait in this process while the
// server replies. They wait for a connection, because all are in use, or behind other calls. Otherwise it returns
// nil. A connection that is still being made is no shortage: go-redis does not tell how its dials end before it has
// made several, and a server that rejects them is down.
func ShortageTo(s Sender, key string) error {
	d, ok := s.(*Dispatcher)
	if !ok {
		return nil
	}
	l, err := d.laneOf(context.Background(), key)
	if err != nil || l == nil {
		return nil
	}
	p := l.pool()
	stats, size := statsOf(p), sizeOf(p)
	if size > 0 && stats.PendingRequests > 0 && stats.IdleConns == 0 && int(stats.TotalConns) >= size {
		return shortage(size, errUnsent)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queued == 0 || time.Since(l.newest.at) >= maxWait {
		return nil
	}
	return &retry.Shortage{Err: fmt.Errorf("%w: %d of this process wait to be sent", errUnsent, l.queued)}
}

var errUnsent = errors.New("redis: the command has not been sent")

// shortage returns the error of a call that found no connection in a pool of the given size.
func shortage(size int, err error) error {
	if size == 0 {
		return &retry.Shortage{Err: fmt.Errorf("%w: all connections of the pool are in use", err)}
	}
	return &retry.Shortage{Err: fmt.Errorf("%w: all %d connections of the pool are in use", err, size)}
}

// poolFull returns the error of a command that was sent to s and ended with err, if no connection was free or this
// process could open none. Otherwise it returns nil.
func poolFull(s any, err error) error {
	switch {
	case !crowded(err) || errors.As(err, new(*retry.Shortage)):
		return nil
	case exhausted(err):
		return &retry.Shortage{Err: err}
	}
	switch c := s.(type) {
	case *Dispatcher:
		s = c.rdb
	case *pinnedRing:
		s = c.ring
	}
	return shortage(sizeOf(s), err)
}

// sizeOf returns how many connections a client may have to each node, or 0 if that is not known.
func sizeOf(rdb any) int {
	switch c := rdb.(type) {
	case interface{ Options() *redis.Options }:
		if o := c.Options(); o != nil {
			return least(o.PoolSize, o.MaxActiveConns)
		}
	case interface{ Options() *redis.ClusterOptions }:
		if o := c.Options(); o != nil {
			return least(o.PoolSize, o.MaxActiveConns)
		}
	case interface{ Options() *redis.RingOptions }:
		if o := c.Options(); o != nil {
			return least(o.PoolSize, o.MaxActiveConns)
		}
	}
	return 0
}

// least returns the size of a pool with at most active connections in use; 0 means no bound.
func least(size, active int) int {
	if active > 0 {
		return min(size, active)
	}
	return size
}
