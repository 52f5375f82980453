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
local rate, interval, typ, keep, cool_down, malformed = conf[1], conf[2], conf[3], conf[4], conf[5], false
-- [limiter]
if not (rate and interval and typ) then
  return {1}
end
if typ ~= ARGV[1] then
  return {2, typ == '0' and 0 or typ == '1' and 1 or -1}
end
-- [end]
-- [rate]
rate, interval = tonumber(rate), tonumber(interval)
malformed = not rate or rate < 1 or rate % 1 ~= 0 or rate > 9007199254740992
  or not interval or interval < 1 or interval % 1 ~= 0 or interval > 9007199254740992
-- [end]
-- [keep alive]
-- PEXPIRE takes whole numbers only, and would fail when the permits have been spent.
keep = tonumber(keep or 0) or 0
malformed = malformed or keep > 0 and (keep % 1 ~= 0 or keep > 9007199254740992)
-- [end]
if malformed then
  return {4}
end

if cool_down then
  local now = tonumber(ARGV[4])
  -- [now]
  if not now then
    local t = redis.call('TIME')
    now = t[1] * 1000 + math.floor(t[2] / 1000)
  end
  -- [end]
  if (tonumber(cool_down) or 0) > now then
    -- A cool-down has taken the place of all grants: there is nothing to give back.
    return {0, 0, 0}
  end
end

-- [formats]
-- The lengths of the members that this package writes, and what a block of the first length begins with.
local BC0I, LC0I, BLOCK = 21, 20, '\16~c~'
-- [end]
local byte, char, sub, floor = string.byte, string.char, string.sub, math.floor

-- What a cool-down put there is no grant.
local function is_block(m)
  -- [is_block]
  local at = #m == BC0I and sub(m, 1, 4) == BLOCK and sub(m, 5, 8) == sub(m, -4) and 9
    or #m == LC0I and sub(m, 9, 10) == '~c' and 11
  -- [end]
  return at
end
-- [permits_of]
-- In every format the permits are the last four bytes, little endian. Shorter members than any format has
-- are nobody's grants and count for nothing.
local function permits_of(m)
  if #m < 8 then
    return 0
  end
  local a, b, c, d = byte(m, -4, -1)
  return a + b * 256 + c * 65536 + d * 16777216
end
-- [end]
-- [le32]
local function le32(n)
  return char(n % 256, floor(n / 256) % 256, floor(n / 65536) % 256, floor(n / 16777216) % 256)
end
-- [end]

local stored = redis.call('GET', KEYS[2])
local value = tonumber(stored)
-- [whole]
-- A value that is no whole number as INCRBY takes it, or that Lua would round, counts as lost.
if value and stored ~= '0' and not (value >= -9007199254740992 and value <= 9007199254740992
  and string.find(stored, '^-?[1-9]%d*$')) then
  value = nil
end
-- [end]
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

local left, gone, blocks = tonumber(ARGV[2]), 0, 0
local cut, score, rest
local members = redis.call('ZREVRANGE', KEYS[3], 0, math.min(left + 64, 512) - 1, 'WITHSCORES')
for i = 1, #members, 2 do
  local m = members[i]
  local n = permits_of(m)
  if is_block(m) then
    blocks = blocks + 1
  elseif n > left then
    if left > 0 then
      cut, score, rest = m, members[i + 1], n - left
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
  local m, n = cut, rest
  -- [shrink]
  -- smaller is m with n permits. It has the same id, so that a call that is sent again finds it.
  local p = le32(n)
  local smaller = sub(m, 1, -5) .. p
  if #m == BC0I and sub(m, 5, 8) == sub(m, -4) then
    smaller = sub(m, 1, 4) .. p .. sub(m, 9, 17) .. p
  end
  -- [end]
  -- Added before the old one goes: an emptied set would lose its TTL.
  redis.call('ZADD', KEYS[3], score, smaller)
  redis.call('ZREM', KEYS[3], m)
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
-- [ttl]
-- Redisson gives keepAliveTime to all three keys with each call; without it the TTL of the hash goes for the
-- others too. Those of a client that never comes back must not stay for ever.
if stay > 0 then
  stay = math.max(stay, least)
  redis.call('PEXPIRE', KEYS[1], stay)
  redis.call('PEXPIRE', KEYS[2], stay)
  redis.call('PEXPIRE', KEYS[3], stay)
  ttl = stay
else
  ttl = redis.call('PTTL', KEYS[1])
  if ttl >= 0 then -- 0 in its last millisecond
    ttl = math.max(1, math.min(ttl, 9007199254740992)) -- PEXPIRE would fail on one near 2^63
    redis.call('PEXPIRE', KEYS[2], ttl)
    redis.call('PEXPIRE', KEYS[3], ttl)
  elseif ARGV[1] == '1' and idle ~= '0' then
    idle = math.max(tonumber(idle), 2 * interval, least)
    if redis.call('PTTL', KEYS[2]) < idle / 2 or redis.call('PTTL', KEYS[3]) < idle / 2 then
      redis.call('PEXPIRE', KEYS[2], idle)
      redis.call('PEXPIRE', KEYS[3], idle)
    end
  elseif ARGV[1] == '1' then
    -- Another client has removed the TTL that the hash had, and could not name these keys.
    redis.call('PERSIST', KEYS[2])
    redis.call('PERSIST', KEYS[3])
  end
end
-- [end]
return {0, left, math.max(0, value)}
