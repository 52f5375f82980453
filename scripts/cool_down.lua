-- SPDX-License-Identifier: Apache-2.0
-- cool_down: nobody gets a permit before an instant, Redisson included.
--
-- Redisson knows no cool-down, but it knows permits in use: all permits become blocks, members that fall
-- due at that instant or, to open gradually, one after another from then on. This package's scripts
-- also obey the fields, so that a peer that resets value or permits does not end it for them. A block's
-- bytes hold the instant of the grants whose place it took, or none for permits that were free: whoever lifts
-- the cool-down makes them again what they were.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime, and of this package coolDown, reopenUntil and how far heal has come
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

local conf = redis.call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'coolDown', 'reopenUntil')
local rate, interval, typ, malformed = conf[1], conf[2], conf[3], false
--#use limiter
--#use rate
if malformed then
  return {4}
end
local now = tonumber(ARGV[4])
--#use now
local till, reopen = now + tonumber(ARGV[2]), tonumber(ARGV[3])
--#use instant
-- outlive makes the keys live for so many ms at least, so that the cool-down does not end because the limiter expires.
local function outlive(least)
  local ttl = redis.call('PTTL', KEYS[1])
  if ttl >= 0 then -- 0 in its last millisecond
    ttl = math.min(math.max(ttl, least), 9007199254740992) -- PEXPIRE would fail on one near 2^63
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', ttl))
  elseif ARGV[1] == '1' and ARGV[6] ~= '0' then
    ttl = math.max(tonumber(ARGV[6]), 2 * interval, least)
  end
  if ttl > 0 then
    redis.call('PEXPIRE', KEYS[2], string.format('%.0f', ttl))
    redis.call('PEXPIRE', KEYS[3], string.format('%.0f', ttl))
  else
    redis.call('PERSIST', KEYS[2])
    redis.call('PERSIST', KEYS[3])
  end
end
local before, ends = instant(conf[4]), instant(conf[5])
if before > till then
  outlive(math.max(before, ends) + interval - now)
  return {0, before, now}
end
ends = before > 0 and math.max(before, ends) or 0

--#use formats
local byte, char, sub, floor = string.byte, string.char, string.sub, math.floor
local most = 4294967295

--#use permits_of

--#use stamps

