-- SPDX-License-Identifier: Apache-2.0
-- heal adds up a large set in several calls, and counted is how far it has come: the field of the hash that has the name of
-- the set, with the number of members in the range of ranks that is added up, their permits, the length of the oldest, and
-- then the oldest and the newest. replace puts another member in the place of m, or none, and has the field say so. Where
-- the range is not the one that was added up any more, the field goes, and heal starts over.
local function replace(m, score, to)
  local size, sum, length, from = string.match(counted or '', '^(%d+) (%d+) (%d+) ()')
  local oldest, newest, lo, hi, at
  local function is_whole()
    lo, hi = redis.call('ZRANK', KEYS[3], oldest), redis.call('ZRANK', KEYS[3], newest)
    return lo and hi and hi - lo + 1 == tonumber(size)
  end
  if from then
    oldest, newest = sub(counted, from, from + length - 1), sub(counted, from + length)
    at = is_whole() and redis.call('ZRANK', KEYS[3], m)
  end
  if to then
    redis.call('ZADD', KEYS[3], score, to) -- before the old one goes: an emptied set would lose its TTL
  end
  redis.call('ZREM', KEYS[3], m)
  if not from or at and (at < lo or at > hi) then
    return
  end
  if at and to then
    oldest, newest = oldest == m and to or oldest, newest == m and to or newest
    sum = sum - permits_of(m) + permits_of(to)
  elseif at then
    size, sum = size - 1, sum - permits_of(m)
  end
  counted = at and is_whole() and string.format('%d %.0f %d ', size, sum, #oldest) .. oldest .. newest
  if counted then
    redis.call('HSET', KEYS[1], KEYS[3], counted)
  else
    redis.call('HDEL', KEYS[1], KEYS[3])
  end
end
