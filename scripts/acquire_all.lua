-- SPDX-License-Identifier: Apache-2.0
-- acquire_all: takes permits of several limiters at one instant, all of them or none.
--
-- It takes what is plainly there: a rejection keeps alive the limiters that have a keepAliveTime, as that of acquire does,
-- writes nothing else, and tells which limiters reject. The caller then asks each of them by acquire, without taking
-- anything, which reclaims, heals and tells the wait. What is granted is what acquire would grant. A call that is sent
-- again takes nothing twice: its members are added with NX, and it is granted what it was granted before.
--
-- Every key is named where it is used, since some proxies want it so; hence one list of functions for
-- each limiter, and not a loop over KEYS. Places that the call does not use repeat a key of it.
--
-- KEYS[1]   hash of limiter 1: rate, interval, type, keepAliveTime, minGap, coolDown
-- KEYS[2]   string: its permits left, of the type in ARGV[1]
-- KEYS[3]   sorted set: its members, one a grant
-- KEYS[4]   hash of limiter 2: rate, interval, type, keepAliveTime, minGap, coolDown
-- KEYS[5]   string: its permits left, of the type in ARGV[1]
-- KEYS[6]   sorted set: its members, one a grant
-- KEYS[7]   hash of limiter 3: rate, interval, type, keepAliveTime, minGap, coolDown
-- KEYS[8]   string: its permits left, of the type in ARGV[1]
-- KEYS[9]   sorted set: its members, one a grant
-- KEYS[10]   hash of limiter 4: rate, interval, type, keepAliveTime, minGap, coolDown
-- KEYS[11]   string: its permits left, of the type in ARGV[1]
-- KEYS[12]   sorted set: its members, one a grant
-- KEYS[13]   hash of limiter 5: rate, interval, type, keepAliveTime, minGap, coolDown
-- KEYS[14]   string: its permits left, of the type in ARGV[1]
-- KEYS[15]   sorted set: its members, one a grant
-- KEYS[16]   hash of limiter 6: rate, interval, type, keepAliveTime, minGap, coolDown
-- KEYS[17]   string: its permits left, of the type in ARGV[1]
-- KEYS[18]   sorted set: its members, one a grant
-- ARGV[1]   type and permits of each limiter, and how many are to stay free, as in "0 1 0 0 20 5 1 3 0"
-- ARGV[2]   now in ms, or empty for this server's TIME
-- ARGV[3]   words: replay: this call may have run before with the same members; mark: a grant ahead of now, which is everybody's,
--           keeps its gap
-- ARGV[4]   least TTL in ms of PER_CLIENT state when a limiter has none, 0 for no TTL
-- ARGV[5]   the member to store for limiter 1, or empty
-- ARGV[6]   the member to store for limiter 2, or empty
-- ARGV[7]   the member to store for limiter 3, or empty
-- ARGV[8]   the member to store for limiter 4, or empty
-- ARGV[9]   the member to store for limiter 5, or empty
-- ARGV[10]   the member to store for limiter 6, or empty
-- Returns   {0} granted   {0, number, ...} rejected by the limiters of these numbers, from 1 on; a number below 0 is that of a
--           limiter of which a member was met that has the layout of Redisson 3.16.4 .. 3.16.8, or another one where ours has that
--           {1, number} not initialised   {2, number, type} the hash has another type
--           {3, number, rate} the permits exceed the rate   {4, number} the hash is malformed

