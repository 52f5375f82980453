-- lift_cool_down: ends a cool-down before its time.
--
-- The permits that it holds come back as if they had been granted when it was set: after one interval
-- from then on at the latest. At once would be a second burst where it took the place of grants. So the blocks
-- become members like others, with the score of that instant.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime, and of this package coolDown
-- KEYS[2]   sorted set: one member a grant, of the type in ARGV[1]
-- ARGV[1]   type that KEYS[2] stands for: 0 OVERALL, 1 PER_CLIENT
-- ARGV[2]   now in ms, or empty for this server's TIME
-- Returns   {0, lifted} lifted: 1 when a cool-down was in force or re-opening
--           {1} not initialised   {2, type} the hash has another type

local conf = redis.call('HMGET', KEYS[1], 'rate', 'type', 'coolDown')
if not (conf[1] and conf[2]) then
  return {1}
end
if conf[2] ~= ARGV[1] then
  return {2, conf[2] == '0' and 0 or conf[2] == '1' and 1 or -1}
end
local now = tonumber(ARGV[2])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local lifted = (tonumber(conf[3] or 0) or 0) > now and 1 or 0
redis.call('HDEL', KEYS[1], 'coolDown')

-- The blocks are the newest members but for grants that peers made in spite of it.
local members = redis.call('ZREVRANGE', KEYS[2], 0, 511, 'WITHSCORES')
for i = 1, #members, 2 do
  local m, stamp = members[i], nil
  if #m == 21 and string.sub(m, 1, 4) == '\16~c~' then
    stamp = string.sub(m, 9, 14)
  elseif #m == 20 and string.sub(m, 9, 10) == '~c' then
    stamp = string.sub(m, 11, 16)
  end
  if stamp then
    local t = 0
    for j = 1, 6 do
      t = t * 256 + string.byte(stamp, j)
    end
    if tonumber(members[i + 1]) > t then
      -- Added before the block goes: an emptied set would lose its TTL.
      redis.call('ZADD', KEYS[2], string.format('%.0f', t), #m == 21 and '\16~l~' .. string.sub(m, 5)
        or string.sub(m, 1, 8) .. '~l' .. string.sub(m, 11))
      redis.call('ZREM', KEYS[2], m)
      lifted = 1
    end
  end
end
return {0, lifted}
