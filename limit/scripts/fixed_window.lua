-- fixed_window: takes permits of the current window.
--
-- KEYS[1]   hash: start of the window in us, count of what it has granted
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
local start, count, back = now, 0, false
local state = redis.call('HMGET', KEYS[1], 'start', 'count')
if state[1] or state[2] then
  start, count = tonumber(state[1]), tonumber(state[2])
  -- [whole]
  local function whole(x, least, most)
    return x and x >= least and x <= most and x % 1 == 0 -- which nan is not
  end
  -- [end]
  if not (whole(start, 0, 9007199254740992) and whole(count, 0, permits)) then
    return {-2}
  end
  back = now < start
  if back then
    start = now
  end
  if now >= start + interval then
    start, count = now, 0
  end
end

local granted = again or count + n <= permits
local wait = granted and 0 or start + interval - now
local take = granted and not again and ARGV[3] ~= ''
if take then
  count = count + n
  -- [remember]
  if #ARGV[3] == 8 then
    if redis.call('RPUSH', KEYS[2], ARGV[3] .. string.format('%016.0f', now)) > 128 then
      redis.call('LPOP', KEYS[2])
    end
    redis.call('PEXPIRE', KEYS[2], 60000)
  end
  -- [end]
end
local reset = count > 0 and start + interval - now or 0
if take or back and ARGV[3] ~= '' then
  redis.call('HSET', KEYS[1], 'start', start, 'count', count)
  redis.call('PEXPIRE', KEYS[1], math.ceil(reset / 1000) + 60000)
end
return {granted and 1 or 0, permits - count, wait, reset}
