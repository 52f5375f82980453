-- SPDX-License-Identifier: Apache-2.0
-- join puts n permits of the instant t, 0 for those that were free, into blocks that expire when the cool-down ends, and
-- returns how many it has put.
local function join(t, n)
  local left = n
  for k = 0, 1023 do
    if left <= 0 then
      break
    end
    local p, m = le32(math.min(left, 4294967295)), nil
    local apart = t == 0 and now + k or k
    if long then
      m = ms48(t == 0 and apart % 4294967296 or t + floor(k / 32))
      m = '\8\0\0\0\0\0\0\0~c' .. char(byte(m) + 128 + (t == 0 and 0 or k % 32 * 4)) .. sub(m, 2) .. p
    else
      m = ms48(t)
      m = BLOCK .. p .. char(byte(m) + 128) .. sub(m, 2) .. sub(le32(apart), 1, 3) .. p
    end
    if redis.call('ZADD', KEYS[3], 'NX', string.format('%.0f', till - interval), m) == 1 then
      left = left - math.min(left, 4294967295)
    end
  end
  return n - left
end

-- gain returns by how much value rises when n permits become free. In a cool-down those beyond 0 join it: what is left
-- is for Redisson to take. That comes before any member goes, since an emptied set would lose its TTL.
local function gain(n, value)
  local over = math.min(n, value + n)
  return till > now and over > 0 and n - join(0, over) or n
end
