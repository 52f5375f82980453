-- SPDX-License-Identifier: Apache-2.0
-- cool_down_until: when the cool-down ends. Reads only.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime, and of this package coolDown
-- ARGV[1]   now in ms, or empty for this server's TIME
-- Returns   {0, left} ms until then, 0 when there is none
--           {1} not initialised

local conf = redis.call('HMGET', KEYS[1], 'rate', 'coolDown')
if not conf[1] then
  return {1}
end
local now = tonumber(ARGV[1])
--#use now
--#use instant
return {0, math.max(0, instant(conf[2]) - now)}
