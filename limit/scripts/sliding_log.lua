-- sliding_log: takes permits when those of the last interval leave room for them.
--
-- Each member has the sum of all permits that were granted since the set began, its own included. The permits
-- in use are then the difference of two members, and the wait is found by binary search; neither adds up the
-- set. The sum begins again at 2^50, and differences are modulo that, since a double is exact up to 2^53.
-- Members that have expired are dropped a few at a time.
--
-- KEYS[1]   sorted set: one member a grant, "sum:permits", the sum in 16 digits; its score the us of the grant
-- KEYS[2]   list: the last 128 grants, 8 bytes of id and the us of the grant, for a minute
-- ARGV[1]   now in us, or empty for this server's TIME
-- ARGV[2]   permits
-- ARGV[3]   id of the call, 8 bytes; a shorter one is not stored; empty for a peek, which takes nothing
-- ARGV[4]   0, or if the call may have run before, an instant in us before it was first sent; 1 if none is
--           known
-- ARGV[5]   permits in any interval
-- ARGV[6]   us of the interval
-- Returns   {granted, remaining, wait, reset} granted: 0 or 1; wait, reset: us
--           {-1, now} whether the call has run before cannot be told   {-2} a member is malformed

local now, n = tonumber(ARGV[1]), tonumber(ARGV[2])
-- [now]
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
-- [end]
-- [ran before]
local again = false
if ARGV[4] ~= '0' then
  local ids = redis.call('LRANGE', KEYS[2], 0, -1)
  for i = 1, #ids do
    again = again or string.sub(ids[i], 1, 8) == ARGV[3]
  end
  -- It has not run if the list still has every grant since then. A grant stays there for a minute, unless
  -- 128 come after it.
  local since = tonumber(ARGV[4])
  if not again and (now - since > 59000000
    or #ids >= 128 and (tonumber(string.sub(ids[1], 9, 24)) or now) >= since) then
    return {-1, now}
  end
end
-- [end]

local permits, interval = tonumber(ARGV[5]), tonumber(ARGV[6])
local newest = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local sum, at, used, expired, size, base = 0, now - interval, 0, 0, 0, 0
if newest[1] then
  sum, at = tonumber(string.sub(newest[1], 1, 16)), tonumber(newest[2])
  if not (sum and at and sum >= 0 and sum <= 9007199254740992 and sum % 1 == 0) then
    return {-2}
  end
  -- At the end of its interval a grant no longer counts.
  expired = redis.call('ZCOUNT', KEYS[1], '-inf', string.format('%.0f', now - interval))
  size = redis.call('ZCARD', KEYS[1])
  if expired < size then
    local oldest = redis.call('ZRANGE', KEYS[1], expired, expired)[1]
    local its_sum, its_permits = tonumber(string.sub(oldest, 1, 16)), tonumber(string.sub(oldest, 18))
    base = (its_sum or 0) - (its_permits or 0)
    used = (sum - base) % 1125899906842624
    if not (its_sum and its_permits and used >= 1 and used <= permits and used % 1 == 0) then
      return {-2}
    end
    if at > now then
      -- Members in the future are from before the clock was put back. They count from now on.
      if ARGV[3] ~= '' then
        local before = base
        local ahead = redis.call('ZCOUNT', KEYS[1], '-inf', string.format('%.0f', now))
        if ahead > expired then
          before = tonumber(string.sub(redis.call('ZRANGE', KEYS[1], ahead - 1, ahead - 1)[1], 1, 16)) or sum
        end
        local moved = (sum - before) % 1125899906842624
        if not (moved >= 1 and moved <= used and moved % 1 == 0) then
          return {-2}
        end
        redis.call('ZADD', KEYS[1], now, string.format('%016.0f:%.0f', sum, moved))
        redis.call('ZREMRANGEBYSCORE', KEYS[1], string.format('(%.0f', now), '+inf')
        redis.call('PEXPIRE', KEYS[1], math.ceil(interval / 1000) + 60000)
        size = redis.call('ZCARD', KEYS[1])
      end
      at = now
    end
  end
end

local granted = again or used + n <= permits
local wait = 0
if not granted then
  -- The first member whose expiry makes enough permits free.
  local low, high, enough = expired, size - 1, used + n - permits
  while low < high do
    local middle = math.floor((low + high) / 2)
    local there = tonumber(string.sub(redis.call('ZRANGE', KEYS[1], middle, middle)[1], 1, 16)) or sum
    if (there - base) % 1125899906842624 >= enough then
      high = middle
    else
      low = middle + 1
    end
  end
  wait = math.min(now, tonumber(redis.call('ZRANGE', KEYS[1], low, low, 'WITHSCORES')[2])) + interval - now
end
if granted and not again and ARGV[3] ~= '' then
  sum = sum + n
  if at < now then
    sum = sum % 1125899906842624 -- members of one instant are in the order of their sums
  end
  used, at = used + n, now
  redis.call('ZADD', KEYS[1], now, string.format('%016.0f:%.0f', sum, n))
  -- After the new one was added: a set that becomes empty loses its TTL and its sum.
  if expired > 0 then
    redis.call('ZREMRANGEBYRANK', KEYS[1], 0, math.min(expired, 512) - 1)
  end
  redis.call('PEXPIRE', KEYS[1], math.ceil(interval / 1000) + 60000)
  -- [remember]
  if #ARGV[3] == 8 then
    if redis.call('RPUSH', KEYS[2], ARGV[3] .. string.format('%016.0f', now)) > 128 then
      redis.call('LPOP', KEYS[2])
    end
    redis.call('PEXPIRE', KEYS[2], 60000)
  end
  -- [end]
end
return {granted and 1 or 0, permits - used, wait, used > 0 and at + interval - now or 0}
