-- SPDX-License-Identifier: Apache-2.0
-- give_back: makes one grant, known by its member, one of fewer permits, of none or of more.
--
-- release gives back the newest grants, whoever's they are; this one the grant of a caller that left
-- before its answer came, or that has used another number of permits than it asked for. A member that is no
-- longer there has expired, and its permits are back already: so the script may run twice. Of a grant of
-- which heal has taken out a part, the rest comes back. In a cool-down it comes back when that ends.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime, and of this package coolDown and how far heal has come
-- KEYS[2]   string: permits left, of the type in ARGV[1]
-- KEYS[3]   sorted set: one member a grant, of the type in ARGV[1]
-- ARGV[1]   type that KEYS[2] and KEYS[3] stand for: 0 OVERALL, 1 PER_CLIENT
-- ARGV[2]   the member
-- ARGV[3]   the member that takes its place; empty for none
-- ARGV[4]   permits to give back: those of the first less those of the second; below 0 to take more, whatever is left
-- ARGV[5]   now in ms, or empty for this server's TIME
-- Returns   {0, given} given: 1 when the member was there
--           {1} not initialised   {2, type} the hash has another type

local conf = redis.call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'coolDown', KEYS[3])
local rate, interval, typ, counted, malformed = conf[1], conf[2], conf[3], conf[5], false
--#use limiter
--#use rate
local now = tonumber(ARGV[5])
--#use now
--#use instant
local till = instant(conf[4])
local byte, char, sub, floor = string.byte, string.char, string.sub, math.floor
--#use formats
--#use permits_of
--#use le32
--#use ms48
local long = #ARGV[2] == LC0I
--#use join
local back, grant, to = tonumber(ARGV[4]), ARGV[2], ARGV[3] ~= '' and ARGV[3]
local score = redis.call('ZSCORE', KEYS[3], grant)
if not score and back > 0 then
  -- The oldest of those that are left is the one of which a part may be gone.
  local stay, oldest = permits_of(grant) - back, redis.call('ZRANGE', KEYS[3], 0, 63, 'WITHSCORES')
  for i = 1, #oldest, 2 do
    local m, n = ARGV[2], permits_of(oldest[i])
    --#use shrink
    if smaller == oldest[i] and n > stay then
      grant, score, back = smaller, oldest[i + 1], n - stay
      break
    end
  end
end
if not score then
  return {0, 0}
end
local stored = redis.call('GET', KEYS[2])
local value = tonumber(stored)
--#use whole
-- Without a value there is nothing to add to: the next acquire rebuilds it from the set.
if value and not malformed and (back < 0 or value < rate) then
  redis.call('INCRBY', KEYS[2], string.format('%.0f', gain(math.min(back, math.max(0, rate - value)), value)))
end
--#use replace
replace(grant, score, to)
return {0, 1}
