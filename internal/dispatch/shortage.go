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

// Spares reports whether the pool of connections to the server that holds a key can spare those of calls that are given up now: there is no
// shortage, and at most a quarter of the connections, or one, are in use by calls that have had no reply for a second.
func Spares(s Sender, key string) bool {
	if ShortageTo(s, key) != nil {
		return false
	}
	d, ok := s.(*Dispatcher)
	if !ok {
		return true
	}
	l, err := d.laneOf(context.Background(), key)
	if err != nil || l == nil {
		return true
	}
	size, silent := sizeOf(l.pool()), 0
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.air {
		if time.Since(d.at) >= maxWait {
			silent++
		}
	}
	return silent <= max(1, size/4)
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
