-- trim: takes permits out of the set, oldest first, and gives them to value; a bounded number of members
-- a call.
--
-- For a rate that was lowered with the permits in use kept, and for a state that held more than the rate:
-- audit has taken from value what was too much, and the oldest members stand for it, those of a cool-down before
-- them that were free when it was set. value + used stays as it is. For a lowered rate value rises to 0 at most, whoever else does this at the same time, so that no more
-- goes than is in use beyond the rate.
--
-- A call names the last member that goes, which the call before has found. So it may run twice: a member
-- that is no longer there has been taken out already, or has expired, as have those before it. A member that was free
-- goes alone. The first call names none and takes nothing.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime
-- KEYS[2]   string: permits left, of the type in ARGV[1]
-- KEYS[3]   sorted set: one member a grant, of the type in ARGV[1]
-- ARGV[1]   type that KEYS[2] and KEYS[3] stand for: 0 OVERALL, 1 PER_CLIENT
-- ARGV[2]   permits to take out after this call
-- ARGV[3]   1 when value is to rise to 0 at most, otherwise 0
-- ARGV[4]   permits to take out in this call, 0 for none
-- ARGV[5]   the last member that goes
-- ARGV[6]   permits that stay of it, 0 when all of it goes
-- Returns   {taken, permits, member, stay} taken: permits that this call took out; the others are the last
--           three arguments of the next call. {taken, 0} nothing is left to take out

if redis.call('HGET', KEYS[1], 'type') ~= ARGV[1] then
  return {0, 0}
end
--#use formats
local byte, char, sub, floor = string.byte, string.char, string.sub, math.floor
--#use permits_of
--#use le32

-- unused reports whether a member is a block of a cool-down that holds permits which nobody had.
local function unused(m)
  --#use is_block
  return at and byte(m, at) % 128 == 0 and byte(m, at + 1) == 0
end

local stored = redis.call('GET', KEYS[2])
local value = tonumber(stored)
--#use whole

-- Take out. What others have put in front of the member in the meantime could be more than a call may do, or
-- than is to go; then nothing goes, and the caller makes do with that.
local most, stay, taken = tonumber(ARGV[4]), tonumber(ARGV[6]), 0
local rank = most > 0 and redis.call('ZRANK', KEYS[3], ARGV[5])
local first = rank and unused(ARGV[5]) and rank or 0
if rank and rank - first < 1024 then
  local gone = redis.call('ZRANGE', KEYS[3], first, rank)
  for i = 1, #gone do
    taken = taken + permits_of(gone[i])
  end
  taken = taken - stay
  if taken > most or ARGV[3] == '1' and (value or 0) + taken > 0 then
    taken = 0
  end
  if taken > 0 then
    if stay == 0 then
      redis.call('ZREMRANGEBYRANK', KEYS[3], first, rank)
    else
      if rank > first then
        redis.call('ZREMRANGEBYRANK', KEYS[3], first, rank - 1)
      end
      local m, n = ARGV[5], stay
      --#use shrink
      -- Added before the old one goes: an emptied set would lose its TTL.
      redis.call('ZADD', KEYS[3], redis.call('ZSCORE', KEYS[3], m), smaller)
      redis.call('ZREM', KEYS[3], m)
    end
    -- Without a value there is nothing to add to: the next acquire rebuilds it from the set.
    if value then
      redis.call('INCRBY', KEYS[2], taken)
      value = value + taken
    end
  end
end

-- Find what the next call takes out.
local want = tonumber(ARGV[2])
if ARGV[3] == '1' then
  want = math.min(want, math.max(0, -(value or 0)))
end
local next_most, member, next_stay = 0, nil, 0
local members = want > 0 and redis.call('ZRANGE', KEYS[3], 0, 511) or {}
for i = 1, #members do
  if unused(members[i]) then
    members = {members[i]}
    break
  end
end
for i = 1, #members do
  if next_most == want then
    break
  end
  local n = math.min(permits_of(members[i]), want - next_most)
  next_most, member, next_stay = next_most + n, members[i], permits_of(members[i]) - n
end
if next_most == 0 then
  return {taken, 0}
end
return {taken, next_most, member, next_stay}
