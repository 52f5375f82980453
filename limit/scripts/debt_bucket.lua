-- SPDX-License-Identifier: Apache-2.0
-- debt_bucket: takes permits from a bucket that one call may leave in debt.
--
-- Parts are fractions of a permit, such that the flow and the cost are whole numbers and nothing is rounded.
--
-- KEYS[1]   string: us, the level in parts at that instant, below 0 in debt, and us given back, "@" and the epoch;
--           then of the last grant of each process the id, "," and tenths of a second, and of several requests
--           "," and how many of each were granted
-- ARGV[1]   permits, or "permits:count ..." of requests that are decided one after another; a count
--           of 0 takes nothing; or the settlement of a grant, which shared/settlement describes
-- ARGV[2]   id of the call: ";", 8 characters of the process, 6 digits that grow; one that is a character shorter is not stored;
--           empty for a peek, which takes nothing
-- ARGV[3]   parts that flow in each us
-- ARGV[4]   parts that a permit costs
-- ARGV[5]   parts of a full bucket
-- ARGV[6]   parts of the largest debt
-- ARGV[7]   an instant in us before the call was first sent if it may have run before, 0 if none is known
-- ARGV[8]   now in us; without it, or if it is empty, this server's TIME
-- Returns   {now, state before, how many of each were granted}
--           {now, state, what it was granted} if the call has run before   {-1, now} if that cannot be told
--           {-2} the state is malformed

local now, since, id = tonumber(ARGV[8]), tonumber(ARGV[7]), ARGV[2]
--#use now
local value = redis.call('GET', KEYS[1]) or ''
--#use ran_before
if again then
  return {now, state, again}
end
--#use epoch

local flow, cost = ARGV[3] + 0.0, ARGV[4] + 0.0
-- It holds in addition what comes in within a us, which would otherwise be lost when a wait is rounded up.
local full = ARGV[5] + flow - 1
local debt = tonumber(ARGV[6])
local at, level, given, back = now, full, 0, false
if state ~= '' then
  at, level, given = string.match(numbers, '^(%d+) (%-?%d+) ?(%d*)$')
  at, level = tonumber(at), tonumber(level)
  if not at or at > 9007199254740992 or level > full or level < -4503599627370496 then
    return {-2}
  end
  given = math.min(tonumber(given) or 0, 4503599627370496)
  back = now < at
  if now - at >= math.ceil((full - level) / flow) then
    level = full
  elseif not back then
    level = level + (now - at) * flow
  end
end
if back or level == full then
  given, epoch = 0, anew
end

-- A call may go into debt only while nothing is owed.
local reply, runs, took, answer, n = {now, state, 0}, 0, 0, '', tonumber(ARGV[1])
if n then
  took = level >= math.max(0, n * cost - debt) and 1 or 0
  reply[3] = took
  level = level - took * n * cost
elseif string.byte(ARGV[1]) == 61 then
  --#use settled
  level, took, reply[3] = math.max(-4503599627370496, math.min(full, level - by)), 1, 1
else
  for n, count in string.gmatch(ARGV[1], '(%d+):(%d+)') do
    local k = 1 + math.floor((level - math.max(0, n * cost - debt)) / (n * cost))
    k = math.max(0, math.min(tonumber(count), k))
    took, runs = took + k, runs + 1
    reply[2 + runs] = k
    level = level - k * n * cost
  end
  answer = ',' .. table.concat(reply, ' ', 3)
end
-- A rejected call need not be saved, as no part is lost, unless the clock was put back: then time counts from
-- now on.
if id ~= '' and (took > 0 or back) then
  --#use remember
  local reset = math.ceil((full - level) / flow)
  redis.call('SET', KEYS[1], string.format('%d %d %d@%s%s', now, level, given, epoch, grants),
    'PX', string.format('%d', math.floor(reset / 1000) + 60001))
end
return reply
