-- SPDX-License-Identifier: Apache-2.0
-- The least that acquire can do in Redisson's format: it takes one permit of a healthy OVERALL limiter, or replies the
-- wait until the oldest grant expires. It cannot tell a replay, heals nothing and knows no cool-down: for benchmarks only.
--
-- KEYS[1] hash   KEYS[2] permits left   KEYS[3] set of grants   ARGV[1] the member to store   Returns {left, now, wait, ttl}
local conf = redis.call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'keepAliveTime')
local rate, interval, time = tonumber(conf[1]), tonumber(conf[2]), redis.call('TIME')
local now, stored = time[1] * 1000 + math.floor(time[2] / 1000), redis.call('GET', KEYS[2])
local left = tonumber(stored or rate)
local old = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', string.format('%d', now - interval), 'LIMIT', '0', '64')
for i = 1, #old do
  local a, b, c, d = string.byte(old[i], -4, -1)
  left = left + a + b * 256 + c * 65536 + d * 16777216
end
if left < 1 then
  return {left, now, redis.call('ZRANGE', KEYS[3], '0', '0', 'WITHSCORES')[2] + interval - now, 0}
end
if #old > 0 then
  redis.call('ZREMRANGEBYRANK', KEYS[3], 0, #old - 1)
end
if #old > 0 or not stored then
  redis.call('SET', KEYS[2], string.format('%d', left - 1))
else
  redis.call('INCRBY', KEYS[2], '-1')
end
redis.call('ZADD', KEYS[3], 'NX', string.format('%d', now), ARGV[1])
return {left - 1, now, 0, redis.call('PTTL', KEYS[1])}
