// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Memory returns how many bytes a key of the limiter of that name takes, as far as Redis estimates it from a few of
// its members.
func (s *Survey) Memory(ctx context.Context, name, key string) (int64, error) {
	return s.ofKey(ctx, name, func(rdb redis.Cmdable) *redis.IntCmd { return rdb.MemoryUsage(ctx, key) })
}

// Frequency returns the logarithmic counter of the accesses to a key of the limiter of that name, 255 at most. It
// reports false if Redis has none: its eviction policy is not one of LFU, it is older than 4.0, or the key does not exist.
func (s *Survey) Frequency(ctx context.Context, name, key string) (int64, bool, error) {
	n, err := s.ofKey(ctx, name, func(rdb redis.Cmdable) *redis.IntCmd { return rdb.ObjectFreq(ctx, key) })
	if errors.Is(err, redis.Nil) || err != nil && (strings.Contains(err.Error(), "LFU maxmemory policy is not selected") ||
		strings.Contains(err.Error(), "no such key") || strings.Contains(err.Error(), "unknown subcommand")) {
		return 0, false, nil
	}
	return n, err == nil, err
}

// ofKey asks the server that holds a limiter.
func (s *Survey) ofKey(ctx context.Context, name string, ask func(redis.Cmdable) *redis.IntCmd) (int64, error) {
	rdb, err := s.node(ctx, name)
	if err != nil {
		return 0, err
	}
	p := fromMasters(ctx, rdb)
	cmd := ask(p)
	if err := s.exec(ctx, p); err != nil {
		return 0, err
	}
	return cmd.Result()
}
