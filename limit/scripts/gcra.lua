-- SPDX-License-Identifier: Apache-2.0
-- gcra: takes permits if the instant at which all of them will have flowed out is near enough. A call that finds the bucket
-- no more than full may put that instant further ahead by a debt.
--
-- Parts are fractions of a permit, such that the flow and the cost are whole numbers and nothing is rounded.
--
-- KEYS[1]   string: that instant, the theoretical arrival time: us, and the parts below a us; if more than
--           a full bucket is ahead, us when that was written, otherwise 0; and us given back, "@" and the epoch;
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

local flow, cost, full, debt = ARGV[3] + 0.0, ARGV[4] + 0.0, tonumber(ARGV[5]), tonumber(ARGV[6])
-- It holds in addition what comes in within a us, which would otherwise be lost when a wait is rounded up.
local most = full + flow - 1
local ahead, given, back = 0, 0, false
if state ~= '' then
  local us, part, owed_at, past = string.match(numbers, '^(%d+) ?(%d*) ?(%d*) ?(%d*)$')
  us, part, owed_at = tonumber(us), tonumber(part) or 0, tonumber(owed_at)
  if owed_at == 0 then
    owed_at = nil
  end
  if not us or us > 9007199254740992 or owed_at and owed_at > us then
    return {-2}
  end
  given = math.min(tonumber(past) or 0, 4503599627370496)
  -- A limiter with other numbers may have written it.
  part = math.min(part, flow - 1)
  if owed_at then
    us = math.min(us, owed_at + math.floor(4503599627370496 / flow))
  end
  if us >= now then
    ahead = (us - now) * flow + part
  end
  if owed_at then
    back = now < owed_at
    if back then
      ahead = (us - owed_at) * flow + part -- what is owed stays the same
    end
  else
    -- More than a full bucket is ahead only if the clock was put back. Then as much is ahead as a grant can leave.
    back = us - now > math.ceil((full + flow) / flow)
    if back then
      ahead = most
    end
  end
end

if back or ahead == 0 then
  given, epoch = 0, anew
end

local reply, runs, took, answer, n = {now, state, 0}, 0, 0, '', tonumber(ARGV[1])
if n then
  took = ahead <= most and ahead + n * cost <= most + debt and 1 or 0
  reply[3] = took
  ahead = ahead + took * n * cost
elseif string.byte(ARGV[1]) == 61 then
  --#use settled
  ahead, took, reply[3] = math.min(math.max(0, ahead + by), 4503599627370496), 1, 1
else
  for n, count in string.gmatch(ARGV[1], '(%d+):(%d+)') do
    local k = 1 + math.floor((most - math.max(0, n * cost - debt) - ahead) / (n * cost))
    k = math.max(0, math.min(tonumber(count), k))
    took, runs = took + k, runs + 1
    reply[2 + runs] = k
    ahead = ahead + k * n * cost
  end
  answer = ',' .. table.concat(reply, ' ', 3)
end
if id ~= '' and (took > 0 or back) then
  --#use remember
  local us, part = now + math.floor(ahead / flow), ahead % flow
  local text = string.format('%d %d %d %d@%s', us, part, ahead > most and now or 0, given, epoch)
  redis.call('SET', KEYS[1], text .. grants, 'PX', string.format('%d', math.floor(ahead / flow / 1000) + 60001))
end
return reply
