-- SPDX-License-Identifier: Apache-2.0
-- fixed_window: takes permits of the current window.
--
-- A window of a limiter with a longer interval does not end early for this one: each interval of its own brings as many permits as it
-- grants in one, and what is left was taken in the next.
--
-- KEYS[1]   string: start of the window in us, the count of what it has granted, how much of that no later than at its start,
--           and us of the interval of the limiter that has granted the last of it, "@" and the epoch;
--           then of the last grant of each process the id, "," and the time, "@" and the epoch, and of several requests
--           "," and how many of each were granted
-- ARGV[1]   permits, or "permits:count ..." of requests that are decided one after another; a count
--           of 0 takes nothing; or the settlement of a grant, which shared/settlement describes
-- ARGV[2]   id of the call: ";", 8 characters of the process, 6 digits that grow; one that is a character shorter is not stored
-- ARGV[3]   permits of a window
-- ARGV[4]   us of a window
-- ARGV[5]   an instant in us before the call was first sent if it may have run before, 0 if none is known
-- ARGV[6]   now in us; without it, or if it is empty, this server's TIME
-- Returns   {now, state before, how many of each were granted}
--           {now, state, what it was granted} if the call has run before   {-1, now} if that cannot be told
--           {-2} the state is malformed

local now, since, id = tonumber(ARGV[6]), tonumber(ARGV[5]), ARGV[2]
--#use now
local value = redis.call('GET', KEYS[1]) or ''
--#use ran_before
if again then
  return {now, state, again}
end
--#use epoch

local permits, interval = tonumber(ARGV[3]), tonumber(ARGV[4])
local start, used, base, length, back = now, 0, 0, interval, false
if state ~= '' then
  start, used, base, length = string.match(numbers, '^(%d+) (%d+) (%d+) (%d+)$')
  start, used, base, length = tonumber(start), tonumber(used), tonumber(base), tonumber(length)
  if not start or start > 9007199254740992 or used > 4294967295 or length < 1 or length > 2251799813685248 then
    return {-2}
  end
  back = now < start
  if back then
    start, base, epoch = now, used, anew
  end
  if settles and used > 0 then
    if now < start + length then
      interval = length
    elseif string.byte(ARGV[1], 2) == 45 then -- "-": by those numbers nothing counts that could be given back
      return {now, state, 1}
    end
  end
end
base = math.min(used, base)
local ends = math.floor((now - start) / interval)
if now < start + length and ends > 0 then
  used = math.max(0, used - ends * (permits + 0.0))
  start, base, epoch, ends = start + ends * interval, used, anew, 0
end
if ends > 0 or used == 0 then
  start, used, base, length, epoch = now, 0, 0, interval, anew
end

--#use count
if taken <= start then
  base = base + used - before
end
if base <= 0 then
  -- What began the window was given back. Whatever else it has granted, it has by now.
  start, base = now, used
end
if took > 0 or back then
  --#use remember
  if took > 0 then
    length = interval
  end
  local reset = used > 0 and start + length - now or 0
  redis.call('SET', KEYS[1], string.format('%d %d %d %d@%s%s', start, used, base, length, epoch, grants),
    'PX', string.format('%d', math.floor(reset / 1000) + 60001))
end
return reply
