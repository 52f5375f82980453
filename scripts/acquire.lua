-- SPDX-License-Identifier: Apache-2.0
-- acquire: takes permits for one run of equal requests, of a limiter in its usual state.
--
-- What is granted becomes one member, which every Redisson reads as one larger grant. The script decides before it
-- writes. To what it does not decide, such as a cool-down, it replies {6} and changes nothing; acquire_rest follows.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime, and of this package minGap, coolDown
-- KEYS[2]   string: permits left, of the type in ARGV[1]
-- KEYS[3]   sorted set: one member a grant, of the type in ARGV[1]
-- ARGV[1]   type that KEYS[2] and KEYS[3] stand for: 0 OVERALL, 1 PER_CLIENT
-- ARGV[2]   permits of one request, 1 .. 2^32-1
-- ARGV[3]   number of requests, >= 1, of 2^32-1 permits at most together
-- ARGV[4]   the member to store when all are granted, in the format to write; its random part is the request id
-- ARGV[5]   1 when the hash had no TTL a moment ago, otherwise 0
-- ARGV[6]   now in ms, or empty for this server's TIME; may be left out, as may what follows
-- ARGV[7]   least TTL in ms of PER_CLIENT state when the limiter has none, 0 for no TTL
-- Returns   {0, available, now, rate, interval, keepAlive, ttl} when all were granted; ttl: 1 when the hash has one, 0
--           when it has none, -1 when it was not looked at; with wait and granted, when fewer were: ms until one more
--           can be, and the number of those that were; and last 1 when a member was met that has the layout of Redisson
--           3.16.4 .. 3.16.8, or another one where ARGV[4] has that
--           {1} not initialised   {2, type} the hash has another type   {3, rate} a request exceeds the rate
--           {4} the hash is malformed   {6} unusual

-- Read the limiter.
local conf = redis.call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'keepAliveTime', 'minGap', 'coolDown')
local rate, interval, typ, keep, malformed = conf[1], conf[2], conf[3], conf[4], false
--#use limiter
--#use rate
--#use keep_alive
if malformed then
  return {4}
end
local permits, number = tonumber(ARGV[2]), tonumber(ARGV[3])
if permits > rate then
  return {3, rate}
end
local stored = redis.call('GET', KEYS[2])
local value = tonumber(stored or rate)
if conf[5] or conf[6] or not value or not stored and redis.call('ZCARD', KEYS[3]) > 0 then
  return {6}
end
local now = tonumber(ARGV[6])
--#use now

-- Count what has expired, from the oldest on, as far as it is needed. Instants and the usual numbers go to redis.call
-- as strings, because Redis 7.0 and older take long to write a number.
local byte, floor = string.byte, math.floor
local wanted, expired, freed, all = permits * number, 0, 0, not stored
local long, other = #ARGV[4] == 20, nil
while not all and expired < 1024 and (expired == 0 or value + freed < wanted) do
  local old = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', string.format('%d', now - interval), 'LIMIT',
    expired == 0 and '0' or expired, '64')
  for i = 1, #old do
    local m = old[i]
    if #m >= 8 then
      local a, b, c, d = byte(m, -4, -1)
      freed = freed + a + b * 256 + c * 65536 + d * 16777216
      --#use other_layout
    end
  end
  expired, all = expired + #old, #old < 64
end
local left = value + freed
if not (left <= rate) or left < wanted and not all then
  return {6}
end

-- Grant what fits. If that is not all, the next request fits when enough of the oldest grants have expired, the last
-- of which may be the one that is made here.
local granted, member, wait = number, ARGV[4], nil
if left < wanted then
  granted = left < permits and 0 or floor(left / permits)
  local sum, rank, size, at, over = left - granted * permits, expired, 8, nil, false
  while not at and not over and size <= 512 do
    local from, to = rank == 0 and '0' or rank, rank == 0 and '7' or rank + size - 1
    local page = redis.call('ZRANGE', KEYS[3], from, to, 'WITHSCORES')
    for i = 1, #page, 2 do
      local m = page[i]
      if #m < 8 or #m == 21 and byte(m, 2) == 126 and string.find(m, '^[cltw]~', 3)
        or #m == 20 and byte(m, 9) == 126 and string.find(m, '^[clw]', 10) then
        return {6} -- a mark, a tripwire or a block
      end
      --#use other_layout
      local a, b, c, d = byte(m, -4, -1)
      sum = sum + a + b * 256 + c * 65536 + d * 16777216
      at = at or sum >= permits and page[i + 1] + interval
      if at and size > 8 then -- blocks that were lifted are among the eight oldest
        break
      end
    end
    over = #page < 2 * size -- by itself: gopher-lua sets size before it looks at it
    rank, size = rank + floor(#page / 2), size * 8
  end
  if not at and over and granted > 0 and (rank > expired or left == rate) then
    at = now + interval
  end
  local whole = not stored or stored == '0' or value >= -9007199254740992 and string.find(stored, '^-?[1-9]%d*$')
  if not at or not whole or redis.call('ZCOUNT', KEYS[3], string.format('(%d', now), '+inf') > 0 then
    return {6} -- permits are lost, or a clock is fast
  end
  wait = floor(math.max(1, at - now))
  if granted > 0 then
    --#use formats
    local char, sub, m, n = string.char, string.sub, member, granted * permits
    --#use le32
    --#use shrink
    member = smaller
  end
end

-- Write. INCRBY comes first, since it fails and changes nothing if the value only looks like a number. A request that
-- something between us and Redis has sent twice finds its own member and takes nothing twice.
local taken = granted * permits
if not stored then
  left = rate - taken
  redis.call('SET', KEYS[2], string.format('%d', left))
elseif granted > 0 or expired > 0 then
  left = redis.pcall('INCRBY', KEYS[2], expired == 0 and granted == 1 and '-' .. ARGV[2] or freed - taken)
  if type(left) ~= 'number' then
    return {6}
  end
end
if expired > 0 then
  redis.call('ZREMRANGEBYRANK', KEYS[3], 0, expired - 1)
end
if granted > 0 and redis.call('ZADD', KEYS[3], 'NX', string.format('%d', now), member) == 0 then
  left = redis.call('INCRBY', KEYS[2], taken)
end

-- Keep the keys alive, unless none is new, so that none can lack a TTL that the hash has got this moment.
local has = -1
if ARGV[5] == '0' or keep ~= 0 or ARGV[1] ~= '0' or expired > 0 or value >= rate then
  local least, stay, idle, ttl = 0, keep, ARGV[7] or '0', nil
  --#use ttl
  has = ttl > 0 and 1 or 0
end
if wait then
  return {0, math.max(0, left), now, rate, interval, keep, has, wait, granted, other}
end
return {0, math.max(0, left), now, rate, interval, keep, has, other}
