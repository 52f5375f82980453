-- SPDX-License-Identifier: Apache-2.0
-- calendar_quota: takes permits of the current day, week or month.
--
-- When the clock was put back, what a period has granted counts until the same end. That is no later than the end of the period after the
-- current one: no two ends are closer than a period, whatever the clock does, and nobody waits for longer than for that one.
--
-- KEYS[1]   string: end of the period in us and the count of what it has granted, "@" and the epoch;
--           then of the last grant of each process the id, "," and the time, "@" and the epoch, and of several requests
--           "," and how many of each were granted
-- ARGV[1]   permits, or "permits:count ..." of requests that are decided one after another; a count
--           of 0 takes nothing; or the settlement of a grant, which shared/settlement describes
-- ARGV[2]   id of the call: ";", 8 characters of the process, 6 digits that grow; one that is a character shorter is not stored
-- ARGV[3]   permits of a period
-- ARGV[4]   instants in us at which periods begin, in order, with a blank in between
-- ARGV[5]   an instant in us before the call was first sent if it may have run before, 0 if none is known
-- ARGV[6]   now in us; without it, or if it is empty, this server's TIME
-- Returns   {now, state before, how many of each were granted}
--           {now, state, what it was granted} if the call has run before   {-1, now} if that cannot be told
--           {-2} the state is malformed   {-3, now} if now is in no period that was given, or in the last

local now, since, id = tonumber(ARGV[6]), tonumber(ARGV[5]), ARGV[2]
--#use now
local value = redis.call('GET', KEYS[1]) or ''
--#use ran_before
if again then
  return {now, state, again}
end
--#use epoch

local begun, finish, after = false, nil, nil
for text in string.gmatch(ARGV[4], '%d+') do
  local begin = tonumber(text)
  if finish then
    after = begin
    break
  elseif now < begin then
    finish = begin
  else
    begun = true
  end
end
if not begun or not after then
  return {-3, now}
end

local permits, ends, used, back = tonumber(ARGV[3]), finish, 0, false
if state ~= '' then
  ends, used = string.match(numbers, '^(%d+) (%d+)$')
  ends, used = tonumber(ends), tonumber(used)
  if not ends or ends > 9007199254740992 or used > 4294967295 then
    return {-2}
  end
  if now >= ends then
    ends, used = finish, 0
  end
  back = ends > after
  if back then
    ends, epoch = after, anew
  end
end
if used == 0 then
  epoch = anew
end

--#use count
if took > 0 or back then
  --#use remember
  redis.call('SET', KEYS[1], string.format('%d %d@%s%s', ends, used, epoch, grants),
    'PX', string.format('%d', math.floor((ends - now) / 1000) + 60001))
end
return reply
