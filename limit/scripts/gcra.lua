-- gcra: takes permits if the instant at which all of them will have flowed out is near enough.
--
-- Parts are fractions of a permit, such that the flow and the cost are whole numbers and nothing is rounded.
--
-- KEYS[1]   hash: that instant, the theoretical arrival time: us, and part: the rest below a us
-- KEYS[2]   list: the last 128 grants, 8 bytes of id and the us of the grant, for a minute
-- ARGV[1]   now in us, or empty for this server's TIME
-- ARGV[2]   permits
-- ARGV[3]   id of the call, 8 bytes; a shorter one is not stored; empty for a peek, which takes nothing
-- ARGV[4]   0, or if the call may have run before, an instant in us before it was first sent; 1 if none is
--           known
-- ARGV[5]   parts that flow in each us
-- ARGV[6]   parts that a permit costs
-- ARGV[7]   parts of a full bucket
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

local flow, cost, full = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local us, part, back = now, 0, false
local state = redis.call('HMGET', KEYS[1], 'us', 'part')
if state[1] or state[2] then
  us, part = tonumber(state[1]), tonumber(state[2])
  -- [whole]
  local function whole(x, least, most)
    return x and x >= least and x <= most and x % 1 == 0 -- which nan is not
  end
  -- [end]
  if not (whole(us, 0, 9007199254740992) and whole(part, 0, flow - 1)) then
    return {-2}
  end
  if us < now then
    us, part = now, 0
  end
  -- More than a full bucket is ahead only if the clock was put back. Then the bucket is full.
  back = us - now > math.ceil((full + flow) / flow)
  if back then
    us, part = now + math.floor(full / flow), full % flow
  end
end
local ahead = (us - now) * flow + part

-- It holds in addition what comes in within a us, which would otherwise be lost when a wait is rounded up.
local room = full + flow - 1 - ahead
local granted = again or n * cost <= room
local wait = granted and 0 or math.ceil((n * cost - room) / flow)
local take = granted and not again and ARGV[3] ~= ''
if take then
  local ahead_then = part + n * cost
  us, part = us + math.floor(ahead_then / flow), ahead_then % flow
  ahead = ahead + n * cost
  room = room - n * cost
  -- [remember]
  if #ARGV[3] == 8 then
    if redis.call('RPUSH', KEYS[2], ARGV[3] .. string.format('%016.0f', now)) > 128 then
      redis.call('LPOP', KEYS[2])
    end
    redis.call('PEXPIRE', KEYS[2], 60000)
  end
  -- [end]
end
local reset = math.ceil(ahead / flow)
if take or back and ARGV[3] ~= '' then
  redis.call('HSET', KEYS[1], 'us', us, 'part', part)
  redis.call('PEXPIRE', KEYS[1], math.ceil(reset / 1000) + 60000)
end
return {granted and 1 or 0, math.max(0, math.floor(math.min(room, full) / cost)), wait, reset}
