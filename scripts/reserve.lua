-- reserve: takes permits of one limiter for a caller that still waits for other limiters, and keeps them.
--
-- A reservation is a member like that of any grant, so every Redisson takes its permits for permits in
-- use. Each call moves it to the present instant, since its permits are yet to be used: the window counts
-- them from the last call on. It takes what is plainly there; the caller learns from acquire, which it
-- asks without taking anything, how long the rest takes. A reservation that nobody moves expires after an
-- interval, as every grant does. Of a limiter with a minGap it takes all or nothing.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime, minGap, coolDown
-- KEYS[2]   string: permits left, of the type in ARGV[1]
-- KEYS[3]   sorted set: one member a grant, of the type in ARGV[1]
-- ARGV[1]   type that KEYS[2] and KEYS[3] stand for: 0 OVERALL, 1 PER_CLIENT
-- ARGV[2]   permits wanted in all, 0 to give back what is reserved
-- ARGV[3]   the member of the reservation as if it held ARGV[4] permits, in the format to write
-- ARGV[4]   permits that it is known to hold, 0 for none
-- ARGV[5]   flags, added up: 1 take all or nothing, 2 it may hold others than ARGV[4]: a call has been lost
-- ARGV[6]   now in ms, or empty for this server's TIME
-- ARGV[7]   least TTL in ms of PER_CLIENT state when the limiter has none, 0 for no TTL
-- Returns   {0, held, rate, interval} held: permits that are reserved from now on
--           {1} not initialised   {2, type} the hash has another type
--           {3, rate} the permits exceed the rate   {4} the hash is malformed

local conf = redis.call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'keepAliveTime', 'minGap', 'coolDown')
if not (conf[1] and conf[2] and conf[3]) then
  return {1}
end
if conf[3] ~= ARGV[1] then
  return {2, conf[3] == '0' and 0 or conf[3] == '1' and 1 or -1}
end
local rate, interval, want = tonumber(conf[1]), tonumber(conf[2]), tonumber(ARGV[2])
if not rate or rate < 1 or rate % 1 ~= 0 or rate > 9007199254740992
  or not interval or interval < 1 or interval % 1 ~= 0 or interval > 9007199254740992 then
  return {4}
end
if want > rate then
  return {3, rate}
end
local now = tonumber(ARGV[6])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end

local byte, char, sub, floor = string.byte, string.char, string.sub, math.floor
local function worth(m)
  if #m < 8 then
    return 0
  end
  local a, b, c, d = byte(m, -4, -1)
  return a + b * 256 + c * 65536 + d * 16777216
end
local function member(n)
  local m = ARGV[3]
  local p = char(n % 256, floor(n / 256) % 256, floor(n / 65536) % 256, floor(n / 16777216) % 256)
  if #m == 20 then
    return sub(m, 1, 16) .. p
  end
  return sub(m, 1, 4) .. p .. sub(m, 9, 17) .. p
end
local function same(m) -- whatever it holds
  return #m == #ARGV[3] and member(worth(m)) == m
end

-- What is reserved. A release by others may have made it smaller, or a call have been lost: it is among
-- the newest, and has the id.
local mine, held, flags = nil, tonumber(ARGV[4]), tonumber(ARGV[5])
if held > 0 and redis.call('ZSCORE', KEYS[3], ARGV[3]) then
  mine = ARGV[3]
elseif held > 0 or flags >= 2 then
  held = 0
  local newest = redis.call('ZREVRANGE', KEYS[3], 0, 255)
  for i = 1, #newest do
    if same(newest[i]) then
      mine, held = newest[i], worth(newest[i])
      break
    end
  end
end

local gap, paused = tonumber(conf[5] or 0) or 0, (tonumber(conf[6] or 0) or 0) > now
if gap > 0 and want > 0 and not paused then
  -- As in acquire: each permit of the newest grant takes a gap.
  local newest = redis.call('ZREVRANGEBYSCORE', KEYS[3], now, '-inf', 'WITHSCORES', 'LIMIT', 0, 128)
  for i = 1, #newest, 2 do
    local m = newest[i]
    if m ~= mine and not (#m == 21 and sub(m, 1, 4) == '\16~c~' or #m == 20 and sub(m, 9, 10) == '~c') then
      paused = tonumber(newest[i + 1]) + math.min(gap * worth(m), interval) > now
      break
    end
  end
end

local stored = redis.call('GET', KEYS[2])
local value = tonumber(stored)
-- What is not plainly a number that INCRBY takes is for acquire to rebuild.
local plain = value and #stored <= 15 and string.find(stored, '^-?%d+$') and value <= rate

-- How many permits it can hold from now on: none in a cool-down, and none where it would be a grant in
-- the gap behind another's.
local n, back, expired, freed = 0, held, 0, 0
if want > 0 and plain and not paused then
  local old = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now - interval, 'LIMIT', 0, 64)
  for i = 1, #old do
    if old[i] ~= mine then
      expired, freed = expired + 1, freed + worth(old[i])
    end
  end
  local free = value + held + freed
  if free <= rate then
    n, back = math.max(0, math.min(want, free)), held + freed
    if n < want and (gap > 0 or flags % 2 == 1) then
      n = math.min(held, n)
    end
  end
end
if n == 0 and not mine then
  return {0, 0, rate, interval}
end

if mine then
  redis.call('ZREM', KEYS[3], mine)
end
if back > held then
  redis.call('ZREMRANGEBYRANK', KEYS[3], 0, expired - 1)
end
if n > 0 then
  redis.call('ZADD', KEYS[3], now, member(n))
end
if plain and back ~= n then
  redis.call('INCRBY', KEYS[2], math.min(back - n, rate - value))
end
if n == 0 then
  return {0, 0, rate, interval}
end

-- The TTL rule, as in acquire.
local keep = tonumber(conf[4] or 0) or 0
if keep > 0 then
  redis.call('PEXPIRE', KEYS[1], conf[4])
  redis.call('PEXPIRE', KEYS[2], conf[4])
  redis.call('PEXPIRE', KEYS[3], conf[4])
else
  local ttl = redis.call('PTTL', KEYS[1])
  if ttl > 0 then
    redis.call('PEXPIRE', KEYS[2], ttl)
    redis.call('PEXPIRE', KEYS[3], ttl)
  elseif ARGV[1] == '1' and ARGV[7] ~= '0' then
    local idle = math.max(tonumber(ARGV[7]), 2 * interval)
    redis.call('PEXPIRE', KEYS[2], idle)
    redis.call('PEXPIRE', KEYS[3], idle)
  end
end
return {0, n, rate, interval}