-- What expires before the cool-down ends is taken out, by the instant at which it was granted; 0 holds what
-- has expired and what was free. Grants that expire later are members like others.
local due = till - interval
local times, sums, late = {0}, {[0] = 0}, {}
local function take(t, n)
  if t <= now - interval then
    t = 0
  elseif t > due then
    late[#late + 1] = {t, n}
    return
  end
  if not sums[t] then
    times[#times + 1], sums[t] = t, 0
  end
  sums[t] = sums[t] + n
end
local function takeMember(m, score)
  take(math.min(block_at(m) or seen_at(m) or now, now, tonumber(score)), permits_of(m))
end

local stored = redis.call('GET', KEYS[2])
local value = tonumber(stored)
--#use whole
value = value and math.min(value, rate)

local card, left = redis.call('ZCARD', KEYS[3]), 0
local early = redis.call('ZCOUNT', KEYS[3], '-inf', string.format('%.0f', due))
if card <= 512 then
  local members = redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES')
  local kept, taken = 0, 0
  for i = 1, #members, 2 do
    local m, score = members[i], members[i + 1]
    if i < 2 * early then
      taken = taken + permits_of(m)
      takeMember(m, score)
    elseif block_at(m) and (before > now or score + interval > ends) then
      -- The blocks of a cool-down that is in force, and those of one that was lifted, make room for these. One that is
      -- over and re-opens later than this one ends goes on doing so.
      taken = taken + permits_of(m)
      takeMember(m, score)
      redis.call('ZREM', KEYS[3], m)
    else
      kept = kept + permits_of(m)
    end
  end
  if early > 0 then
    redis.call('ZREMRANGEBYRANK', KEYS[3], 0, early - 1)
  end
  for i = 1, #late do
    taken, kept = taken - late[i][2], kept + late[i][2]
  end
  -- Together they are the rate. Of too many only those that are free go, and for the rest value is below 0: a higher rate, a
  -- reservation that is given back, or one that lacks nothing once the cool-down is lifted, would have permits that are in use.
  local over = taken + kept - rate
  local spare = math.max(0, math.min(over, sums[0]))
  sums[0] = sums[0] - spare
  if over < 0 then
    sums[0] = sums[0] + math.min(-over, most - math.min(taken, most))
  end
  left = math.min(0, spare - over)
  if before > now then
    ends = 0
  end
elseif early <= 512 then
  local members = early > 0 and redis.call('ZRANGE', KEYS[3], 0, early - 1, 'WITHSCORES') or {}
  for i = 1, #members, 2 do
    takeMember(members[i], members[i + 1])
  end
  if early > 0 then
    redis.call('ZREMRANGEBYRANK', KEYS[3], 0, early - 1)
  end
  sums[0] = sums[0] + math.max(0, value or 0)
  left = math.min(0, value or 0)
else
  -- Too many to read. Each holds one permit at least: so many count as granted at the end of the 128th of the interval in
  -- which they were, and what the members hold beyond that as the newest of them.
  local used = math.max(0, math.min(most, rate - (value or 0)))
  sums[0] = math.max(0, value or 0)
  left = math.min(0, value or 0)
  local top = 128
  while top > 0 and used > 0 do
    local from, to = now - interval + floor(interval * (top - 1) / 128), now - interval + floor(interval * top / 128)
    local n = redis.call('ZCOUNT', KEYS[3], string.format('(%.0f', from), top == 128 and '+inf' or string.format('%.0f', to))
    if n > 0 then
      card = card - n
      if #late == 0 and #times == 1 then
        n = math.max(n, used - card) -- what is older holds one each at least
      end
      n = math.min(n, used)
      used = used - n
      take(to, n)
    end
    top = top - 1
  end
  sums[0] = sums[0] + used
  -- UNLINK: freeing a set of a million members inside DEL would hold Redis for a third of a second.
  redis.call('UNLINK', KEYS[3])
end

--#use le32
--#use ms48
-- Blocks of one instant and number of permits are kept apart by a count, and by the end of the cool-down
-- from those of another that re-opens still.
local function put(score, t, n, mark)
  local p = le32(n)
  for k = 0, 255 do
    local m
    if ARGV[5] == '20' then
      -- There is no other room for the count than above the instant.
      m = t > 0 and ms48(t + floor(k / 32) + k % 32 * 4398046511104) or ms48((till + k) % 4294967296)
      m = '\8\0\0\0\0\0\0\0~' .. mark .. m .. p
    else
      m = '\16~' .. mark .. '~' .. p .. ms48(t) .. char(k, till % 256, floor(till / 256) % 256) .. p
    end
    if redis.call('ZADD', KEYS[3], 'NX', score, m) == 1 then
      return
    end
  end
end

local blocked = 0
for i = 1, #times do
  blocked = blocked + sums[times[i]]
end
blocked = math.min(blocked, most)
local steps = reopen > 0 and math.max(1, math.min(blocked, 64)) or 1
local step, room = 0, floor(blocked / steps)
for i = 1, #times do
  local n = sums[times[i]]
  while n > 0 and step < steps do
    local part = math.min(n, room)
    if part > 0 then
      put(due + floor(reopen * step / steps), times[i], part, 'c')
    end
    n, room = n - part, room - part
    if room == 0 then
      step = step + 1
      room = floor(blocked * (step + 1) / steps) - floor(blocked * step / steps)
    end
  end
end
for i = 1, #late do
  put(late[i][1], late[i][1], late[i][2], 'l')
end
redis.call('SET', KEYS[2], string.format('%.0f', left))

redis.call('HSET', KEYS[1], 'coolDown', string.format('%.0f', till))
redis.call('HDEL', KEYS[1], KEYS[3]) -- heal is to add up anew
ends = math.max(ends, till + reopen)
if ends > till then
  redis.call('HSET', KEYS[1], 'reopenUntil', string.format('%.0f', ends))
else
  redis.call('HDEL', KEYS[1], 'reopenUntil')
end
outlive(till + reopen + interval - now)
return {0, till, now}
