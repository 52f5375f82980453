-- leaky_queue: gives a call its turn in a queue that flows out evenly.
--
-- Parts are fractions of a permit, such that the flow and the cost are whole numbers and nothing is rounded.
--
-- KEYS[1]   hash: the instant at which the queue has flowed out: us, and part: the rest below a us
-- KEYS[2]   list: the last 128 grants, 8 bytes of id, the us of the grant, the us of its turn
-- ARGV[1]   now in us, or empty for this server's TIME
-- ARGV[2]   permits
-- ARGV[3]   id of the call, 8 bytes; a shorter one is not stored; empty for a peek, which takes nothing
-- ARGV[4]   0, or if the call may have run before, an instant in us before it was first sent; 1 if none is
--           known
-- ARGV[5]   parts that flow in each us
-- ARGV[6]   parts that a permit costs
-- ARGV[7]   parts of a full bucket
-- ARGV[8]   us that the caller would wait for its turn
-- Returns   {granted, remaining, wait, reset} granted: 0 or 1; wait, reset: us
--           {-1, now} whether the call has run before cannot be told   {-2} the hash is malformed

local now, n = tonumber(ARGV[1]), tonumber(ARGV[2])
-- [now]
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
-- [end]
-- [ran before, and its answer]
local again = false
if ARGV[4] ~= '0' then
  local ids = redis.call('LRANGE', KEYS[2], 0, -1)
  for i = 1, #ids do
    if string.sub(ids[i], 1, 8) == ARGV[3] then
      again = tonumber(string.sub(ids[i], 25))
    end
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

-- Less than a us is no wait: callers, who wait for whole ones, would lose the rest each time.
local turn = math.floor(ahead / flow)
local granted = again and true or ahead + n * cost <= full + flow - 1 and turn <= tonumber(ARGV[8])
local wait = again and math.max(0, again - now) or turn
if not granted then
  -- Until there is room, and until the turn is near enough.
  wait = math.max(math.ceil((ahead + n * cost - full - flow + 1) / flow), turn - ARGV[8])
end
local take = granted and not again and ARGV[3] ~= ''
if take then
  local entry = ARGV[3] .. string.format('%016.0f%016.0f', now, now + turn)
  local ahead_then = part + n * cost
  us, part = us + math.floor(ahead_then / flow), ahead_then % flow
  ahead = ahead + n * cost
  -- [remember the answer]
  if #ARGV[3] == 8 then
    if redis.call('RPUSH', KEYS[2], entry) > 128 then
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
local room = math.floor(math.min(full, full + flow - 1 - ahead) / cost)
if math.floor(ahead / flow) > tonumber(ARGV[8]) then
  room = 0
end
return {granted and 1 or 0, math.max(0, room), wait, reset}
