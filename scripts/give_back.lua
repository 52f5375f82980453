-- SPDX-License-Identifier: Apache-2.0
-- give_back: makes one grant, known by its member, one of fewer permits, of none or of more.
--
-- release gives back the newest grants, whoever's they are; this one the grant of a caller that left
-- before its answer came, or that has used another number of permits than it asked for. A member that is no
-- longer there has expired, and its permits are back already: so the script may run twice.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime
-- KEYS[2]   string: permits left, of the type in ARGV[1]
-- KEYS[3]   sorted set: one member a grant, of the type in ARGV[1]
-- ARGV[1]   type that KEYS[2] and KEYS[3] stand for: 0 OVERALL, 1 PER_CLIENT
-- ARGV[2]   the member
-- ARGV[3]   the member that takes its place; empty for none
-- ARGV[4]   permits to give back: those of the first less those of the second; below 0 to take more, whatever is left
-- Returns   {0, given} given: 1 when the member was there
--           {1} not initialised   {2, type} the hash has another type

local conf = redis.call('HMGET', KEYS[1], 'rate', 'interval', 'type')
local rate, interval, typ = conf[1], conf[2], conf[3]
--#use limiter
local score = redis.call('ZSCORE', KEYS[3], ARGV[2])
if not score then
  return {0, 0}
end
local stored = redis.call('GET', KEYS[2])
local value = tonumber(stored)
--#use whole
-- Without a value there is nothing to add to: the next acquire rebuilds it from the set.
rate = tonumber(rate)
local back = tonumber(ARGV[4])
if value and rate and (back < 0 or value < rate) then
  redis.call('INCRBY', KEYS[2], math.min(back, math.max(0, rate - value)))
end
if ARGV[3] ~= '' then
  -- Added before the old one goes: an emptied set would lose its TTL.
  redis.call('ZADD', KEYS[3], score, ARGV[3])
end
redis.call('ZREM', KEYS[3], ARGV[2])
return {0, 1}
