// SPDX-License-Identifier: Apache-2.0

package testworld

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/redis/go-redis/v9"
)

// likeRedisson is an acquire with the effects of Redisson's, as docs/design/protocol.md has them: reclaim what has expired, all
// of it; take the permits at the caller's own clock, or return when to ask again.
//
// KEYS: hash, value, set. ARGV: permits, now, the first 17 bytes of a member.
var likeRedisson = redis.NewScript(`
local conf = redis.call('HMGET', KEYS[1], 'rate', 'interval')
local now, interval, n = tonumber(ARGV[2]), tonumber(conf[2]), tonumber(ARGV[1])
local left = tonumber(redis.call('GET', KEYS[2]) or conf[1])
for _, m in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], 0, now - interval)) do
  local a, b, c, d = string.byte(m, -4, -1)
  left = left + a + b * 256 + c * 65536 + d * 16777216
  redis.call('ZREM', KEYS[3], m)
end
local wait = 0
if left < n then
  wait = 3 + interval - (now - redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2])
else
  redis.call('ZADD', KEYS[3], now, ARGV[3] .. string.char(n, 0, 0, 0))
  left = left - n
end
redis.call('SET', KEYS[2], left)
return wait`)

// AskLikeRedisson takes permits of an Overall limiter with these keys in the way of Redisson. It returns the id of the grant,
// and how long to wait before the next attempt, or 0 if it got the permits.
func AskLikeRedisson(ctx context.Context, rdb *redis.Client, keys []string, permits int64) (id permit.ID, wait time.Duration, err error) {
	id = redisson.RandomID()
	ms, err := likeRedisson.Run(ctx, rdb, keys, permits, now().UnixMilli(), append([]byte{16}, id[:]...)).Int64()
	return id, time.Duration(ms) * time.Millisecond, err
}

// Redisson is AskLikeRedisson of a limiter of the server, which enters the grant in the ledger.
func (s *Server) Redisson(key string, permits int64) (wait time.Duration) {
	s.t.Helper()
	id, wait, err := AskLikeRedisson(context.Background(), s.Redis, s.of(key, 0).Keys.Of(permit.Overall), permits)
	s.must(err)
	if wait == 0 {
		s.ledger(key, "").add(Grant{ID: id, At: now(), Permits: permits})
	}
	return wait
}
