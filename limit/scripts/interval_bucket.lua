-- interval_bucket: takes permits from a bucket that is refilled at the end of each interval.
--
-- Both numbers of the state are in one key, so that neither is ever without the other.
--
-- KEYS[1]   hash: left, and begun: us at which the current interval began
-- KEYS[2]   list: the last 128 grants, 8 bytes of id and the us of the grant, for a minute
-- ARGV[1]   now in us, or empty for this server's TIME
-- ARGV[2]   permits
-- ARGV[3]   id of the call, 8 bytes; a shorter one is not stored; empty for a peek, which takes nothing
-- ARGV[4]   0, or if the call may have run before, an instant in us before it was first sent; 1 if none is
--           known
-- ARGV[5]   permits that an interval brings
-- ARGV[6]   us of an interval
-- ARGV[7]   permits of a full bucket
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

local permits, interval, capacity = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local begun, left, back = now, capacity, false
local state = redis.call('HMGET', KEYS[1], 'begun', 'left')
if state[1] or state[2] then
  begun, left = tonumber(state[1]), tonumber(state[2])
  -- [whole]
  local function whole(x, least, most)
    return x and x >= least and x <= most and x % 1 == 0 -- which nan is not
  end
  -- [end]
  if not (whole(begun, 0, 9007199254740992) and whole(left, 0, capacity)) then
    return {-2}
  end
  back = now < begun
  if back then
    begun = now
  end
  local ends = math.floor((now - begun) / interval)
  if ends >= math.ceil((capacity - left) / permits) then
    begun, left = now, capacity
  else
    begun, left = begun + ends * interval, left + ends * permits
  end
end

local granted = again or n <= left
local wait = granted and 0 or begun + math.ceil((n - left) / permits) * interval - now
local take = granted and not again and ARGV[3] ~= ''
if take then
  left = left - n
  -- [remember]
  if #ARGV[3] == 8 then
    if redis.call('RPUSH', KEYS[2], ARGV[3] .. string.format('%016.0f', now)) > 128 then
      redis.call('LPOP', KEYS[2])
    end
    redis.call('PEXPIRE', KEYS[2], 60000)
  end
  -- [end]
end
local reset = left < capacity and begun + math.ceil((capacity - left) / permits) * interval - now or 0
if take or back and ARGV[3] ~= '' then
  redis.call('HSET', KEYS[1], 'begun', begun, 'left', left)
  redis.call('PEXPIRE', KEYS[1], math.ceil(reset / 1000) + 60000)
end
return {granted and 1 or 0, left, wait, reset}
