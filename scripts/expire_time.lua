-- SPDX-License-Identifier: Apache-2.0
-- expire_time: when the limiter expires. PEXPIRETIME needs Redis 7; this does not.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime
-- Returns   ms since the epoch, 2^53 ms from now at most, -1 it does not expire, -2 it does not exist

local ttl = redis.call('PTTL', KEYS[1])
if ttl < 0 then
  return ttl
end
local t = redis.call('TIME')
return t[1] * 1000 + math.floor(t[2] / 1000) + math.min(ttl, 9007199254740992)
