-- SPDX-License-Identifier: Apache-2.0
-- clear_expire: takes the TTL from the limiter's keys.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime
-- KEYS[2]   string: permits left, OVERALL
-- KEYS[3]   sorted set: one member a grant, OVERALL
-- KEYS[4]   string: permits left, of the calling client
-- KEYS[5]   sorted set: one member a grant, of the calling client
-- Returns   1 at least one key had a TTL, 0 none had

local n = redis.call('PERSIST', KEYS[1]) + redis.call('PERSIST', KEYS[2]) + redis.call('PERSIST', KEYS[3])
  + redis.call('PERSIST', KEYS[4]) + redis.call('PERSIST', KEYS[5])
return n > 0 and 1 or 0
