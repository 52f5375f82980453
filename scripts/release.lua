-- release: gives permits back, and takes them out of the set so that they do not come back twice.
--
-- Redisson (3.52.0 to 4.7.0) leaves the members: a released permit returns a second time when its
-- member expires. Newest first: taking the oldest would make the next waiter wait longer.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime, and of this package coolDown
-- KEYS[2]   string: permits left, of the type in ARGV[1]
-- KEYS[3]   sorted set: one member a grant, of the type in ARGV[1]
-- ARGV[1]   type that KEYS[2] and KEYS[3] stand for: 0 OVERALL, 1 PER_CLIENT
-- ARGV[2]   permits to give back
-- ARGV[3]   least TTL in ms of PER_CLIENT state when the limiter has none, 0 for no TTL
-- ARGV[4]   now in ms, or empty for this server's TIME
-- Returns   {0, left, available} left > 0: too many members for one call, send the rest at once
--           {1} not initialised   {2, type} the hash has another type   {4} the hash is malformed

local conf = redis.call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'keepAliveTime', 'coolDown')
if not (conf[1] and conf[2] and conf[3]) then
  return {1}
end
if conf[3] ~= ARGV[1] then
  return {2, conf[3] == '0' and 0 or conf[3] == '1' and 1 or -1}
end
local rate, interval, keep = tonumber(conf[1]), tonumber(conf[2]), tonumber(conf[4] or 0) or 0
if not rate or not interval then
  return {4}
end

if conf[5] then
  local now = tonumber(ARGV[4])
  if not now then
    local t = redis.call('TIME')
    now = t[1] * 1000 + math.floor(t[2] / 1000)
  end
  if (tonumber(conf[5]) or 0) > now then
    -- A cool-down has taken the place of all grants: there is nothing to give back.
    return {0, 0, 0}
  end
end

-- What a cool-down put there is no grant.
local function block(m)
  return #m == 21 and string.sub(m, 1, 4) == '\16~c~' or #m == 20 and string.sub(m, 9, 10) == '~c'
end
local function worth(m)
  if #m < 8 then
    return 0
  end
  local a, b, c, d = string.byte(m, -4, -1)
  return a + b * 256 + c * 65536 + d * 16777216
end

-- A value that is no whole number which INCRBY takes counts as lost.
local function whole(s)
  local n = tonumber(s or '')
  if s == '0' or n and n ~= 0 and math.abs(n) <= 9007199254740992 and string.format('%.0f', n) == s then
    return n
  end
end

local value = whole(redis.call('GET', KEYS[2]))
local stored = value
if not value then
  -- Lost: rebuilt as acquire does. Over a large set it starts at 0 and the next audit raises it.
  value = 0
  if redis.call('ZCARD', KEYS[3]) <= 512 then
    local members = redis.call('ZRANGE', KEYS[3], 0, -1)
    value = rate
    for i = 1, #members do
      value = value - worth(members[i])
    end
  end
end

local left, gone, blocks = tonumber(ARGV[2]), 0, 0
local cut, score, smaller
local members = redis.call('ZREVRANGE', KEYS[3], 0, math.min(left + 64, 512) - 1, 'WITHSCORES')
for i = 1, #members, 2 do
  local m = members[i]
  local n = worth(m)
  if block(m) then
    blocks = blocks + 1
  elseif n > left then
    if left > 0 then
      local r = n - left
      local p = string.char(r % 256, math.floor(r / 256) % 256, math.floor(r / 65536) % 256,
        math.floor(r / 16777216) % 256)
      cut, score, smaller = m, members[i + 1], string.sub(m, 1, -5) .. p
      if #m == 21 and string.sub(m, 5, 8) == string.sub(m, -4) then
        smaller = string.sub(m, 1, 4) .. p .. string.sub(m, 9, 17) .. p
      end
      left = 0
    end
    break
  elseif blocks > 0 then
    redis.call('ZREM', KEYS[3], m)
    left = left - n
  else
    left = left - n
    gone = gone + 1
  end
end
if gone > 0 and blocks == 0 then
  redis.call('ZREMRANGEBYRANK', KEYS[3], -gone, -1)
elseif gone > 0 then
  for i = 1, 2 * gone, 2 do
    redis.call('ZREM', KEYS[3], members[i])
  end
end
if cut then
  -- Added before the old one goes: an emptied set would lose its TTL.
  redis.call('ZADD', KEYS[3], score, smaller)
  redis.call('ZREM', KEYS[3], cut)
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
  redis.call('SET', KEYS[2], string.format('%.0f', value))
elseif value ~= stored then
  redis.call('INCRBY', KEYS[2], string.format('%.0f', value - stored))
end

-- The TTL rule, as in acquire: a value that outlived the hash would be a limiter that Redisson fails
-- on, should the name come back with a higher rate.
if keep > 0 then
  redis.call('PEXPIRE', KEYS[1], conf[4])
  redis.call('PEXPIRE', KEYS[2], conf[4])
  redis.call('PEXPIRE', KEYS[3], conf[4])
else
  local ttl = redis.call('PTTL', KEYS[1])
  if ttl > 0 then
    redis.call('PEXPIRE', KEYS[2], ttl)
    redis.call('PEXPIRE', KEYS[3], ttl)
  elseif ARGV[1] == '1' and ARGV[3] ~= '0' then
    local idle = math.max(tonumber(ARGV[3]), 2 * interval)
    if redis.call('PTTL', KEYS[2]) < idle / 2 or redis.call('PTTL', KEYS[3]) < idle / 2 then
      redis.call('PEXPIRE', KEYS[2], string.format('%.0f', idle))
      redis.call('PEXPIRE', KEYS[3], string.format('%.0f', idle))
    end
  end
end
return {0, left, math.max(0, value)}