local all = {
  {
    conf = function()
      return redis.call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'keepAliveTime', 'minGap', 'coolDown')
    end,
    value = function() return redis.call('GET', KEYS[2]) end,
    old = function(till) return redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', till, 'LIMIT', 0, 64) end,
    newest = function(till, from) return redis.call('ZREVRANGEBYSCORE', KEYS[3], till, from, 'WITHSCORES', 'LIMIT', 0, 128) end,
    ran = function() return redis.call('ZSCORE', KEYS[3], ARGV[5]) end,
    take = function(now, old, change, permits)
      if old > 0 then
        redis.call('ZREMRANGEBYRANK', KEYS[3], 0, old - 1)
      end
      if redis.call('ZADD', KEYS[3], 'NX', now, ARGV[5]) == 0 then
        change = change + permits
      end
      redis.call('INCRBY', KEYS[2], change)
    end,
    ttl = function() return redis.call('PTTL', KEYS[1]) end,
    keep = function(ms) redis.call('PEXPIRE', KEYS[1], ms) end,
    stay = function(ms, below)
      if not ms then
        redis.call('PERSIST', KEYS[2])
        redis.call('PERSIST', KEYS[3])
      elseif not below or redis.call('PTTL', KEYS[2]) < below or redis.call('PTTL', KEYS[3]) < below then
        redis.call('PEXPIRE', KEYS[2], ms)
        redis.call('PEXPIRE', KEYS[3], ms)
      end
    end,
  },
  {
    conf = function()
      return redis.call('HMGET', KEYS[4], 'rate', 'interval', 'type', 'keepAliveTime', 'minGap', 'coolDown')
    end,
    value = function() return redis.call('GET', KEYS[5]) end,
    old = function(till) return redis.call('ZRANGEBYSCORE', KEYS[6], '-inf', till, 'LIMIT', 0, 64) end,
    newest = function(till, from) return redis.call('ZREVRANGEBYSCORE', KEYS[6], till, from, 'WITHSCORES', 'LIMIT', 0, 128) end,
    ran = function() return redis.call('ZSCORE', KEYS[6], ARGV[6]) end,
    take = function(now, old, change, permits)
      if old > 0 then
        redis.call('ZREMRANGEBYRANK', KEYS[6], 0, old - 1)
      end
      if redis.call('ZADD', KEYS[6], 'NX', now, ARGV[6]) == 0 then
        change = change + permits
      end
      redis.call('INCRBY', KEYS[5], change)
    end,
    ttl = function() return redis.call('PTTL', KEYS[4]) end,
    keep = function(ms) redis.call('PEXPIRE', KEYS[4], ms) end,
    stay = function(ms, below)
      if not ms then
        redis.call('PERSIST', KEYS[5])
        redis.call('PERSIST', KEYS[6])
      elseif not below or redis.call('PTTL', KEYS[5]) < below or redis.call('PTTL', KEYS[6]) < below then
        redis.call('PEXPIRE', KEYS[5], ms)
        redis.call('PEXPIRE', KEYS[6], ms)
      end
    end,
  },
  {
    conf = function()
      return redis.call('HMGET', KEYS[7], 'rate', 'interval', 'type', 'keepAliveTime', 'minGap', 'coolDown')
    end,
    value = function() return redis.call('GET', KEYS[8]) end,
    old = function(till) return redis.call('ZRANGEBYSCORE', KEYS[9], '-inf', till, 'LIMIT', 0, 64) end,
    newest = function(till, from) return redis.call('ZREVRANGEBYSCORE', KEYS[9], till, from, 'WITHSCORES', 'LIMIT', 0, 128) end,
    ran = function() return redis.call('ZSCORE', KEYS[9], ARGV[7]) end,
    take = function(now, old, change, permits)
      if old > 0 then
        redis.call('ZREMRANGEBYRANK', KEYS[9], 0, old - 1)
      end
      if redis.call('ZADD', KEYS[9], 'NX', now, ARGV[7]) == 0 then
        change = change + permits
      end
      redis.call('INCRBY', KEYS[8], change)
    end,
    ttl = function() return redis.call('PTTL', KEYS[7]) end,
    keep = function(ms) redis.call('PEXPIRE', KEYS[7], ms) end,
    stay = function(ms, below)
      if not ms then
        redis.call('PERSIST', KEYS[8])
        redis.call('PERSIST', KEYS[9])
      elseif not below or redis.call('PTTL', KEYS[8]) < below or redis.call('PTTL', KEYS[9]) < below then
        redis.call('PEXPIRE', KEYS[8], ms)
        redis.call('PEXPIRE', KEYS[9], ms)
      end
    end,
  },
  {
    conf = function()
      return redis.call('HMGET', KEYS[10], 'rate', 'interval', 'type', 'keepAliveTime', 'minGap', 'coolDown')
    end,
    value = function() return redis.call('GET', KEYS[11]) end,
    old = function(till) return redis.call('ZRANGEBYSCORE', KEYS[12], '-inf', till, 'LIMIT', 0, 64) end,
    newest = function(till, from) return redis.call('ZREVRANGEBYSCORE', KEYS[12], till, from, 'WITHSCORES', 'LIMIT', 0, 128) end,
    ran = function() return redis.call('ZSCORE', KEYS[12], ARGV[8]) end,
    take = function(now, old, change, permits)
      if old > 0 then
        redis.call('ZREMRANGEBYRANK', KEYS[12], 0, old - 1)
      end
      if redis.call('ZADD', KEYS[12], 'NX', now, ARGV[8]) == 0 then
        change = change + permits
      end
      redis.call('INCRBY', KEYS[11], change)
    end,
    ttl = function() return redis.call('PTTL', KEYS[10]) end,
    keep = function(ms) redis.call('PEXPIRE', KEYS[10], ms) end,
    stay = function(ms, below)
      if not ms then
        redis.call('PERSIST', KEYS[11])
        redis.call('PERSIST', KEYS[12])
      elseif not below or redis.call('PTTL', KEYS[11]) < below or redis.call('PTTL', KEYS[12]) < below then
        redis.call('PEXPIRE', KEYS[11], ms)
        redis.call('PEXPIRE', KEYS[12], ms)
      end
    end,
  },
  {
    conf = function()
      return redis.call('HMGET', KEYS[13], 'rate', 'interval', 'type', 'keepAliveTime', 'minGap', 'coolDown')
    end,
    value = function() return redis.call('GET', KEYS[14]) end,
    old = function(till) return redis.call('ZRANGEBYSCORE', KEYS[15], '-inf', till, 'LIMIT', 0, 64) end,
    newest = function(till, from) return redis.call('ZREVRANGEBYSCORE', KEYS[15], till, from, 'WITHSCORES', 'LIMIT', 0, 128) end,
    ran = function() return redis.call('ZSCORE', KEYS[15], ARGV[9]) end,
    take = function(now, old, change, permits)
      if old > 0 then
        redis.call('ZREMRANGEBYRANK', KEYS[15], 0, old - 1)
      end
      if redis.call('ZADD', KEYS[15], 'NX', now, ARGV[9]) == 0 then
        change = change + permits
      end
      redis.call('INCRBY', KEYS[14], change)
    end,
    ttl = function() return redis.call('PTTL', KEYS[13]) end,
    keep = function(ms) redis.call('PEXPIRE', KEYS[13], ms) end,
    stay = function(ms, below)
      if not ms then
        redis.call('PERSIST', KEYS[14])
        redis.call('PERSIST', KEYS[15])
      elseif not below or redis.call('PTTL', KEYS[14]) < below or redis.call('PTTL', KEYS[15]) < below then
        redis.call('PEXPIRE', KEYS[14], ms)
        redis.call('PEXPIRE', KEYS[15], ms)
      end
    end,
  },
  {
    conf = function()
      return redis.call('HMGET', KEYS[16], 'rate', 'interval', 'type', 'keepAliveTime', 'minGap', 'coolDown')
    end,
    value = function() return redis.call('GET', KEYS[17]) end,
    old = function(till) return redis.call('ZRANGEBYSCORE', KEYS[18], '-inf', till, 'LIMIT', 0, 64) end,
    newest = function(till, from) return redis.call('ZREVRANGEBYSCORE', KEYS[18], till, from, 'WITHSCORES', 'LIMIT', 0, 128) end,
    ran = function() return redis.call('ZSCORE', KEYS[18], ARGV[10]) end,
    take = function(now, old, change, permits)
      if old > 0 then
        redis.call('ZREMRANGEBYRANK', KEYS[18], 0, old - 1)
      end
      if redis.call('ZADD', KEYS[18], 'NX', now, ARGV[10]) == 0 then
        change = change + permits
      end
      redis.call('INCRBY', KEYS[17], change)
    end,
    ttl = function() return redis.call('PTTL', KEYS[16]) end,
    keep = function(ms) redis.call('PEXPIRE', KEYS[16], ms) end,
    stay = function(ms, below)
      if not ms then
        redis.call('PERSIST', KEYS[17])
        redis.call('PERSIST', KEYS[18])
      elseif not below or redis.call('PTTL', KEYS[17]) < below or redis.call('PTTL', KEYS[18]) < below then
        redis.call('PEXPIRE', KEYS[17], ms)
        redis.call('PEXPIRE', KEYS[18], ms)
      end
    end,
  },
}

