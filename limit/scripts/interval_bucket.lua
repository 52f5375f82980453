-- SPDX-License-Identifier: Apache-2.0
-- interval_bucket: takes permits from a bucket that is refilled at the end of each interval.
--
-- Both numbers of the state are in one key, so that neither is ever without the other.
--
-- KEYS[1]   string: us at which the current interval began, and permits left;
--           then of the last grant of each process the id, "," and tenths of a second, and of several requests
--           "," and how many of each were granted
-- ARGV[1]   permits, or "permits:count ..." of requests that are decided one after another; a count
--           of 0 takes nothing; or "=by mark owed", which settles a grant: by: permits to take, or to give back if
--           below 0; mark: us at which the interval of the grant began; owed: permits that the bucket lacked after it
-- ARGV[2]   id of the call: ";", 8 characters of the process, 6 digits that grow; a shorter one is not stored;
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

local permits, interval, capacity = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local begun, left, back = now, capacity, false
local least = math.max(-4294967295, capacity - math.floor(4503599627370496 / interval) * permits)
if state ~= '' then
  begun, left = string.match(state, '^(%d+) (%-?%d+)$')
  begun, left = tonumber(begun), tonumber(left)
  if not begun or begun > 9007199254740992 or left > 4294967295 or left < -4294967295 then
    return {-2}
  end
  left = math.max(least, math.min(capacity, left)) -- a limiter with other numbers may have written it
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

local reply, runs, took, answer, n = {now, state, 0}, 0, 0, '', tonumber(ARGV[1])
if n then
  took = n <= left and 1 or 0
  reply[3] = took
  left = left - took * n
elseif string.byte(ARGV[1]) == 61 then
  local by, mark, owed = string.match(ARGV[1], '^=(%-?%d+) (%d+) (%d+)$')
  by = tonumber(by)
  if by < 0 then
    -- No more than has not come back since.
    by = -math.max(0, math.min(-by, owed - math.floor(math.max(0, now - mark) / interval) * permits))
  end
  left, took, reply[3] = math.max(least, math.min(capacity, left - by)), 1, 1
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
if id ~= '' and (took > 0 or back) then
  --#use remember
  local reset = left < capacity and begun + math.ceil((capacity - left) / permits) * interval - now or 0
  redis.call('SET', KEYS[1], string.format('%d %d%s', begun, left, grants),
    'PX', string.format('%d', reset / 1000 + 60001))
end
return reply
