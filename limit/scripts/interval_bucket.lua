-- SPDX-License-Identifier: Apache-2.0
-- interval_bucket: takes permits from a bucket that is refilled at the end of each interval.
--
-- All numbers of the state are in one key, so that none is ever without the others. Permits come in as the last grant says, also if
-- this limiter has other numbers.
--
-- KEYS[1]   string: us at which the current interval began, how many permits lack, how many of these were taken no later than
--           at its start, permits given back, permits that an interval brings, and us of an interval, "@" and the epoch;
--           then of the last grant of each process the id, "," and the time, "@" and the epoch, and of several requests
--           "," and how many of each were granted
-- ARGV[1]   permits, or "permits:count ..." of requests that are decided one after another; a count
--           of 0 takes nothing; or the settlement of a grant, which shared/settlement describes
-- ARGV[2]   id of the call: ";", 8 characters of the process, 6 digits that grow; one that is a character shorter is not stored
-- ARGV[3]   permits that an interval brings
-- ARGV[4]   us of an interval
-- ARGV[5]   permits of a full bucket
-- ARGV[6]   an instant in us before the call was first sent if it may have run before, 0 if none is known
-- ARGV[7]   now in us; without it, or if it is empty, this server's TIME
-- Returns   {now, state before, how many of each were granted}
--           {now, state, what it was granted} if the call has run before   {-1, now} if that cannot be told
--           {-2} the state is malformed

local now, since, id = tonumber(ARGV[7]), tonumber(ARGV[6]), ARGV[2]
--#use now
local value = redis.call('GET', KEYS[1]) or ''
--#use ran_before
if again then
  return {now, state, again}
end
--#use epoch

local permits, interval, capacity = ARGV[3] + 0.0, tonumber(ARGV[4]), tonumber(ARGV[5])
local begun, lack, base, given, brings, every, back = now, 0, 0, 0, permits, interval, false
if state ~= '' then
  begun, lack, base, given, brings, every = string.match(numbers, '^(%d+) (%d+) (%-?%d+) (%d+) (%d+) (%d+)$')
  begun, lack, base, given = tonumber(begun), tonumber(lack), tonumber(base), tonumber(given)
  brings, every = tonumber(brings), tonumber(every)
  if not begun or math.max(begun, given) > 9007199254740992 or math.max(lack, math.abs(base)) > 8589934590 or brings < 1 or every < 1
    or math.ceil(lack / brings) * (every + 0.0) > 9007199254740992 then
    return {-2}
  end
  base = math.min(base, lack)
  back = now < begun
  if back then
    begun, base, given, epoch = now, lack, 0, anew
  end
  local ends = math.floor((now - begun) / every)
  if ends >= math.ceil(lack / brings) then
    begun, lack, base, given, epoch = now, 0, 0, 0, anew
  elseif ends > 0 then
    begun, lack = begun + ends * every, lack - ends * brings
    base = lack
  end
end
if settles and lack > 0 then
  permits, interval = brings + 0.0, every
end
-- So that it fills in time. It is no less than the capacity.
local most = math.min(capacity + 4294967295, math.floor(4503599627370496 / interval) * permits)
if brings ~= permits or every ~= interval then
  -- An interval of this limiter begins with its first grant.
  begun, base, given, epoch = now, lack, 0, anew
end

local before = lack
local reply, runs, took, answer, n = {now, state, 0}, 0, 0, '', tonumber(ARGV[1])
if n then
  took = lack + n <= capacity and 1 or 0
  reply[3] = took
  lack = lack + took * n
elseif settles then
  --#use settlement
  took, reply[3] = 1, 1
  if by > 0 then
    lack = math.min(most, lack + by)
  elseif own then
    -- No more than has not come back since.
    owed = owed - math.min(given - past, owed - n) - math.floor(math.max(0, now - from) / interval) * permits
    by = math.max(0, math.min(-by, owed, lack))
    lack, given = lack - by, given + by
    if taken <= begun then
      base = base - by
    end
    if base <= 0 then
      -- What the interval began with was given back. Whatever else was taken, it was by now.
      begun, base = now, lack
    end
  end
else
  for n, count in string.gmatch(ARGV[1], '(%d+):(%d+)') do
    local k = math.floor((capacity - lack) / n)
    k = math.max(0, math.min(tonumber(count), k))
    took, runs = took + k, runs + 1
    reply[2 + runs] = k
    lack = lack + k * n
  end
  answer = ',' .. table.concat(reply, ' ', 3)
end
if lack > before and now == begun then
  base = base + lack - before
end
if took > 0 or back then
  --#use remember
  if took > 0 then
    brings, every, lack = permits, interval, math.min(most, lack)
  end
  local reset = lack > 0 and begun + math.ceil(lack / brings) * every - now or 0
  redis.call('SET', KEYS[1], string.format('%d %d %d %d %d %d@%s%s', begun, lack, base, given, brings, every, epoch, grants),
    'PX', string.format('%d', math.floor(reset / 1000) + 60001))
end
return reply
