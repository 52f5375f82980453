-- SPDX-License-Identifier: Apache-2.0
-- reserve: takes permits of one limiter ahead of their return, for a caller that waits for more than are free, or moves a
-- grant to the present.
--
-- A reservation is a member like that of any grant, so every Redisson takes its permits for permits in use. Each call moves it
-- to the present instant, since its permits are yet to be used: the window counts them from the last call on. A reservation
-- that nobody moves expires after an interval, as every grant does. Without ARGV[8] it holds all that is wanted, as far as
-- that is plainly there, or stays as it is.
--
-- With ARGV[8] the member holds all that is wanted at once, and value falls below 0 by what is lacking. So nobody, whatever it
-- is written in, finds a permit free before value is 0 again, which takes an interval at most, and then the caller has what it
-- wants. One caller at a time does so: KEYS[4] holds those that want to, whoever has waited longest first, each with the
-- instant at which its entry ends unless it is renewed. Only the first may go negative, and nobody comes before it. When these
-- have come back an entry of nobody takes its place for a while, so that others go on. The key expires with the last of its
-- entries.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime, and of this package minGap, coolDown and how far heal has come
-- KEYS[2]   string: permits left, of the type in ARGV[1]
-- KEYS[3]   sorted set: one member a grant, of the type in ARGV[1]
-- KEYS[4]   string: who takes permits ahead of their return, of the type in ARGV[1]
-- ARGV[1]   type that KEYS[2] and KEYS[3] stand for: 0 OVERALL, 1 PER_CLIENT
-- ARGV[2]   permits wanted in all, 0 to give back what is reserved
-- ARGV[3]   the member of the reservation as if it held ARGV[4] permits, in the format to write
-- ARGV[4]   permits that it is known to hold, 0 for none
-- ARGV[5]   words: unsure: it may hold others than ARGV[4] because a call has been lost; mark: a grant ahead of now, which is
--           everybody's, keeps its gap; part: the caller wants permits of other limiters, too
-- ARGV[6]   now in ms, or empty for this server's TIME
-- ARGV[7]   least TTL in ms of PER_CLIENT state when the limiter has none, 0 for no TTL
-- ARGV[8]   the caller in KEYS[4], in letters and digits, or empty to take what is plainly there. May be left out, as
--           may what follows
-- ARGV[9]   for how long it has waited, in ms, which counts unless it has an entry in KEYS[4] already
-- Returns   {0, held, rate, interval} held: permits that are reserved from now on; with ARGV[8] followed by lacking,
--           wait and place: how many of those wanted have yet to come back; ms until they have, or until it is worth
--           while to ask again, 0 if that is for acquire to tell; and the caller's place in KEYS[4], 0 for none
--           {1} not initialised   {2, type} the hash has another type
--           {3, rate} the permits exceed the rate   {4} the hash is malformed

local conf = redis.call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'keepAliveTime', 'minGap', 'coolDown', KEYS[3])
local rate, interval, typ, keep, counted, malformed = conf[1], conf[2], conf[3], conf[4], conf[7], false
--#use limiter
--#use rate
--#use keep_alive
if malformed then
  return {4}
end
local want = tonumber(ARGV[2])
if want > rate then
  return {3, rate}
end
local now = tonumber(ARGV[6])
--#use now
--#use instant
local till = instant(conf[6])

--#use formats
local byte, char, sub, floor = string.byte, string.char, string.sub, math.floor
--#use permits_of
--#use le32
--#use ms48
local long = #ARGV[3] == LC0I
--#use join
--#use replace
--#use stamps
--#use gap
--#use says
-- member returns the member of the reservation with n permits.
local function member(n)
  local m = ARGV[3]
  --#use shrink
  return smaller
end

local stored = redis.call('GET', KEYS[2])
local value = tonumber(stored)
--#use whole
-- What is reserved. A release by others may have made it smaller, or a call have been lost: it is among
-- the newest, and has the id. Nor need we know of a call that was sent again below us: its member is looked for
-- before permits are taken for it a second time, and where too few are left for that.
local mine, held = nil, tonumber(ARGV[4])
if held > 0 and redis.call('ZSCORE', KEYS[3], ARGV[3]) then
  mine = ARGV[3]
elseif held == 0 and want > 0 and redis.call('ZSCORE', KEYS[3], member(want)) then
  mine, held = member(want), want
elseif held > 0 or says(ARGV[5], 'unsure') or not value or value < want then
  held = 0
  local newest = redis.call('ZREVRANGE', KEYS[3], 0, 255)
  for i = 1, #newest do
    local m = newest[i]
    if #m == #ARGV[3] and member(permits_of(m)) == m then -- whatever it holds
      mine, held = m, permits_of(m)
      break
    end
  end
end

local gap, paused = tonumber(conf[5] or 0) or 0, till > now
gap = gap > 0 and gap + 0.0 or 0 -- nan is none, too, as in acquire
if gap > 0 and want > 0 and not paused then
  local clock = string.format('%.0f', now)
  local ahead = redis.call('ZREVRANGEBYSCORE', KEYS[3], '+inf', '(' .. clock, 'WITHSCORES', 'LIMIT', 0, 128)
  local past = redis.call('ZREVRANGEBYSCORE', KEYS[3], clock, '-inf', 'WITHSCORES', 'LIMIT', 0, 128)
  paused = after_gap(ahead, past, gap, interval, says(ARGV[5], 'mark'), mine) > now
end

-- What is lost, or more than the rate, is for acquire to rebuild. So is what is less than the rate while nothing else
-- is in use: no permit that a caller could wait for would come back.
local plain = value and value <= rate
if plain and ARGV[8] and ARGV[8] ~= '' and value + held < rate and redis.call('ZCARD', KEYS[3]) == (mine and 1 or 0) then
  plain = false
