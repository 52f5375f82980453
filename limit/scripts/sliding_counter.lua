-- SPDX-License-Identifier: Apache-2.0
-- sliding_counter: takes permits when the counts of two windows, the older in part, leave room for them.
--
-- KEYS[1]   string: start of the current window in us, its count, the previous count, and us of a window, "@" and the epoch;
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

-- a * b / c, rounded down. If the product is too large for a double it is divided bit by bit of a, which is
-- below 2^32, while b and c are below 2^51.
local function ratio(a, b, c)
  local product = a * 1.0 * b
  if product <= 9007199254740992 then
    return math.floor(product / c)
  end
  local whole, part, quotient, rest = math.floor(b / c), b % c, 0, 0
  for bit = 31, 0, -1 do
    quotient, rest = 2 * quotient, 2 * rest
    if rest >= c then
      quotient, rest = quotient + 1, rest - c
    end
    if math.floor(a / 2 ^ bit) % 2 == 1 then
      quotient, rest = quotient + whole, rest + part
      if rest >= c then
        quotient, rest = quotient + 1, rest - c
      end
    end
  end
  return quotient
end

local permits, interval = tonumber(ARGV[3]), tonumber(ARGV[4])
local start, current, previous, length, back = now, 0, 0, interval, false
if state ~= '' then
  start, current, previous, length = string.match(numbers, '^(%d+) (%d+) (%d+) (%d+)$')
  start, current, previous, length = tonumber(start), tonumber(current), tonumber(previous), tonumber(length)
  if not start or start > 9007199254740992 or math.max(current, previous) > 4294967295 or length < 1 or length > 2251799813685248 then
    return {-2}
  end
  back = now < start
  if back or current + previous == 0 then
    start, epoch = now, anew
  end
  if settles and current + previous > 0 then
    if now < start + 2 * length then
      interval = length
    elseif string.byte(ARGV[1], 2) == 45 then -- "-": by those numbers nothing counts that could be given back
      return {now, state, 1}
    end
  end
end
local kept_current, kept_previous = current, previous
if length ~= interval then
  -- It comes back as in the windows of the other limiter, as far as these are longer, or in each interval of this one as
  -- many permits as it grants in one, whichever is sooner.
  local longest, passed, used = math.max(interval, length), now - start, 0
  if passed < longest then
    used = current + math.min(previous, ratio(previous, longest - passed, longest) + 1)
  elseif passed < 2 * longest then
    used = math.min(current, ratio(current, 2 * longest - passed, longest) + 1)
  end
  local ends = math.floor(passed / interval)
  used = math.min(used, math.max(0, current + previous - ends * (permits + 0.0)), 4294967295)
  start, current, previous, epoch = used > 0 and start + ends * interval or now, used, 0, anew
else
  local windows = math.floor((now - start) / interval)
  if windows == 1 then
    start, previous = start + interval, current
    current = 0
  elseif windows > 1 then
    start, current, previous, epoch = now, 0, 0, anew
  end
end

local left = permits - current - ratio(previous, start + interval - now, interval)
local reply, runs, took, answer, n = {now, state, 0}, 0, 0, '', tonumber(ARGV[1])
if n then
  took = n <= left and 1 or 0
  reply[3] = took
  current, left = current + took * n, left - took * n
elseif settles then
  --#use settlement
  if by > 0 or own and from == start then
    current = math.min(math.max(0, current + by), 4294967295)
  elseif own and from == start - interval then
    previous = math.max(0, previous + by)
  end
  took, reply[3] = 1, 1
else
  for n, count in string.gmatch(ARGV[1], '(%d+):(%d+)') do
    local k = math.floor(left / n)
    k = math.max(0, math.min(tonumber(count), k))
    took, runs = took + k, runs + 1
    reply[2 + runs] = k
    current, left = current + k * n, left - k * n
  end
  answer = ',' .. table.concat(reply, ' ', 3)
end
if took > 0 or back then
  --#use remember
  if took > 0 then
    length = interval
  else -- it stays as it is, but for the clock
    current, previous = kept_current, kept_previous
  end
  local reset = 0
  if current > 0 then
    reset = start + 2 * length - now
  elseif previous > 0 then
    reset = start + length - now
  end
  redis.call('SET', KEYS[1], string.format('%d %d %d %d@%s%s', start, current, previous, length, epoch, grants),
    'PX', string.format('%d', math.floor(reset / 1000) + 60001))
end
return reply
