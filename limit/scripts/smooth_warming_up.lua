-- smooth_warming_up: takes permits as Guava's SmoothWarmingUp does.
--
-- Guava's arithmetic, operation for operation: doubles, kept with all their digits, and waits truncated to
-- whole us. If permits come less than 10 us apart nothing is truncated: the fraction of a us is carried over.
--
-- KEYS[1]   string: stored permits, us of the next free ticket, us of the last call, the fraction of a us that
--           belongs to the ticket; then of the last grant of each process the id, "," and tenths of a second,
--           "," and now and the state before
-- ARGV[1]   "permits:count:wait ..." of requests that are decided one after another; wait: us that the caller
--           would wait for its turn
-- ARGV[2]   id of the call: ";", 8 characters of the process, 6 digits that grow; a shorter one is not stored;
--           empty for a peek, which takes nothing
-- ARGV[3]   us between two permits at the rate
-- ARGV[4]   permits that can be stored
-- ARGV[5]   us without use that store one
-- ARGV[6]   stored permits above which each takes longer
-- ARGV[7]   us by which each permit above takes longer than the one below
-- ARGV[8]   an instant in us before the call was first sent if it may have run before, 0 if none is known
-- ARGV[9]   now in us; without it, or if it is empty, this server's TIME
-- Returns   {now, state before, how many of each were granted}
--           {now, state, what it was granted} if the call has run before   {-1, now} if that cannot be told
--           {-2} the state is malformed

local now, since, id = tonumber(ARGV[9]), tonumber(ARGV[8]), ARGV[2]
-- [now]
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
-- [end]
local value = redis.call('GET', KEYS[1]) or ''
-- [ran before]
-- The value tells whether the call has run before under its id. Behind the state, which has no ";", there is an entry
-- for each process that was granted permits in the last ten seconds: the id of its last call that was granted some, ","
-- and the time in tenths of a second, and what the call was granted where its requests do not say. One entry is enough,
-- since a process makes one call of a subject at a time, and its ids grow. Where room is short the oldest entries are
-- dropped, and ";-," with the time of the last of these stands before the others. From here on grants are the entries
-- of the other processes, and again is what the call was granted if it has run.
local first = string.find(value, ';', 1, true)
local state, grants, again = value, '', nil
local own = first and #id == 15 and string.find(value, string.sub(id, 1, 9), first, true)
if own then
  local last = string.sub(value, own, own + 14)
  if since and last == id then
    again = string.match(value, '^,%d+,?([^;]*)', own + 15)
  elseif last >= id then
    return {-1, now} -- the process has made a later call, and given this one up
  end
  local behind = string.find(value, ';', own + 15, true)
  if behind or own > first then
    grants = string.sub(value, first, own - 1) .. (behind and string.sub(value, behind) or '')
  end
elseif first then
  grants = string.sub(value, first)
end
if first then
  state = string.sub(value, 1, first - 1)
end
if since and not own and #id == 15 then
  -- Then it has not run, unless that is no longer remembered: after ten seconds, or for want of room.
  local dropped = string.match(grants, '^;%-,(%d+)')
  if now - since > 9800000 or dropped and dropped * 100000 + 100000 > since then
    return {-1, now}
  end
end
-- [end]
if again then
  return {now, state, again}
end

local stable, most, cool = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local threshold, slope = tonumber(ARGV[6]), tonumber(ARGV[7])
local stored, ticket, at, part = most, now, now, 0
if state ~= '' then
  stored, ticket, at, part = string.match(state, '^(%S+) (%d+) (%d+) (%S+)$')
  stored, ticket, at, part = tonumber(stored), tonumber(ticket), tonumber(at), tonumber(part)
  -- A call waits for a year at most, and the next for 2^50 us and the warm-up more.
  if not (stored and stored >= 0 and stored <= most and at and at <= 9007199254740992
    and ticket >= at and ticket <= at + 2251799813685248 and part and part >= 0 and part < 1) then
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

local reply, took = {now, state}, 0
local answer = string.format(',%d ', now) .. state
for n, count, wait in string.gmatch(ARGV[1], '(%d+):(%d+):(%d+)') do
  local k = 0
  n, count, wait = tonumber(n), tonumber(count), tonumber(wait)
  while k < count and ticket - now <= wait do
    local spent = math.min(n, stored)
    -- The area under the line from stored to stored - spent.
    local us, rest, above = 0, spent, stored - threshold
    if above > 0 then
      local from_above = math.min(above, spent)
      local length = (stable + above * slope) + (stable + (above - from_above) * slope)
      us = from_above * length / 2
      us = stable < 10 and us or math.floor(us)
      rest = spent - from_above
    end
    if stable < 10 then
      us = part + us + stable * rest + (n - spent) * stable
    else
      us = us + math.floor(stable * rest) + math.floor((n - spent) * stable)
    end
    ticket, part = ticket + math.floor(us), us % 1
    stored = stored - spent
    k = k + 1
  end
  took, reply[#reply + 1] = took + k, k
end
if id ~= '' and (took > 0 or back) then
  -- [remember]
  if took == 0 then
    grants = first and string.sub(value, first) or ''
  elseif grants ~= '' then
    -- Forget what is ten seconds old, and the oldest for want of room; then note when the last of these was.
    local from, tenths, dropped = 1, math.floor(now / 100000), nil
    while from <= #grants do
      local at, behind = string.match(grants, '^;[^;,]*,(%d+)[^;]*()', from)
      at = tonumber(at)
      if at and tenths - at <= 100 then
        if #grants - from < 8192 then
          break
        end
        dropped = at
      end
      from = behind or #grants + 1
    end
    grants = (dropped and string.format(';-,%d', dropped) or '') .. string.sub(grants, from)
  end
  if took > 0 and #id == 15 then
    grants = grants .. id .. string.format(',%d', now / 100000) .. answer
  end
  -- [end]
  local reset = ticket - now + math.ceil(part + (most - stored) * cool)
  redis.call('SET', KEYS[1], string.format('%.17g %d %d %.17g%s', stored, ticket, now, part, grants),
    'PX', string.format('%d', reset / 1000 + 60001))
end
return reply
