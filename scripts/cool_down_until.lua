-- cool_down_until: when the cool-down ends. Reads only.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime, and of this package coolDown
-- ARGV[1]   now in ms, or empty for this server's TIME
-- Returns   {0, left} ms until then, 0 when there is none
--           {1} not initialised

local conf = redis.call('HMGET', KEYS[1], 'rate', 'coolDown')
if not conf[1] then
  return {1}
end
local now = tonumber(ARGV[1])
-- [now]
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
-- [end]
-- [instant]
-- instant returns the instant in ms that a field of the hash holds: 0 for none, for what is no number and for one
-- before 1970, and 2^53 for what is later. A fraction is rounded up, since PEXPIRE takes whole numbers only.
local function instant(s)
  local n = tonumber(s or 0) or 0
  return n > 0 and math.ceil(math.min(n, 9007199254740992)) or 0
end
-- [end]
return {0, math.max(0, instant(conf[2]) - now)}
