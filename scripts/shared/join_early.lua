-- SPDX-License-Identifier: Apache-2.0
-- join_early has what expires before the end of the cool-down join it, 256 members at most, and returns how many it were:
-- grants of before, those that peers made which do not know of it, and whatever has become free. Each becomes a block that
-- expires when it ends, before it goes: an emptied set would lose its TTL.
local function join_early()
  local early = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', string.format('(%.0f', till - interval), 'WITHSCORES', 'LIMIT', 0, 256)
  local times, sums = {}, {}
  for i = 1, #early, 2 do
    local m = early[i]
    local t = block_at(m) or math.min(seen_at(m) or now, now, tonumber(early[i + 1]))
    if t <= now - interval then
      t = 0
    end
    if not sums[t] then
      times[#times + 1], sums[t] = t, 0
    end
    sums[t] = sums[t] + permits_of(m)
  end
  for i = 1, #times do
    join(times[i], sums[times[i]])
  end
  for i = 1, #early, 2 do
    redis.call('ZREM', KEYS[3], early[i])
  end
  return #early / 2
end
