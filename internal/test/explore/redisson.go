// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"strconv"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
)

// modelText has the effects of tryAcquire of Redisson 4.7, as docs/design/protocol.md has them: the first call makes the value;
// others reclaim what has expired, all of it, and take permits at the caller's own clock, or return a wait.
//
// KEYS: hash, value, own value, set, own set. ARGV: permits, now, the 16 bytes of a member.
const modelText = `
local conf = redis.call('HMGET', KEYS[1], 'rate', 'interval', 'type')
local rate, interval, own = tonumber(conf[1]), tonumber(conf[2]), conf[3] == '1'
if not (rate and interval and conf[3]) then
  return -1
end
local value, set = own and KEYS[3] or KEYS[2], own and KEYS[5] or KEYS[4]
local n, now, left = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(redis.call('GET', value) or rate)
local function permits(m)
  local a, b, c, d = string.byte(m, -4, -1)
  return a + b * 256 + c * 65536 + d * 16777216
end
if redis.call('EXISTS', value) == 1 then
  local freed, used = 0, 0
  for _, m in ipairs(redis.call('ZRANGEBYSCORE', set, 0, now - interval)) do
    freed = freed + permits(m)
    redis.call('ZREM', set, m)
  end
  for _, m in ipairs(redis.call('ZRANGE', set, 0, -1)) do
    used = used + permits(m)
  end
  if freed > 0 then
    left = left + freed > rate and rate - used or left + freed
    redis.call('SET', value, left)
  end
  if left < n then
    return 3 + interval - (now - redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')[2])
  end
end
redis.call('ZADD', set, now, string.char(16) .. ARGV[3] .. string.char(n, 0, 0, 0))
redis.call('SET', value, left - n)
return 0`

// model is the Redisson of a [Config] that has none.
func model(eval func(text string, keys, args []string) (any, error), limiter, client string, permits, now int64, random string) (bool, error) {
	k := redisson.NewKeys(limiter, client)
	v, err := eval(modelText, []string{k.Hash, k.Value[permit.Overall], k.Value[permit.PerClient], k.Permits[permit.Overall], k.Permits[permit.PerClient]},
		[]string{strconv.FormatInt(permits, 10), strconv.FormatInt(now, 10), random})
	return v == int64(0), err
}
