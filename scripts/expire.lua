-- SPDX-License-Identifier: Apache-2.0
-- expire: gives the limiter's keys a TTL, each under the same condition.
--
-- The conditions are Redis 7's NX, XX, GT and LT of PEXPIRE, worked out here so that Redis 5 has them
-- too: a key without TTL counts as living forever.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime
-- KEYS[2]   string: permits left, OVERALL
-- KEYS[3]   sorted set: one member a grant, OVERALL
-- KEYS[4]   string: permits left, of the calling client
-- KEYS[5]   sorted set: one member a grant, of the calling client
-- ARGV[1]   TTL in ms, or empty
-- ARGV[2]   instant in ms since the epoch when ARGV[1] is empty; in the past it deletes
-- ARGV[3]   condition: empty, NX, XX, GT or LT
-- Returns   1 at least one key took it, 0 none did

local ms = tonumber(ARGV[1])
if not ms then
  local t = redis.call('TIME')
  ms = tonumber(ARGV[2]) - t[1] * 1000 - math.floor(t[2] / 1000)
end
local text = string.format('%.0f', ms)
local function allowed(ttl)
  if ttl == -2 then
    return false
  end
  local cond = ARGV[3]
  return cond == '' or cond == 'NX' and ttl == -1 or cond == 'XX' and ttl ~= -1
    or cond == 'GT' and ttl ~= -1 and ms > ttl or cond == 'LT' and (ttl == -1 or ms < ttl)
end

local taken = 0
if allowed(redis.call('PTTL', KEYS[1])) then
  taken = taken + redis.call('PEXPIRE', KEYS[1], text)
end
if allowed(redis.call('PTTL', KEYS[2])) then
  taken = taken + redis.call('PEXPIRE', KEYS[2], text)
end
if allowed(redis.call('PTTL', KEYS[3])) then
  taken = taken + redis.call('PEXPIRE', KEYS[3], text)
end
if allowed(redis.call('PTTL', KEYS[4])) then
  taken = taken + redis.call('PEXPIRE', KEYS[4], text)
end
if allowed(redis.call('PTTL', KEYS[5])) then
  taken = taken + redis.call('PEXPIRE', KEYS[5], text)
end
return taken > 0 and 1 or 0
