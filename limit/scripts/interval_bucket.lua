-- SPDX-License-Identifier: Apache-2.0
-- interval_bucket: takes permits from a bucket that is refilled at the end of each interval.
--
-- Both numbers of the state are in one key, so that neither is ever without the other.
--
-- KEYS[1]   string: us at which the current interval began, permits left, how many of those that lack were
--           taken no later than at its start, and permits given back, "@" and the epoch;
--           then of the last grant of each process the id, "," and tenths of a second, and of several requests
--           "," and how many of each were granted
-- ARGV[1]   permits, or "permits:count ..." of requests that are decided one after another; a count
--           of 0 takes nothing; or the settlement of a grant, which shared/settlement describes
-- ARGV[2]   id of the call: ";", 8 characters of the process, 6 digits that grow; one that is a character shorter is not stored;
--           empty for a peek, which takes nothing
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
local begun, left, base, given, back = now, capacity, 0, 0, false
local least = math.max(-4294967295, capacity - math.floor(4503599627370496 / interval) * permits)
if state ~= '' then
  begun, left, base, given = string.match(numbers, '^(%d+) (%-?%d+) ?(%d*) ?(%d*)$')
  begun, left = tonumber(begun), tonumber(left)
  if not begun or begun > 9007199254740992 or left > 4294967295 or left < -4294967295 then
    return {-2}
  end
  left = math.max(least, math.min(capacity, left)) -- a limiter with other numbers may have written it
  base = math.min(tonumber(base) or 0, capacity - left)
  given = math.min(tonumber(given) or 0, 4503599627370496)
  back = now < begun
  if back then
    begun, base, given, epoch = now, capacity - left, 0, anew
  end
  local ends = math.floor((now - begun) / interval)
  if ends >= math.ceil((capacity - left) / permits) then
    begun, left, base, given, epoch = now, capacity, 0, 0, anew
  elseif ends > 0 then
    begun, left = begun + ends * interval, left + ends * permits
    base = capacity - left
  end
end

local before = left
local reply, runs, took, answer, n = {now, state, 0}, 0, 0, '', tonumber(ARGV[1])
if n then
  took = n <= left and 1 or 0
  reply[3] = took
  left = left - took * n
elseif string.byte(ARGV[1]) == 61 then
  --#use settlement
  took, reply[3] = 1, 1
  if by > 0 then
    left = math.max(least, left - by)
  elseif own then
    -- No more than has not come back since.
    owed = owed - math.min(given - past, owed - n) - math.floor(math.max(0, now - from) / interval) * permits
    by = math.max(0, math.min(-by, owed, capacity - left))
    left, given = left + by, given + by
    if taken <= begun then
      base = base - by
    end
    if base <= 0 then
      -- What the interval began with was given back. Whatever else was taken, it was by now.
      begun, base = now, capacity - left
    end
  end
else
  for n, count in string.gmatch(ARGV[1], '(%d+):(%d+)') do
    local k = math.floor(left / n)
    k = math.max(0, math.min(tonumber(count), k))
    took, runs = took + k, runs + 1
    reply[2 + runs] = k
    left = left - k * n
  end
  answer = ',' .. table.concat(reply, ' ', 3)
end
if left < before and now == begun then
  base = base + before - left
end
if id ~= '' and (took > 0 or back) then
  --#use remember
  local reset = left < capacity and begun + math.ceil((capacity - left) / permits) * interval - now or 0
  redis.call('SET', KEYS[1], string.format('%d %d %d %d@%s%s', begun, left, base, given, epoch, grants),
    'PX', string.format('%d', math.floor(reset / 1000) + 60001))
end
return reply
