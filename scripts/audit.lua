-- audit: adds up the permits in the set, a bounded part a call, and has value make up the rate with them.
--
-- The caller carries the state. The members counted so far are one unbroken range of ranks, named by
-- its first and last member; a call extends it downwards to the oldest member and then upwards to the
-- newest. Grants, reclaims and releases keep value + used as it is, so permits are missing exactly
-- when value + used < rate at the instant at which the range covers the set, and there are too many
-- exactly when it is more. Then value falls by as many at once, below 0 if need be, and whoever called takes
-- members for them out of the set by trim, which gives their permits to value. Where the range has been
-- cut meanwhile (reclaimed from below, released from above), its size tells, and the caller starts over.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime
-- KEYS[2]   string: permits left, of the type in ARGV[1]
-- KEYS[3]   sorted set: one member a grant, of the type in ARGV[1]
-- ARGV[1]   type that KEYS[2] and KEYS[3] stand for: 0 OVERALL, 1 PER_CLIENT
-- ARGV[2]   members to read in this call
-- ARGV[3]   oldest member counted so far, empty to start
-- ARGV[4]   newest member counted so far, empty to start
-- ARGV[5]   number of members counted so far
-- ARGV[6]   their permits
-- Returns   {0, 0, oldest, newest, number, permits} not done, go on with these
--           {0, 1, balance, value, restored} done: value + used - rate as found, value as it is now, and the rate
--           when value was lost, otherwise 0
--           {1} not initialised   {2, type} the hash has another type   {4} the hash is malformed
--           {5} the set changed under the range, start over

local conf = redis.call('HMGET', KEYS[1], 'rate', 'interval', 'type')
local rate, interval, typ, malformed = conf[1], conf[2], conf[3], false
--#use limiter
--#use rate
if malformed then
  return {4}
end

local byte = string.byte
--#use permits_of
local n, total = tonumber(ARGV[5]), tonumber(ARGV[6])
local function add(members)
  for i = 1, #members do
    total = total + permits_of(members[i])
  end
  n = n + #members
end

local card = redis.call('ZCARD', KEYS[3])
local lo, hi = card, card - 1
local oldest, newest = ARGV[3], ARGV[4]
if n > 0 then
  lo, hi = redis.call('ZRANK', KEYS[3], oldest), redis.call('ZRANK', KEYS[3], newest)
  if not lo or not hi or hi - lo + 1 ~= n then
    return {5}
  end
end

local budget = tonumber(ARGV[2])
if lo > 0 then
  local from = math.max(0, lo - budget)
  local part = redis.call('ZRANGE', KEYS[3], from, lo - 1)
  add(part)
  budget = budget - #part
  oldest = part[1]
  if newest == '' then
    newest = part[#part]
  end
  lo = from
end
if lo == 0 and budget > 0 and hi < card - 1 then
  local part = redis.call('ZRANGE', KEYS[3], hi + 1, hi + budget)
  add(part)
  hi = hi + #part
  newest = part[#part]
end
if lo > 0 or hi < card - 1 then
  return {0, 0, oldest, newest, n, total}
end

local stored = redis.call('GET', KEYS[2])
local value = tonumber(stored)
--#use whole
if not stored and card == 0 then
  return {0, 1, 0, rate, 0} -- nobody has used it yet
end
if not value then
  redis.call('SET', KEYS[2], string.format('%.0f', rate - total))
  local ttl = redis.call('PTTL', KEYS[3])
  if ttl >= 0 then
    redis.call('PEXPIRE', KEYS[2], math.max(1, math.min(ttl, 9007199254740992))) -- it would fail on one near 2^63
  end
  return {0, 1, 0, rate - total, rate}
end
if value + total ~= rate then
  redis.call('INCRBY', KEYS[2], string.format('%.0f', rate - total - value))
end
return {0, 1, value + total - rate, rate - total, 0}
