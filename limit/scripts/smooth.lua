-- SPDX-License-Identifier: Apache-2.0
-- smooth: takes permits as Guava's SmoothBursty and SmoothWarmingUp do.
--
-- Guava's arithmetic, operation for operation: doubles, kept with all their digits, and waits truncated to
-- whole us. If permits come less than 10 us apart nothing is truncated: the fraction of a us is carried over.
--
-- KEYS[1]   string: stored permits, us of the next free ticket, us of the last call, the fraction of a us that
--           belongs to the ticket; then of the last grant of each process the id, "," and tenths of a second,
--           "," and now and the state before
-- ARGV[1]   "permits:count:wait ..." of requests that are decided one after another; wait: us that the caller
--           would wait for its turn
-- ARGV[2]   id of the call: ";", 8 characters of the process, 6 digits that grow; one that is a character shorter is not stored
-- ARGV[3]   us between two permits at the rate
-- ARGV[4]   permits that can be stored
-- ARGV[5]   us without use that store one
-- ARGV[6]   stored permits above which each takes longer
-- ARGV[7]   us that each of the others takes: 0 of a SmoothBursty
-- ARGV[8]   us by which each permit above takes longer than the one below
-- ARGV[9]   an instant in us before the call was first sent if it may have run before, 0 if none is known
-- ARGV[10]  now in us; without it, or if it is empty, this server's TIME
-- Returns   {now, state before, how many of each were granted}
--           {now, state, what it was granted} if the call has run before   {-1, now} if that cannot be told
--           {-2} the state is malformed

local now, since, id = tonumber(ARGV[10]), tonumber(ARGV[9]), ARGV[2]
--#use now
local value = redis.call('GET', KEYS[1]) or ''
--#use ran_before
if again then
  return {now, state, again}
end

local stable, most, cool = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local threshold, below, slope = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local stored, ticket, at, part = most, now, now, 0
if state ~= '' then
  stored, ticket, at, part = string.match(state, '^(%S+) (%d+) (%d+) (%S+)$')
  stored, ticket, at, part = tonumber(stored), tonumber(ticket), tonumber(at), tonumber(part)
  -- A call waits for a year at most, and the next for 2^50 us and the warm-up more.
  if not (stored and stored >= 0 and at and at <= 9007199254740992
    and ticket >= at and ticket <= at + 2251799813685248 and part and part >= 0 and part < 1) then
    return {-2}
  end
end
local kept = stored
stored = math.min(stored, most) -- a limiter with other numbers may have written it
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
      us = part + (us + below * rest) + (n - spent) * stable
    else
      us = part + (us + math.floor(below * rest)) + math.floor((n - spent) * stable)
    end
    ticket, part = ticket + math.floor(us), us % 1
    stored = stored - spent
    k = k + 1
  end
  took, reply[#reply + 1] = took + k, k
end
if took > 0 or back then
  --#use remember
  if took == 0 then -- it stays as it is, but for the clock
    stored = kept
  end
  local reset = ticket - now + math.max(0, math.ceil(part + (most - stored) * cool))
  redis.call('SET', KEYS[1], string.format('%.17g %d %d %.17g%s', stored, ticket, now, part, grants),
    'PX', string.format('%d', math.floor(reset / 1000) + 60001))
end
return reply
