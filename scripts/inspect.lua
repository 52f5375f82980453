-- SPDX-License-Identifier: Apache-2.0
-- inspect: the limiter as it lies in Redis, at one instant. Reads only, and a bounded number of
-- members: the newest.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime, and of this package minGap, coolDown, reopenUntil
-- KEYS[2]   string: permits left, of the type in ARGV[1]
-- KEYS[3]   sorted set: one member a grant, of the type in ARGV[1]
-- ARGV[1]   type that KEYS[2] and KEYS[3] stand for: 0 OVERALL, 1 PER_CLIENT
-- ARGV[2]   now in ms, or empty for this server's TIME
-- ARGV[3]   how many members to read
-- Returns   {0, now, fields, value, count, members}
--           fields: of the hash, name and value in turn, the seven above alone when it has more than
--           64; value: as it is, nil when absent; members: newest first, each and its score in
--           turn. A hash that is absent or malformed is answered too.
--           {2, type} the hash has another type

local typ = redis.call('HGET', KEYS[1], 'type')
if (typ == '0' or typ == '1') and typ ~= ARGV[1] then
  return {2, tonumber(typ)}
end
local fields
if redis.call('HLEN', KEYS[1]) <= 64 then
  fields = redis.call('HGETALL', KEYS[1])
else
  fields = {}
  for _, name in ipairs({'rate', 'interval', 'type', 'keepAliveTime', 'minGap', 'coolDown', 'reopenUntil'}) do
    local v = redis.call('HGET', KEYS[1], name)
    if v then
      fields[#fields + 1] = name
      fields[#fields + 1] = v
    end
  end
end
local now = tonumber(ARGV[2])
--#use now

local members = redis.call('ZREVRANGE', KEYS[3], 0, tonumber(ARGV[3]) - 1, 'WITHSCORES')
if type(members[2]) == 'number' then -- as Dragonfly gives scores to scripts
  for i = 2, #members, 2 do
    members[i] = string.format('%.17g', members[i])
  end
end
return {0, now, fields, redis.call('GET', KEYS[2]), redis.call('ZCARD', KEYS[3]), members}
