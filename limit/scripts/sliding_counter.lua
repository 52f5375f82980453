-- sliding_counter: takes permits when the counts of two windows, the older in part, leave room for them.
--
-- KEYS[1]   hash: start of the current window in us, current and previous count
-- KEYS[2]   list: the last 128 grants, 8 bytes of id and the us of the grant, for a minute
-- ARGV[1]   now in us, or empty for this server's TIME
-- ARGV[2]   permits
-- ARGV[3]   id of the call, 8 bytes; a shorter one is not stored; empty for a peek, which takes nothing
-- ARGV[4]   0, or if the call may have run before, an instant in us before it was first sent; 1 if none is
--           known
-- ARGV[5]   permits of a window
-- ARGV[6]   us of a window
-- Returns   {granted, remaining, wait, reset} granted: 0 or 1; wait, reset: us
--           {-1, now} whether the call has run before cannot be told   {-2} the hash is malformed

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
local start, current, previous, back = now, 0, 0, false
local state = redis.call('HMGET', KEYS[1], 'start', 'current', 'previous')
if state[1] or state[2] or state[3] then
  start, current, previous = tonumber(state[1]), tonumber(state[2]), tonumber(state[3])
  -- [whole]
  local function whole(x, least, most)
    return x and x >= least and x <= most and x % 1 == 0 -- which nan is not
  end
  -- [end]
  if not (whole(start, 0, 9007199254740992) and whole(current, 0, permits) and whole(previous, 0, permits)) then
    return {-2}
  end
  back = now < start
  if back then
    start = now
  end
  local windows = math.floor((now - start) / interval)
  if windows == 1 then
    start, previous = start + interval, current
    current = 0
  elseif windows > 1 then
    start, current, previous = now, 0, 0
  end
end

-- a * b / c, rounded down, and the remainder. If the product is too large for a double it is divided bit by bit
-- of a, which is below 2^32, while b and c are below 2^51.
local function ratio(a, b, c)
  if a * b <= 9007199254740992 then
    return math.floor(a * b / c), a * b % c
  end
  local whole, part, quotient, rest = math.floor(b / c), b % c, 0, 0
  for bit = 31, 0, -1 do
    quotient, rest = 2 * quotient, 2 * rest
    if rest >= c then
      quotient, rest = quotient + 1, rest - c
    end
    if math.floor(a / 2 ^ bit) % 2 == 1 then
      quotient, rest = quotient + whole, rest + part
      if rest >= c then
        quotient, rest = quotient + 1, rest - c
      end
    end
  end
  return quotient, rest
end

-- How far into a window the share of the previous count comes down to room.
local function shrunk(count, room)
  if count <= room then
    return 0
  end
  local t, rest = ratio(room + 1, interval, count)
  return interval - (rest == 0 and t - 1 or t)
end

local left = permits - current - (ratio(previous, start + interval - now, interval))
local granted = again or n <= left
local wait = 0
if not granted then
  local at = interval
  if permits - current - n >= 0 then
    at = shrunk(previous, permits - current - n)
  end
  if at >= interval then
    at = interval + shrunk(current, permits - n)
  end
  wait = start + at - now
end
local take = granted and not again and ARGV[3] ~= ''
if take then
  current, left = current + n, left - n
  -- [remember]
  if #ARGV[3] == 8 then
    if redis.call('RPUSH', KEYS[2], ARGV[3] .. string.format('%016.0f', now)) > 128 then
      redis.call('LPOP', KEYS[2])
    end
    redis.call('PEXPIRE', KEYS[2], 60000)
  end
  -- [end]
end
local reset = 0
if current > 0 then
  reset = start + 2 * interval - now
elseif previous > 0 then
  reset = start + interval - now
end
if take or back and ARGV[3] ~= '' then
  redis.call('HSET', KEYS[1], 'start', start, 'current', current, 'previous', previous)
  redis.call('PEXPIRE', KEYS[1], math.ceil(reset / 1000) + 60000)
end
return {granted and 1 or 0, math.max(0, left), wait, reset}
