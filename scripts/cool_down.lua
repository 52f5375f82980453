-- cool_down: nobody gets a permit before an instant, Redisson included.
--
-- Redisson knows no cool-down, but it knows permits in use: all permits become blocks, members that fall
-- due at that instant or, to open gradually, one after another from then on. This package's scripts
-- also obey the field, so that a peer that resets value or permits does not end it for them. The
-- instant at which a block was made is in its bytes: whoever lifts the cool-down must hold its permits
-- for one interval from then on, as those of the grants whose place it took.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime, and of this package coolDown
-- KEYS[2]   string: permits left, of the type in ARGV[1]
-- KEYS[3]   sorted set: one member a grant, of the type in ARGV[1]
-- ARGV[1]   type that KEYS[2] and KEYS[3] stand for: 0 OVERALL, 1 PER_CLIENT
-- ARGV[2]   how long, ms from now, >= 1
-- ARGV[3]   over how many ms from then on the permits come back, 0 for all at once
-- ARGV[4]   now in ms, or empty for this server's TIME
-- ARGV[5]   format of the blocks: 21 or 20 bytes
-- ARGV[6]   least TTL in ms of PER_CLIENT state when the limiter has none, 0 for no TTL
-- Returns   {0, until, now} until: ms since the epoch, of the cool-down that is now in force: this one
--           unless there is one that lasts longer, which stays as it is
--           {1} not initialised   {2, type} the hash has another type   {4} the hash is malformed

local conf = redis.call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'coolDown')
if not (conf[1] and conf[2] and conf[3]) then
  return {1}
end
if conf[3] ~= ARGV[1] then
  return {2, conf[3] == '0' and 0 or conf[3] == '1' and 1 or -1}
end
local rate, interval = tonumber(conf[1]), tonumber(conf[2])
if not rate or rate < 1 or rate % 1 ~= 0 or not interval or interval < 1 or interval % 1 ~= 0 then
  return {4}
end
local now = tonumber(ARGV[4])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local till, reopen = now + tonumber(ARGV[2]), tonumber(ARGV[3])
local before = tonumber(conf[4] or 0) or 0
if before > till then
  return {0, before, now}
end
redis.call('HSET', KEYS[1], 'coolDown', string.format('%.0f', till))

local char, floor = string.char, math.floor
local function block(m)
  return #m == 21 and string.sub(m, 1, 4) == '\16~c~' or #m == 20 and string.sub(m, 9, 10) == '~c'
end

-- What falls due later than the cool-down ends stays in use; the rest becomes blocks. Of a set too large
-- for one call all does, to fall due with its newest member.
local due, kept = till - interval, 0
if redis.call('ZCARD', KEYS[3]) <= 512 then
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', string.format('%.0f', due))
  local members = redis.call('ZRANGE', KEYS[3], 0, -1)
  for i = 1, #members do
    local m = members[i]
    -- The blocks of a cool-down that is in force make room for these. One that is over and re-opens later than this one
    -- ends goes on doing so.
    if before > now and block(m) then
      redis.call('ZREM', KEYS[3], m)
    elseif #m >= 8 then
      local a, b, c, d = string.byte(m, -4, -1)
      kept = kept + a + b * 256 + c * 65536 + d * 16777216
    end
  end
else
  local newest = redis.call('ZREVRANGE', KEYS[3], 0, 0, 'WITHSCORES')
  due = math.max(due, math.min(tonumber(newest[2]), now))
  -- UNLINK: freeing a set of a million members inside DEL would hold Redis for a third of a second.
  redis.call('UNLINK', KEYS[3])
end

local blocked = math.min(math.max(0, rate - kept), 4294967295)
local steps = reopen > 0 and math.min(blocked, 64) or 1
for i = 0, steps - 1 do
  local n = floor(blocked * (i + 1) / steps) - floor(blocked * i / steps)
  if n > 0 then
    local p = char(n % 256, floor(n / 256) % 256, floor(n / 65536) % 256, floor(n / 16777216) % 256)
    local t, stamp = ARGV[5] == '20' and now + i or now, ''
    for _ = 1, 6 do
      stamp = char(t % 256) .. stamp
      t = floor(t / 256)
    end
    local m = '\16~c~' .. p .. stamp .. char(i) .. '\0\0' .. p
    if ARGV[5] == '20' then
      m = '\8\0\0\0\0\0\0\0~c' .. stamp .. p
    end
    redis.call('ZADD', KEYS[3], string.format('%.0f', due + floor(reopen * i / steps)), m)
  end
end
redis.call('SET', KEYS[2], string.format('%.0f', math.min(0, rate - kept - blocked)))

-- It must not end because the limiter expires.
local least, ttl = till + reopen + interval - now, redis.call('PTTL', KEYS[1])
if ttl > 0 then
  ttl = math.max(ttl, least)
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', ttl))
elseif ARGV[1] == '1' and ARGV[6] ~= '0' then
  ttl = math.max(tonumber(ARGV[6]), 2 * interval, least)
end
if ttl > 0 then
  redis.call('PEXPIRE', KEYS[2], string.format('%.0f', ttl))
  redis.call('PEXPIRE', KEYS[3], string.format('%.0f', ttl))
end
return {0, till, now}
