-- sliding_counter: takes permits when the counts of two windows, the older in part, leave room for them.
--
-- KEYS[1]   string: start of the current window in us, its count and the previous count;
--           then of the last grant of each process the id, "," and tenths of a second, and of several requests
--           "," and how many of each were granted
-- ARGV[1]   permits, or "permits:count ..." of requests that are decided one after another; a count
--           of 0 takes nothing
-- ARGV[2]   id of the call: ";", 8 characters of the process, 6 digits that grow; a shorter one is not stored;
--           empty for a peek, which takes nothing
-- ARGV[3]   permits of a window
-- ARGV[4]   us of a window
-- ARGV[5]   an instant in us before the call was first sent if it may have run before, 0 if none is known
-- ARGV[6]   now in us; without it, or if it is empty, this server's TIME
-- Returns   {now, state before, how many of each were granted}
--           {now, state, what it was granted} if the call has run before   {-1, now} if that cannot be told
--           {-2} the state is malformed

local now, since, id = tonumber(ARGV[6]), tonumber(ARGV[5]), ARGV[2]
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

local permits, interval = tonumber(ARGV[3]), tonumber(ARGV[4])
local start, current, previous, back = now, 0, 0, false
if state ~= '' then
  start, current, previous = string.match(state, '^(%d+) (%d+) (%d+)$')
  start, current, previous = tonumber(start), tonumber(current), tonumber(previous)
  if not start or start > 9007199254740992 or current > permits or previous > permits then
    return {-2}
  end
  back = now < start
  if back then
    start = now
  end
  local windows = math.floor((now - start) / interval)
  if windows == 1 then
    start, previous = start + interval, current
    current = 0
  elseif windows > 1 then
    start, current, previous = now, 0, 0
  end
end

-- a * b / c, rounded down. If the product is too large for a double it is divided bit by bit of a, which is
-- below 2^32, while b and c are below 2^51.
local function ratio(a, b, c)
  if a * b <= 9007199254740992 then
    return math.floor(a * b / c)
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

local left = permits - current - ratio(previous, start + interval - now, interval)
local reply, runs, took, answer, n = {now, state, 0}, 0, 0, '', tonumber(ARGV[1])
if n then
  took = n <= left and 1 or 0
  reply[3] = took
  current, left = current + took * n, left - took * n
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
  local reset = 0
  if current > 0 then
    reset = start + 2 * interval - now
  elseif previous > 0 then
    reset = start + interval - now
  end
  redis.call('SET', KEYS[1], string.format('%d %d %d%s', start, current, previous, grants),
    'PX', string.format('%d', reset / 1000 + 60001))
end
return reply
