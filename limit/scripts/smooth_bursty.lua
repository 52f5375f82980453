-- smooth_bursty: takes permits as Guava's SmoothBursty does.
--
-- Guava's arithmetic, operation for operation: doubles, kept with all their digits, and waits truncated to
-- whole us. If permits come less than 10 us apart nothing is truncated: the fraction of a us is carried over.
--
-- KEYS[1]   hash: stored permits, next: us of the next free ticket, at: us of the last call, part: the
--           fraction of a us that belongs to next
-- KEYS[2]   list: the last 128 grants, 8 bytes of id, the us of the grant, the us of its turn
-- ARGV[1]   now in us, or empty for this server's TIME
-- ARGV[2]   permits
-- ARGV[3]   id of the call, 8 bytes; a shorter one is not stored; empty for a peek, which takes nothing
-- ARGV[4]   0, or if the call may have run before, an instant in us before it was first sent; 1 if none is
--           known
-- ARGV[5]   us between two permits at the rate
-- ARGV[6]   permits that can be stored
-- ARGV[7]   us that the caller would wait for its turn
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

local stable, most, cool = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[5])
local stored, ticket, at, part = most, now, now, 0
local state = redis.call('HMGET', KEYS[1], 'stored', 'next', 'at', 'part')
if state[1] or state[2] or state[3] then
  stored, ticket, at = tonumber(state[1]), tonumber(state[2]), tonumber(state[3])
  -- [whole]
  local function whole(x, least, most)
    return x and x >= least and x <= most and x % 1 == 0 -- which nan is not
  end
  -- [end]
  part = tonumber(state[4] or 0)
  -- A call waits for a year at most, and the next for 2^50 us and the warm-up more.
  if not (stored and stored >= 0 and stored <= most and whole(at, 0, 9007199254740992)
    and whole(ticket, at, at + 2251799813685248) and part and part >= 0 and part < 1) then
    return {-2}
  end
end
local back = now < at
if back then
  -- The clock was put back; what is owed stays the same.
  ticket = ticket - (at - now)
end
if now > ticket then
  stored = math.min(most, stored + (now - ticket - part) / cool)
  ticket, part = now, 0
end

local turn, most_wait = ticket - now, tonumber(ARGV[7])
local granted = again and true or turn <= most_wait
local wait = again and math.max(0, again - now) or granted and turn or turn - most_wait
local take = granted and not again and ARGV[3] ~= ''
if take then
  local entry = ARGV[3] .. string.format('%016.0f%016.0f', now, ticket)
  local spent = math.min(n, stored)
  local us = (n - spent) * stable
  us = stable < 10 and part + us or math.floor(us)
  ticket, part = ticket + math.floor(us), us % 1
  stored = stored - spent
  -- [remember the answer]
  if #ARGV[3] == 8 then
    if redis.call('RPUSH', KEYS[2], entry) > 128 then
      redis.call('LPOP', KEYS[2])
    end
    redis.call('PEXPIRE', KEYS[2], 60000)
  end
  -- [end]
end
local reset = ticket - now + math.ceil(part + (most - stored) * cool)
if take or back and ARGV[3] ~= '' then
  redis.call('HSET', KEYS[1], 'stored', string.format('%.17g', stored), 'next', ticket, 'at', now,
    'part', string.format('%.17g', part))
  redis.call('PEXPIRE', KEYS[1], math.ceil(reset / 1000) + 60000)
end
-- The call after it waits for them: as many as keep that wait exact.
local largest = math.min(4294967295, math.floor(1125899906842624 / stable))
return {granted and 1 or 0, ticket - now <= most_wait and largest or 0, wait, reset}
