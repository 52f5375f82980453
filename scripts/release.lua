-- SPDX-License-Identifier: Apache-2.0
-- release: gives permits back, and takes them out of the set so that they do not come back twice.
--
-- Redisson (3.52.0 to 4.7.0) leaves the members: a released permit returns a second time when its
-- member expires. Newest first: taking the oldest would make the next waiter wait longer.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime, and of this package coolDown and how far heal has come
-- KEYS[2]   string: permits left, of the type in ARGV[1]
-- KEYS[3]   sorted set: one member a grant, of the type in ARGV[1]
-- ARGV[1]   type that KEYS[2] and KEYS[3] stand for: 0 OVERALL, 1 PER_CLIENT
-- ARGV[2]   permits to give back
-- ARGV[3]   least TTL in ms of PER_CLIENT state when the limiter has none, 0 for no TTL
-- ARGV[4]   now in ms, or empty for this server's TIME
-- Returns   {0, left, available} left > 0: too many members for one call, send the rest at once
--           {1} not initialised   {2, type} the hash has another type   {4} the hash is malformed

local conf = redis.call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'keepAliveTime', 'coolDown', KEYS[3])
local rate, interval, typ, keep, cool_down, counted, malformed = conf[1], conf[2], conf[3], conf[4], conf[5], conf[6], false
--#use limiter
--#use rate
--#use keep_alive
if malformed then
  return {4}
end

if cool_down then
  local now = tonumber(ARGV[4])
  --#use now
  if (tonumber(cool_down) or 0) > now then
    -- A cool-down has taken the place of all grants: there is nothing to give back.
    return {0, 0, 0}
  end
end

--#use formats
local byte, char, sub, floor = string.byte, string.char, string.sub, math.floor

-- What a cool-down put there is no grant.
local function is_block(m)
  --#use is_block
  return at
end
--#use permits_of
--#use le32
--#use replace

local stored = redis.call('GET', KEYS[2])
local value = tonumber(stored)
--#use whole
if not value then
  -- Rebuilt as acquire does. Over a large set it starts at 0 and the next audit raises it.
  stored, value = nil, 0
  if redis.call('ZCARD', KEYS[3]) <= 512 then
    local members = redis.call('ZRANGE', KEYS[3], 0, -1)
    value = rate
    for i = 1, #members do
      value = value - permits_of(members[i])
    end
  end
end

local left, gone, blocks = tonumber(ARGV[2]), 0, false
local cut, score, rest
local members = redis.call('ZREVRANGE', KEYS[3], 0, math.min(left + 64, 512) - 1, 'WITHSCORES')
for i = 1, #members, 2 do
  local m = members[i]
  local n = permits_of(m)
  if is_block(m) then
    blocks = true
  elseif n > left then
    if left > 0 then
      cut, score, rest = m, members[i + 1], n - left
      left = 0
    end
    break
  elseif blocks then
    replace(m)
    left = left - n
  else
    left = left - n
    gone = gone + 1
  end
end
if gone > 0 then -- the newest, before any block
  redis.call('ZREMRANGEBYRANK', KEYS[3], -gone, -1)
end
if cut then
  local m, n = cut, rest
  --#use shrink
  replace(m, score, smaller)
end

value = math.min(rate, value + tonumber(ARGV[2]) - left)
if left == tonumber(ARGV[2]) then
  left = 0 -- blocks only: there is nothing to give back
end
if redis.call('EXISTS', KEYS[3]) == 0 then
  -- Nothing is in use, so everything is free.
  value, left = rate, 0
end
if not stored then
  redis.call('SET', KEYS[2], value)
elseif value ~= tonumber(stored) then
  redis.call('INCRBY', KEYS[2], value - stored)
end

-- The TTL rule, as in acquire: a value that outlived the hash would be a limiter that Redisson fails
-- on, should the name come back with a higher rate.
local ttl, stay, least, idle = 0, keep, 0, ARGV[3]
--#use ttl
return {0, left, math.max(0, value)}
