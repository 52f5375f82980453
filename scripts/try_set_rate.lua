-- SPDX-License-Identifier: Apache-2.0
-- try_set_rate: gives the limiter a rate unless it has one.
--
-- A limiter that has its rate is left as it is, to the letter: Redisson's own answer false can still
-- add a missing keepAliveTime to a hash made by 3.37 or older.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime, and of this package minGap
-- ARGV[1]   rate, permits
-- ARGV[2]   interval, ms
-- ARGV[3]   keepAliveTime, ms, 0 for none
-- ARGV[4]   type: 0 OVERALL, 1 PER_CLIENT
-- ARGV[5]   minGap, ms, 0 for none
-- Returns   1 the rate was set, 0 the limiter had one

local conf = redis.call('HMGET', KEYS[1], 'rate', 'interval', 'type')
if conf[1] and conf[2] and conf[3] then
  return 0
end
redis.call('HSETNX', KEYS[1], 'rate', ARGV[1])
redis.call('HSETNX', KEYS[1], 'interval', ARGV[2])
redis.call('HSETNX', KEYS[1], 'keepAliveTime', ARGV[3])
local new = redis.call('HSETNX', KEYS[1], 'type', ARGV[4])
if new == 1 and ARGV[5] ~= '0' then
  redis.call('HSET', KEYS[1], 'minGap', ARGV[5])
end
if new == 1 and tonumber(ARGV[3]) > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return new