end

-- Who takes permits ahead and who waits to, the first of them first: name, end, and the instant since which the caller
-- has waited, 0 once it has been the first. Those who have waited longest come first.
local name, queue, mark, place, me = ARGV[8] or '', {}, redis.call('GET', KEYS[4]) or '', nil, nil
for who, till, from in string.gmatch(mark, '(%w+) (%d+) (%d+)') do
  local e = {who, math.min(tonumber(till), now + 2 * interval), tonumber(from)}
  if e[2] > now and #queue < 32 then
    queue[#queue + 1] = e
    if who == name then
      me, place = e, #queue
    end
  end
end
local ahead = name ~= '' and want > 0 and plain and not paused and gap == 0
if name ~= '' then
  if not ahead and place then
    table.remove(queue, place)
    place = nil
  elseif ahead and not place and #queue < 32 then
    me = {name, 0, now - tonumber(ARGV[9] or 0)}
    place = 1
    while queue[place] and (queue[place][3] < me[3] or queue[place][3] == me[3] and queue[place][1] < name) do
      place = place + 1
    end
    table.insert(queue, place, me)
  end
  if place then
    me[2], me[3] = now + interval, place == 1 and 0 or me[3]
  end
end
ahead = ahead and place == 1

-- How many permits it can hold from now on: none in a cool-down, and none where it would be a grant in
-- the gap behind another's.
local n, back, expired, freed, lacking, spent = 0, held, 0, 0, 0, {}
if want > 0 and plain and not paused then
  local old = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now - interval, 'LIMIT', 0, 64)
  for i = 1, #old do
    if name ~= '' and (not ahead or value + held + freed >= want) then
      break -- the rest is for acquire, which leaves some of it to others
    elseif old[i] ~= mine then
      expired, freed = expired + 1, freed + permits_of(old[i])
    end
  end
  if ahead and value + held + freed < want then
    -- A mark is spent an interval after it was first seen, whatever its score.
    local rest = redis.call('ZRANGEBYSCORE', KEYS[3], string.format('(%.0f', now - interval), '+inf', 'LIMIT', 0, 128)
    for i = 1, #rest do
      local since = seen_at(rest[i])
      if since and since <= now - interval and value + held + freed < want then
        spent[#spent + 1], freed = rest[i], freed + permits_of(rest[i])
      end
    end
  end
  local free = value + held + freed
  if free <= rate then
    n, back = math.max(0, math.min(want, free)), held + freed
    if ahead then
      n, lacking = want, math.max(0, want - free)
    elseif name ~= '' then
      n, lacking = 0, place and want or 0
    elseif value + freed < 0 and #queue > 0 then
      n = math.min(held, want) -- what lacks is another's
    elseif n < want then
      n = math.min(held, n)
    end
  end
end
if name ~= '' then
  if ahead and lacking == 0 and n == want then
    -- Others go on for an interval, in which what is left of the rate comes back once, or for four times as long as
    -- the permits that it has got take to come back, and for once as long if it has to get others of other limiters.
    -- Where little is left, they get those permits, too.
    local pause = math.min(interval, math.ceil(interval * (says(ARGV[5], 'part') and 1.0 or 4.0) * want / rate))
    if 4 * want > 3 * rate then
      pause = interval + math.min(25, math.ceil(interval / 10))
    end
    queue[1] = {'0', now + math.max(1, pause), 0}
  end
  local list, last = {}, now
  for i = 1, #queue do
    local e = queue[i]
    list[i] = string.format('%s %.0f %.0f', e[1], e[2], e[3])
    last = math.max(last, e[2])
  end
  list = table.concat(list, ' ')
  if list ~= '' and list ~= mark then
    redis.call('SET', KEYS[4], list, 'PX', string.format('%.0f', last - now))
  elseif list == '' and mark ~= '' then
    redis.call('UNLINK', KEYS[4])
  end
end
-- wait returns how long it takes until the permits that lack have come back, whoever waits for them, by the oldest
-- members.
local function wait()
  if lacking == 0 then
    return 0
  end
  local need, step = n - value - back, place == 1 and 1 or math.max(1, math.min(100, floor(interval / 20)))
  if need <= 0 then
    return queue[1][1] == '0' and math.max(1, queue[1][2] - now) or step
  end
  local own, at, oldest = member(n), now + step, redis.call('ZRANGE', KEYS[3], 0, 127, 'WITHSCORES')
  for i = 1, #oldest, 2 do
    local m = oldest[i]
    if need > 0 and m ~= own then
      local from = tonumber(oldest[i + 1])
      at = math.max(at, (block_at(m) and from or math.min(from, seen_at(m) or from, now)) + interval)
      need = need - permits_of(m)
    end
  end
  return at - now
end
local function reply()
  if name == '' then
    return {0, n, rate, interval}
  end
  return {0, n, rate, interval, lacking, floor(wait()), place or 0}
end
-- Whoever waits for permits that lack keeps the limiter alive, even if nobody takes any for a while.
if n == 0 and not mine and lacking == 0 then
  return reply()
end

if plain and back ~= n then
  redis.call('INCRBY', KEYS[2], gain(math.min(back - n, rate - value), value))
end
if mine then
  replace(mine)
end
if back > held then
  if expired > 0 then
    redis.call('ZREMRANGEBYRANK', KEYS[3], 0, expired - 1)
  end
  for i = 1, #spent do
    replace(spent[i])
  end
end
if n > 0 then
  redis.call('ZADD', KEYS[3], now, member(n))
end
if n == 0 and lacking == 0 then
  return reply()
end

local ttl, stay, least, idle = 0, keep, 0, ARGV[7]
--#use ttl
return reply()
