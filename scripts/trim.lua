-- trim: takes permits out of the set, oldest first, and gives them to value; a bounded number of members
-- a call.
--
-- For a rate that was lowered with the permits in use kept, and for a state that held more than the rate:
-- audit has taken from value what was too much, and the oldest members stand for it. value + used stays
-- as it is. For a lowered rate value rises to 0 at most, whoever else does this at the same time, so that no more
-- goes than is in use beyond the rate.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime
-- KEYS[2]   string: permits left, of the type in ARGV[1]
-- KEYS[3]   sorted set: one member a grant, of the type in ARGV[1]
-- ARGV[1]   type that KEYS[2] and KEYS[3] stand for: 0 OVERALL, 1 PER_CLIENT
-- ARGV[2]   permits to take out
-- ARGV[3]   1 when value is to rise to 0 at most, otherwise 0
-- Returns   permits that this call took out; less than ARGV[2] means send the rest, 0 nothing is left

if redis.call('HGET', KEYS[1], 'type') ~= ARGV[1] then
  return 0
end
-- [formats]
-- The lengths of the members that this package writes, and what a block of the first length begins with.
local BC0I, LC0I, BLOCK = 21, 20, '\16~c~'
-- [end]
local byte, char, sub, floor = string.byte, string.char, string.sub, math.floor
-- [permits_of]
-- In every format the permits are the last four bytes, little endian. Shorter members than any format has
-- are nobody's grants and count for nothing.
local function permits_of(m)
  if #m < 8 then
    return 0
  end
  local a, b, c, d = byte(m, -4, -1)
  return a + b * 256 + c * 65536 + d * 16777216
end
-- [end]
-- [le32]
local function le32(n)
  return char(n % 256, floor(n / 256) % 256, floor(n / 65536) % 256, floor(n / 16777216) % 256)
end
-- [end]

local stored = redis.call('GET', KEYS[2])
local value = tonumber(stored)
-- [whole]
-- A value that is no whole number as INCRBY takes it, or that Lua would round, counts as lost.
if value and stored ~= '0' and not (value >= -9007199254740992 and value <= 9007199254740992
  and string.find(stored, '^-?[1-9]%d*$')) then
  value = nil
end
-- [end]

local want, gone = tonumber(ARGV[2]), 0
if ARGV[3] == '1' then
  want = math.min(want, math.max(0, -(value or 0)))
end
local left = want
local cut, score, rest
local members = redis.call('ZRANGE', KEYS[3], 0, 511, 'WITHSCORES')
for i = 1, #members, 2 do
  local m = members[i]
  local n = permits_of(m)
  if n > left then
    if left > 0 then
      cut, score, rest = m, members[i + 1], n - left
      left = 0
    end
    break
  end
  left = left - n
  gone = gone + 1
end
if gone > 0 then
  redis.call('ZREMRANGEBYRANK', KEYS[3], 0, gone - 1)
end
if cut then
  local m, n = cut, rest
  -- [shrink]
  -- smaller is m with n permits. It has the same id, so that a call that is sent again finds it.
  local p = le32(n)
  local smaller = sub(m, 1, -5) .. p
  if #m == BC0I and sub(m, 5, 8) == sub(m, -4) then
    smaller = sub(m, 1, 4) .. p .. sub(m, 9, 17) .. p
  end
  -- [end]
  -- Added before the old one goes: an emptied set would lose its TTL.
  redis.call('ZADD', KEYS[3], score, smaller)
  redis.call('ZREM', KEYS[3], m)
end
local taken = want - left
-- Without a value there is nothing to add to: the next acquire rebuilds it from the set.
if taken > 0 and value then
  redis.call('INCRBY', KEYS[2], taken)
end
return taken
