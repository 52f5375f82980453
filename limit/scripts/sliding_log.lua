-- SPDX-License-Identifier: Apache-2.0
-- sliding_log: takes permits when those of the last interval leave room for them.
--
-- Each member has the sum of all permits that were granted since the set began, its own included. The permits
-- in use are then the difference of two members, and the wait is found by binary search; neither adds up the
-- set. The sum begins again at 2^50, and differences are modulo that, since a double is exact up to 2^53.
-- Members that have expired are dropped a few at a time.
--
-- Other limiters with other intervals may use the set. While a grant of one with a longer interval counts, this one counts all grants of
-- that interval, less those that its own rate has brought since the last such grant, or those of its own interval if these are more.
--
-- KEYS[1]   sorted set: one member for what a call was granted, "sum:permits:interval", the sum in 16 digits and the interval in us,
--           and of each longer interval that some grant still counts for, ":" and us of it, "," and us of the last such grant;
--           its score the us of the grant
-- KEYS[2]   string: of the last grant of each process the id, "," and tenths of a second, and of several
--           requests "," and how many of each were granted
-- ARGV[1]   permits, or "permits:count ..." of requests that are decided one after another; a count
--           of 0 takes nothing
-- ARGV[2]   id of the call: ";", 8 characters of the process, 6 digits that grow; one that is a character shorter is not stored
-- ARGV[3]   permits in any interval
-- ARGV[4]   us of the interval
-- ARGV[5]   an instant in us before the call was first sent if it may have run before, 0 if none is known
-- ARGV[6]   now in us; without it, or if it is empty, this server's TIME
-- Returns   {now, "permits in use, us of the newest grant, us at which the oldest expires, us until which a longer interval
--           counts", then of each: how many were granted, and us to wait for one more}
--           {now, state, what it was granted} if the call has run before   {-1, now} if that cannot be told
--           {-2} the state is malformed

local now, since, id = tonumber(ARGV[6]), tonumber(ARGV[5]), ARGV[2]
--#use now
local value = redis.call('GET', KEYS[2]) or ''
--#use ran_before

local permits, interval = tonumber(ARGV[3]), tonumber(ARGV[4])
local newest = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local sum, at, used, expired, size, base, due = 0, now - interval, 0, 0, 0, 0, now
-- What a longer interval counts, which that is, until when, since when this limiter's rate brings permits of it, and all of them.
local held, counts, till, since, longer, rest, its = 0, interval, 0, 0, '', ''
if newest[1] then
  sum, at = tonumber(string.sub(newest[1], 1, 16)), tonumber(newest[2])
  if not (sum and at and sum >= 0 and sum <= 9007199254740992 and sum % 1 == 0) then
    return {-2}
  end
  its, rest = string.match(newest[1], '^%d+:%d+:(%d+)(.*)$')
  if its and (rest ~= '' or tonumber(its) > interval) then
    local list = string.format(':%s,%.0f%s', its, at, rest)
    rest = ''
    for us, last in string.gmatch(list, ':(%d+),(%d+)') do
      us, last = tonumber(us), math.min(now, tonumber(last))
      local text = string.format(':%d,%d', us, last)
      if us > interval and us <= 2251799813685248 and now < last + us then
        counts, till, since, longer = math.max(counts, us), math.max(till, last + us), math.max(since, last), longer .. text
      end
      rest = rest .. text
    end
    rest = string.match(rest, '^:[^:]*(.*)$') or '' -- without that of its own
  end
  -- At the end of its interval a grant no longer counts.
  expired = redis.call('ZCOUNT', KEYS[1], '-inf', string.format('%.0f', now - interval))
  size = redis.call('ZCARD', KEYS[1])
  if expired < size then
    local member = redis.call('ZRANGE', KEYS[1], expired, expired, 'WITHSCORES')
    local oldest = member[1]
    due = math.min(now, tonumber(member[2])) + interval
    local its_sum, its_permits = tonumber(string.sub(oldest, 1, 16)), tonumber(string.match(oldest, '^%d+:(%d+):'))
    base = (its_sum or 0) - (its_permits or 0)
    used = (sum - base) % 1125899906842624
    if not (its_sum and its_permits and used >= 1 and used <= 4294967295 and used % 1 == 0) then
      return {-2}
    end
    if at > now then
      -- Members in the future are from before the clock was put back. They count from now on.
      local before = base
      local ahead = redis.call('ZCOUNT', KEYS[1], '-inf', string.format('%.0f', now))
      if ahead > expired then
        before = tonumber(string.sub(redis.call('ZRANGE', KEYS[1], ahead - 1, ahead - 1)[1], 1, 16)) or sum
      end
      local moved = (sum - before) % 1125899906842624
      if not (moved >= 1 and moved <= used and moved % 1 == 0) then
        return {-2}
      end
      redis.call('ZADD', KEYS[1], now, string.format('%016.0f:%.0f:%s%s', sum, moved, its or interval, rest or ''))
      redis.call('ZREMRANGEBYSCORE', KEYS[1], string.format('(%.0f', now), '+inf')
      redis.call('PEXPIRE', KEYS[1], math.ceil(math.max(interval, till - now) / 1000) + 60000)
      at, size = now, redis.call('ZCARD', KEYS[1])
    end
  end
end

local dropped, ends = expired, 0
if till > 0 then
  ends = math.floor((now - since) / interval)
  dropped = redis.call('ZCOUNT', KEYS[1], '-inf', string.format('%.0f', now - counts))
  local oldest = redis.call('ZRANGE', KEYS[1], dropped, dropped)[1]
  local its_sum, its_permits = string.match(oldest or '', '^(%d+):(%d+):')
  if oldest and not (tonumber(its_sum) and tonumber(its_permits)) then
    return {-2}
  end
  held = oldest and (sum - its_sum + its_permits) % 1125899906842624 - ends * (permits + 0.0) or 0
  local next = math.min(since + (ends + 1) * interval, till)
  due = due > now and math.min(due, next) or next
end
state = string.format('%d %d %d %d', math.min(math.max(used, held), 4294967295), math.floor(at), math.floor(due), till)
if again then
  return {now, state, again}
end

local reply, took, permits_taken, answer, n = {now, state}, 0, 0, '', tonumber(ARGV[1])
local in_use, wait = math.max(used, held)
if not n or in_use + n > permits then
  -- How long it takes until as many permits are free as this call has granted and wants more: until the first member expires whose
  -- expiry makes them so, and until the rate has brought what a longer interval counts. What this call has granted expires last.
  function wait(more)
    local enough, us = used + more - permits, 0
    if enough > used then
      us = interval
    elseif enough > 0 then
      local low, high = expired, size - 1
      while low < high do
        local middle = math.floor((low + high) / 2)
        local there = tonumber(string.sub(redis.call('ZRANGE', KEYS[1], middle, middle)[1], 1, 16)) or sum
        if (there - base) % 1125899906842624 >= enough then
          high = middle
        else
          low = middle + 1
        end
      end
      us = math.floor(math.min(now, tonumber(redis.call('ZRANGE', KEYS[1], low, low, 'WITHSCORES')[2])) + interval - now)
    end
    enough = held + more - permits
    if enough > 0 then
      us = math.max(us, math.floor(math.min(since + (ends + math.ceil(enough / permits)) * (interval + 0.0), till) - now))
    end
    return us
  end
end
if n and in_use + n <= permits then
  took, permits_taken, reply[3], reply[4] = 1, n, 1, 0
elseif n then
  reply[3], reply[4] = 0, wait(n)
else
  local granted = {}
  for n, count in string.gmatch(ARGV[1], '(%d+):(%d+)') do
    count = tonumber(count)
    local k = math.max(0, math.min(count, math.floor((permits - in_use - permits_taken) / n)))
    took, permits_taken, granted[#granted + 1] = took + k, permits_taken + k * n, k
    reply[#reply + 1] = k
    reply[#reply + 1] = in_use + permits_taken + n > permits and wait(permits_taken + n) or 0
  end
  answer = ',' .. table.concat(granted, ' ')
end
if took > 0 then
  sum = sum + permits_taken
  if at < now then
    sum = sum % 1125899906842624 -- members of one instant are in the order of their sums
  end
  redis.call('ZADD', KEYS[1], now, string.format('%016.0f:%.0f:%d%s', sum, permits_taken, interval, longer))
  -- After the new one was added: a set that becomes empty loses its TTL and its sum.
  if dropped > 0 then
    redis.call('ZREMRANGEBYRANK', KEYS[1], 0, math.min(dropped, 512) - 1)
  end
  redis.call('PEXPIRE', KEYS[1], math.ceil(math.max(interval, till - now) / 1000) + 60000)
  --#use remember
  if grants ~= '' then
    redis.call('SET', KEYS[2], grants, 'PX', 60000)
  end
end
return reply
