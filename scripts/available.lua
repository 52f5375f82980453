-- SPDX-License-Identifier: Apache-2.0
-- available: how many permits could be acquired now. Reads only.
--
-- Redisson's availablePermits reclaims, drops the TTL of value and can answer more than the rate.
-- A call reads a bounded number of members; of a larger set it adds up the smaller side, expired or
-- not, over several calls at the instant of the first.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime, and of this package coolDown and reopenUntil
-- KEYS[2]   string: permits left, of the type in ARGV[1]
-- KEYS[3]   sorted set: one member a grant, of the type in ARGV[1]
-- ARGV[1]   type that KEYS[2] and KEYS[3] stand for: 0 OVERALL, 1 PER_CLIENT
-- ARGV[2]   now in ms, or empty for this server's TIME
-- ARGV[3]   side being added up, from the last answer: empty to start, e expired, u unexpired
-- ARGV[4]   members of that side already added up
-- ARGV[5]   their permits
-- Returns   {0, 1, available, now} done
--           {0, 0, side, members, permits, now} not done, go on with these
--           {1} not initialised   {2, type} the hash has another type   {4} the hash is malformed
--           {5} the set changed under the sum, start over

local conf = redis.call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'coolDown', 'reopenUntil')
local rate, interval, typ, malformed = conf[1], conf[2], conf[3], false
--#use instant
local till, ends = instant(conf[4]), instant(conf[5])
--#use limiter
--#use rate
if malformed then
  return {4}
end
local now = tonumber(ARGV[2])
--#use now

--#use formats
local byte, sub = string.byte, string.sub

--#use permits_of
-- A mark is a member that was ahead of the clock when acquire first saw it, with the instant of that. seen_at
-- returns the instant, nil for other members.
local function seen_at(m)
  --#use seen
end
local function total(from, to)
  local n = 0
  if to < from then
    return 0
  end
  local members = redis.call('ZRANGE', KEYS[3], from, to)
  for i = 1, #members do
    n = n + permits_of(members[i])
  end
  return n
end
local function answer(n)
  return {0, 1, math.max(0, math.min(rate, n)), now}
end

if till > now then
  return answer(0)
end

local stored = redis.call('GET', KEYS[2])
local value = tonumber(stored)
--#use whole
local card = redis.call('ZCARD', KEYS[3])
local expired = redis.call('ZCOUNT', KEYS[3], '-inf', string.format('%.0f', now - interval))
local live = card - expired
if live == 0 then
  return answer(rate)
end
if card <= 1000 then
  -- Blocks of a cool-down that is over for the hash hold nothing but the grants whose place they took: what acquire
  -- lifts when it meets them. Marks hold nothing from an interval after they were first seen on, whatever their score.
  ends = conf[4] and math.max(till, ends) or 0
  local members, void = redis.call('ZRANGE', KEYS[3], expired, card - 1, 'WITHSCORES'), 0
  for i = 1, #members, 2 do
    local m = members[i]
    --#use is_block
    if at then
      --#use block_instant
      local score = tonumber(members[i + 1])
      if score + interval > math.max(now, a >= 128 and till or ends)
        and (t < 4294967296 or t <= now - interval and t > score - 63244800000) then
        void = void + permits_of(m)
      end
    end
    local since = seen_at(m)
    if since and since <= now - interval then
      void = void + permits_of(m)
    end
  end
  local free = rate - total(expired, card - 1) + void
  local left = value and value + total(0, expired - 1) + void or free
  -- Less than free means lost permits, which the next acquire gives back; more than the rate means
  -- that the set decides.
  if left < free or left > rate then
    left = free
  end
  return answer(left)
end

local side, done, sum = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
if side == '' then
  side = value and expired <= live and 'e' or 'u'
end
if side == 'e' then
  -- Counted from the newest expired one down, so that a reclaim, which takes the oldest, does not
  -- move what is still to come.
  if expired < done or not value then
    return {5}
  end
  local from = math.max(0, expired - done - 1000)
  sum = sum + total(from, expired - done - 1)
  if from > 0 then
    return {0, 0, side, expired - from, sum, now}
  end
  -- Every live member holds at least one permit.
  return answer(math.min(value + sum, rate - live))
end
local to = math.min(card - 1, expired + done + 999)
sum = sum + total(expired + done, to)
if to < card - 1 then
  return {0, 0, side, to - expired + 1, sum, now}
end
return answer(rate - sum)