local now = tonumber(ARGV[2])
--#use now

--#use formats
local byte, sub = string.byte, string.sub
--#use permits_of
--#use instant
--#use stamps
--#use gap
--#use says
local replay = says(ARGV[3], 'replay')

local plan, reject, ran, met = {}, {}, false, {}
for typ, permits, kept in string.gmatch(ARGV[1], '(%d) (%d+) (%d+)') do
  local i = #plan + 1
  local on = all[i]
  local conf, p, least = on.conf(), tonumber(permits), tonumber(permits) + tonumber(kept)
  local rate, interval, found, keep, malformed = conf[1], conf[2], conf[3], conf[4], false
  if not (rate and interval and found) then
    return {1, i}
  end
  if found ~= typ then
    return {2, i, found == '0' and 0 or found == '1' and 1 or -1}
  end
  --#use rate
  --#use keep_alive
  if malformed then
    return {4, i}
  end
  if least > rate then
    return {3, i, rate}
  end
  if replay and on.ran() then
    ran = true
  end

  local old, freed = on.old(now - interval), 0
  local long, other = #ARGV[5] == LC0I, nil
  for j = 1, #old do
    local m = old[j]
    freed = freed + permits_of(m)
    --#use other_layout
  end
  met[#met + 1] = other and -i
  local stored = on.value()
  local value = tonumber(stored)
  --#use whole
  -- What is lost, or more than the rate, is for acquire to rebuild.
  local free = value and value + freed <= rate and value + freed >= least
  local till = instant(conf[6])
  if free and till > now then
    free = false
  end
  local gap = (tonumber(conf[5] or 0) or 0) + 0.0
  if free and gap > 0 then
    local clock = string.format('%.0f', now)
    free = after_gap(on.newest('+inf', '(' .. clock), on.newest(clock, '-inf'), gap, interval, says(ARGV[3], 'mark')) <= now
  end
  if not free then
    reject[#reject + 1] = i
  end
  plan[i] = {on = on, old = #old, change = freed - p, permits = p, typ = typ, interval = interval, keep = keep,
    till = till}
end
if ran then
  return {0}
end
local reply = {0}
for j = 1, #reject do
  reply[1 + j] = reject[j]
end
for j = 1, #met do
  reply[#reply + 1] = met[j]
end
if #reject > 0 then
  -- Something between us and Redis may have sent the call again without our knowing, as in acquire. What was granted
  -- the first time stays granted, even if there is too little left to grant it again.
  for i = 1, #plan do
    if not replay and plan[i].on.ran() then
      return {0}
    end
  end
  for i = 1, #plan do
    local l = plan[i]
    if l.keep > 0 then
      local ms = l.keep -- a cool-down must not end because the limiter expires
      if l.till > now then
        ms = math.max(ms, l.till - now + l.interval)
      end
      l.on.keep(ms)
      l.on.stay(ms)
    end
  end
  return reply
end

for i = 1, #plan do
  local l = plan[i]
  l.on.take(now, l.old, l.change, l.permits)
  -- The TTL rule, as in acquire.
  if l.keep > 0 then
    l.on.keep(l.keep)
    l.on.stay(l.keep)
  else
    local ttl = math.min(l.on.ttl(), 9007199254740992) -- PEXPIRE would fail on one near 2^63
    if ttl >= 0 then -- 0 in its last millisecond
      l.on.stay(math.max(1, ttl))
    elseif l.typ == '1' and ARGV[4] ~= '0' then
      local idle = math.max(tonumber(ARGV[4]), 2 * l.interval)
      l.on.stay(idle, idle / 2)
    elseif l.typ == '1' then
      l.on.stay()
    end
  end
end
return reply
