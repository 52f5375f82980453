-- SPDX-License-Identifier: Apache-2.0
-- lift_cool_down: ends a cool-down before its time.
--
-- The permits that were free when it was set are free at once. Those that were in use are so again as if it
-- had not been: at once would be a second burst. So the blocks that took the place of grants become
-- members like others, with the instant of those grants as their score, and the rest goes. The fields go from the
-- hash, and by that the blocks that this call cannot name are void, those of other PER_CLIENT clients and what is
-- beyond the bound of a call: the acquire that meets one lifts it.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime, and of this package coolDown, reopenUntil, waiting and how far heal has come
-- KEYS[2]   string: permits left, of the type in ARGV[1]
-- KEYS[3]   sorted set: one member a grant, of the type in ARGV[1]
-- ARGV[1]   type that KEYS[2] and KEYS[3] stand for: 0 OVERALL, 1 PER_CLIENT
-- ARGV[2]   now in ms, or empty for this server's TIME
-- Returns   {0, lifted} lifted: 1 when a cool-down was in force or re-opening
--           {1} not initialised   {2, type} the hash has another type   {4} the hash is malformed

local conf = redis.call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'coolDown', 'reopenUntil')
local rate, interval, typ, malformed = conf[1], conf[2], conf[3], false
--#use limiter
--#use rate
if malformed then
  return {4}
end
local now = tonumber(ARGV[2])
--#use now
--#use instant
local till = instant(conf[4])
local ends = math.max(till, instant(conf[5]))
local lifted = ends > now and 1 or 0
redis.call('HDEL', KEYS[1], 'coolDown', 'reopenUntil', 'waiting', KEYS[3]) -- and heal is to add up anew

-- They expire from the end of the cool-down on; where the hash does not say when that is, they are what
-- lies ahead of the others.
local members
if redis.call('ZCARD', KEYS[3]) <= 640 then
  members = redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES')
elseif ends > now then
  members = redis.call('ZRANGEBYSCORE', KEYS[3], string.format('%.0f', till - interval), string.format('%.0f', ends - interval),
    'WITHSCORES', 'LIMIT', 0, 640)
else
  members = redis.call('ZREVRANGE', KEYS[3], 0, 511, 'WITHSCORES')
end
--#use formats
local byte, sub, freed = string.byte, string.sub, 0
--#use as_grant
--#use permits_of
for i = 1, #members, 2 do
  local m, score = members[i], tonumber(members[i + 1])
  --#use is_block
  if at and score + interval > now then
    --#use block_instant
    if t < 4294967296 or t <= now - interval and t > score - 63244800000 then
      redis.call('ZREM', KEYS[3], m)
      freed, lifted = freed + permits_of(m), 1
    elseif t <= now + 32 and t <= score + 32 and t > score - 63244800000 then
      t = math.min(t, now) -- equal blocks of 20 bytes are kept apart by their instant
      -- Added before the block goes: an emptied set would lose its TTL.
      if redis.call('ZADD', KEYS[3], 'NX', string.format('%.0f', t), as_grant(m)) == 1 then
        redis.call('ZREM', KEYS[3], m)
        lifted = 1
      end
    end
  end
end
local stored = redis.call('GET', KEYS[2])
local value = tonumber(stored)
--#use whole
-- Without a value there is nothing to add to: the next acquire rebuilds it from the set.
if freed > 0 and value and value < rate then
  redis.call('INCRBY', KEYS[2], math.min(freed, rate - value))
end
return {0, lifted}
