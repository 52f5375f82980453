-- SPDX-License-Identifier: Apache-2.0
-- leaky_queue: gives a call its turn in a queue that flows out evenly.
--
-- Parts are fractions of a permit, such that the flow and the cost are whole numbers and nothing is rounded. The instant at
-- which all have flowed out, and with it each turn, stays the same for a limiter with other numbers.
--
-- KEYS[1]   string: us of the last grant, the parts that had not flowed out then, and the parts that flowed in each us;
--           then of the last grant of each process the id, "," and tenths of a second, "," and now and the state
--           before
-- ARGV[1]   "permits:count:wait ..." of requests that are decided one after another; wait: us that the caller
--           would wait for its turn
-- ARGV[2]   id of the call: ";", 8 characters of the process, 6 digits that grow; one that is a character shorter is not stored
-- ARGV[3]   parts that flow in each us
-- ARGV[4]   parts that a permit costs
-- ARGV[5]   parts of a full bucket
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

local flow, cost, full = ARGV[3] + 0.0, ARGV[4] + 0.0, tonumber(ARGV[5])
local most = full + flow - 1
local ahead, its_flow, back = 0, flow, false
if state ~= '' then
  local at
  at, ahead, its_flow = string.match(state, '^(%d+) (%d+) (%d+)$')
  at, ahead, its_flow = tonumber(at), tonumber(ahead), tonumber(its_flow)
  if not at or math.max(at, ahead, its_flow) > 9007199254740992 or its_flow < 1 then
    return {-2}
  end
  its_flow = its_flow + 0.0
  back = now < at -- if the clock was put back, what has not flowed out stays the same
  ahead = math.max(0, ahead - math.max(0, now - at) * its_flow)
end
local left = ahead
if its_flow ~= flow then
  local product = ahead * flow
  ahead = math.min(math.ceil(product <= 9007199254740992 and product / its_flow or product / its_flow * (1 + 2 ^ -50)), 4503599627370496)
end

local reply, took = {now, state}, 0
local answer = string.format(',%d ', now) .. state
for n, count, wait in string.gmatch(ARGV[1], '(%d+):(%d+):(%d+)') do
  -- Less than a us is no wait: callers, who wait for whole ones, would lose the rest each time.
  local need, turns = n * cost, wait * flow + flow - 1 - ahead
  local k = turns < 0 and 0 or math.floor(turns / need) + 1
  k = math.max(0, math.min(tonumber(count), k, math.floor((most - ahead) / need)))
  ahead, took, reply[#reply + 1] = ahead + k * need, took + k, k
end
if took > 0 or back then
  --#use remember
  if took == 0 then -- it stays as it is, but for the clock
    ahead, flow = left, its_flow
  end
  redis.call('SET', KEYS[1], string.format('%d %d %d%s', now, ahead, flow, grants),
    'PX', string.format('%d', math.floor(ahead / flow / 1000) + 60001))
end
return reply
