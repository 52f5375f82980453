-- SPDX-License-Identifier: Apache-2.0
-- fixed_window: takes permits of the current window.
--
-- KEYS[1]   string: start of the window in us and the count of what it has granted;
--           then of the last grant of each process the id, "," and tenths of a second, and of several requests
--           "," and how many of each were granted
-- ARGV[1]   permits, or "permits:count ..." of requests that are decided one after another; a count
--           of 0 takes nothing; or "=by mark owed", which settles a grant: by: permits to take, or to give back if
--           below 0; mark: us at which the window of the grant began; owed: not used
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
--#use now
local value = redis.call('GET', KEYS[1]) or ''
--#use ran_before
if again then
  return {now, state, again}
end

local permits, interval = tonumber(ARGV[3]), tonumber(ARGV[4])
local start, used, back = now, 0, false
if state ~= '' then
  start, used = string.match(state, '^(%d+) (%d+)$')
  start, used = tonumber(start), tonumber(used)
  if not start or start > 9007199254740992 or used > 4294967295 then
    return {-2}
  end
  back = now < start
  if back then
    start = now
  end
  if now >= start + interval or used == 0 then
    start, used = now, 0
  end
end

local window = start
--#use count
if id ~= '' and (took > 0 or back) then
  --#use remember
  local reset = used > 0 and start + interval - now or 0
  redis.call('SET', KEYS[1], string.format('%d %d%s', start, used, grants),
    'PX', string.format('%d', reset / 1000 + 60001))
end
return reply
