-- SPDX-License-Identifier: Apache-2.0
-- set_rate: gives the limiter a new rate, and keeps or drops the permits in use.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime, and of this package minGap, coolDown, keptUntil and how far heal has come
-- KEYS[2]   string: permits left, of the new type (the caller's own when PER_CLIENT)
-- KEYS[3]   sorted set: one member a grant, of the new type
-- KEYS[4]   string: permits left, of the other type
-- KEYS[5]   sorted set: one member a grant, of the other type
-- ARGV[1]   rate, permits
-- ARGV[2]   interval, ms
-- ARGV[3]   keepAliveTime, ms, 0 for none
-- ARGV[4]   type: 0 OVERALL, 1 PER_CLIENT
-- ARGV[5]   now in ms, or empty for this server's TIME
-- ARGV[6]   words: exists only a limiter that has a rate; keep the permits in use; long: write blocks of 20 bytes
-- ARGV[7]   minGap, ms, 0 for none
-- Returns   {0} nothing was written: the limiter has no rate
--           {1, later, others} done; later: 1 but for the permits in use, of which there are too many for one
--           call: value has fallen as far as the rate has, below 0 if need be, and heal settles it;
--           others: 1 the permits of other clients may not fit the new rate, or expire before their interval is over,
--           and the caller settles them as well

--#use says
local conf = redis.call('HMGET', KEYS[1], 'type', 'coolDown', 'rate', 'interval')
local was = conf[1]
if not was and says(ARGV[6], 'exists') then
  return {0}
end
redis.call('HSET', KEYS[1], 'rate', ARGV[1], 'interval', ARGV[2], 'keepAliveTime', ARGV[3], 'type', ARGV[4])
redis.call('HDEL', KEYS[1], KEYS[3], KEYS[5]) -- heal is to add up anew
if ARGV[7] == '0' then
  redis.call('HDEL', KEYS[1], 'minGap')
else
  redis.call('HSET', KEYS[1], 'minGap', ARGV[7])
end

local rate, interval, now = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[5])
local old, before, keeps = tonumber(conf[3]), tonumber(conf[4]), says(ARGV[6], 'keep')
-- Those of other clients have keys that nobody can name here. They fit a rate that is not lower, and have a TTL that is long
-- enough unless the interval is longer.
local others = (was or conf[3] or keeps) and ARGV[4] == '1'
  and (was ~= '1' or not old or old > rate or keeps and (not before or before < interval)) and 1 or 0
--#use now

--#use instant

-- A cool-down goes on, and must not end because the new rate has a shorter keepAliveTime.
local till, stay = instant(conf[2]), tonumber(ARGV[3])
if stay > 0 then
  if till > now then
    stay = math.max(stay, till - now + interval)
  end
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', stay))
end

--#use formats
local byte, char, sub, floor = string.byte, string.char, string.sub, math.floor
--#use permits_of
--#use le32
--#use ms48

local long = says(ARGV[6], 'long')
--#use join
--#use as_grant
--#use stamps
--#use join_early

local later = 0
if not keeps or (was and was ~= ARGV[4]) then
  -- UNLINK: freeing a set of a million members inside DEL would hold Redis for a third of a second.
  redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[4], KEYS[5])
  redis.call('HDEL', KEYS[1], 'keptUntil')
  if till <= now then
    return {1, 0, others}
  end
  redis.call('SET', KEYS[2], string.format('%.0f', gain(rate, 0)))
else
  if old and (old ~= rate or before ~= interval) then -- heal is to drop none of the grants under another rate
    redis.call('HSET', KEYS[1], 'keptUntil', string.format('%.0f', math.min(now + math.max(interval, before or 0), 9007199254740992)))
  end
  -- More may be in use than the new rate allows. Redisson sets value to 0 and leaves the members, and each that expires would
  -- free a permit which the new rate does not have. Here value falls below 0 by as many: the first permit comes back exactly
  -- when the window has room for it, a higher rate soon after finds all that is in use, and what is given back frees none that
  -- the rate lacks.
  local stored = redis.call('GET', KEYS[2])
  local value = tonumber(stored)
  --#use whole
  local used, left, card = 0, nil, redis.call('ZCARD', KEYS[3])
  -- The blocks of a cool-down expire when they would have done. Those of grants that are in use beyond that, now that the
  -- interval is longer, become grants again. What expires before the end by a shorter one joins it.
  local blocks = conf[2] and before and before ~= interval and redis.call('ZRANGE', KEYS[3], 0, 511, 'WITHSCORES') or {}
  for i = 1, #blocks, 2 do
    local m, ends = blocks[i], blocks[i + 1] + before
    local t = block_at(m)
    if t and t > 0 and t + interval > ends and redis.call('ZADD', KEYS[3], 'NX', string.format('%.0f', math.min(t, now)), as_grant(m)) == 1 then
      redis.call('ZREM', KEYS[3], m)
    elseif t then
      redis.call('ZADD', KEYS[3], string.format('%.0f', ends - interval), m)
    end
  end
  if till > now then
    if join_early() == 256 then
      join_early()
    end
  elseif card <= 512 then
    redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', string.format('%.0f', now - interval))
  end
  local oldest = redis.call('ZRANGE', KEYS[3], 0, 511)
  for i = 1, #oldest do
    used = used + permits_of(oldest[i])
  end
  if card <= 512 then
    left = rate - used
  else
    -- Nobody knows how much is in use. But value falls by as much as the rate, so the two add up to the new rate as they
    -- did to the old one, and what expires from now on frees no permit that the new rate does not have. What a higher rate
    -- has more is for heal to give: more may be in use than the old one allowed. Of a value that was lost nothing is taken
    -- to be left. Each member holds a permit at least.
    local known = old and old >= 1 and old <= 9007199254740992
    left, later = math.min(known and (value or 0) + math.min(0, rate - old) or 0, rate - card), 1
  end
  if later == 1 and till > now then
    left = math.min(left, 0)
  end
  redis.call('SET', KEYS[2], string.format('%.0f', math.max(later == 1 and left or gain(left, 0), -9007199254740992)))
end

if stay > 0 then
  redis.call('PEXPIRE', KEYS[2], string.format('%.0f', stay))
  redis.call('PEXPIRE', KEYS[3], string.format('%.0f', stay))
else
  local ttl = math.min(redis.call('PTTL', KEYS[1]), 9007199254740992) -- PEXPIRE would fail on one near 2^63
  if ttl >= 0 then -- 0 in its last millisecond
    ttl = math.max(1, ttl)
    redis.call('PEXPIRE', KEYS[2], ttl)
    redis.call('PEXPIRE', KEYS[3], ttl)
  end
end
return {1, later, others}
