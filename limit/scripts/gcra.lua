-- SPDX-License-Identifier: Apache-2.0
-- gcra: takes permits if those that have not flowed out yet leave room for them. A call that finds the bucket no more than
-- full may go beyond that by a debt.
--
-- Parts are fractions of a permit, such that the flow and the cost are whole numbers and nothing is rounded. What was granted flows
-- out as the last grant says, also if this limiter has other numbers. Then what is left of it are as many permits in parts of its own.
--
-- KEYS[1]   string: us of the last grant, and the parts that had not flowed out then; us given back; parts that flow in each
--           us, and parts that a permit costs, "@" and the epoch;
--           then of the last grant of each process the id, "," and the time, "@" and the epoch, and of several requests
--           "," and how many of each were granted
-- ARGV[1]   permits, or "permits:count ..." of requests that are decided one after another; a count
--           of 0 takes nothing; or the settlement of a grant, which shared/settlement describes
-- ARGV[2]   id of the call: ";", 8 characters of the process, 6 digits that grow; one that is a character shorter is not stored
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
local ahead, given, its_flow, its_cost, back = 0, 0, flow, cost, false
if state ~= '' then
  local at
  at, ahead, given, its_flow, its_cost = string.match(numbers, '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  at, ahead, given = tonumber(at), tonumber(ahead), tonumber(given)
  its_flow, its_cost = tonumber(its_flow), tonumber(its_cost)
  if not at or math.max(at, ahead, given, its_flow, its_cost) > 9007199254740992 or its_flow < 1 or its_cost < 1 then
    return {-2}
  end
  its_flow, its_cost = its_flow + 0.0, its_cost + 0.0
  back = now < at -- if the clock was put back, what has not flowed out stays the same
  ahead = math.max(0, ahead - math.max(0, now - at) * its_flow)
end
if settles and ahead > 0 then
  flow, cost = its_flow, its_cost
end
local left, other = ahead, its_flow ~= flow or its_cost ~= cost
if its_cost ~= cost then
  local product = ahead * cost
  ahead = math.min(math.ceil(product <= 9007199254740992 and product / its_cost or product / its_cost * (1 + 2 ^ -50)), 4503599627370496)
end

if back or other or ahead == 0 then
  given, epoch = 0, anew -- what has come in for a grant can no longer be told
end

local reply, runs, took, answer, n = {now, state, 0}, 0, 0, '', tonumber(ARGV[1])
if n then
  took = ahead <= most and ahead + n * cost <= most + debt and 1 or 0
  reply[3] = took
  ahead = ahead + took * n * cost
elseif settles then
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
if took > 0 or back then
  --#use remember
  if took == 0 then -- it stays as it is, but for the clock
    ahead, flow, cost = left, its_flow, its_cost
  end
  redis.call('SET', KEYS[1], string.format('%d %d %d %d %d@%s%s', now, ahead, given, flow, cost, epoch, grants),
    'PX', string.format('%d', math.floor(ahead / flow / 1000) + 60001))
end
return reply
