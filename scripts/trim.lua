-- trim: takes permits out of the set, oldest first, and gives them to value; a bounded number of members
-- a call.
--
-- For a rate that was lowered with the permits in use kept, and for a state that held more than the rate:
-- audit has taken from value what was too much, and the oldest members stand for it. value + used stays
-- as it is, so that several may do this at once.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime
-- KEYS[2]   string: permits left, of the type in ARGV[1]
-- KEYS[3]   sorted set: one member a grant, of the type in ARGV[1]
-- ARGV[1]   type that KEYS[2] and KEYS[3] stand for: 0 OVERALL, 1 PER_CLIENT
-- ARGV[2]   permits to take out
-- Returns   permits that this call took out; less than ARGV[2] means send the rest, 0 nothing is left

if redis.call('HGET', KEYS[1], 'type') ~= ARGV[1] then
  return 0
end
local left, gone = tonumber(ARGV[2]), 0
local cut, score, smaller
local members = redis.call('ZRANGE', KEYS[3], 0, 511, 'WITHSCORES')
for i = 1, #members, 2 do
  local m = members[i]
  local a, b, c, d = string.byte(m, -4, -1)
  local worth = #m >= 8 and a + b * 256 + c * 65536 + d * 16777216 or 0
  if worth > left then
    local n = worth - left
    if left > 0 then
      local p = string.char(n % 256, math.floor(n / 256) % 256, math.floor(n / 65536) % 256,
        math.floor(n / 16777216) % 256)
      cut, score, smaller = m, members[i + 1], string.sub(m, 1, -5) .. p
      if #m == 21 and string.sub(m, 5, 8) == string.sub(m, -4) then
        smaller = string.sub(m, 1, 4) .. p .. string.sub(m, 9, 17) .. p
      end
      left = 0
    end
    break
  end
  left = left - worth
  gone = gone + 1
end
if gone > 0 then
  redis.call('ZREMRANGEBYRANK', KEYS[3], 0, gone - 1)
end
if cut then
  -- Added before the old one goes: an emptied set would lose its TTL.
  redis.call('ZADD', KEYS[3], score, smaller)
  redis.call('ZREM', KEYS[3], cut)
end
local taken = tonumber(ARGV[2]) - left
if taken > 0 and tonumber(redis.call('GET', KEYS[2]) or '') then
  redis.call('INCRBY', KEYS[2], string.format('%.0f', taken))
end
return taken
