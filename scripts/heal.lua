-- SPDX-License-Identifier: Apache-2.0
-- heal: has value and the permits in the set add up to the rate, and no mark or block in the set that has no effect any more; a
-- bounded part a call. Grants that have expired stay, unless it is told to reclaim them: under a longer interval, which
-- another client may set, they would count once more.
--
-- In a cool-down what expires before its end joins it. Otherwise members that lie ahead of the clock are marked, the
-- marks whose time is up are spent, and void blocks are lifted, from the newest member to the clock and among the oldest.
-- Where that has done something to a set that is too large to add up at once, it is enough, unless it is told to check.
--
-- Then the permits in the set are added up. The members counted so far are one unbroken range of ranks, named by its
-- first and last member; a call extends it downwards to the oldest member and then upwards to the newest. The hash has it
-- between two calls, so that whatever puts a member in another's place, or takes one out of the middle, can have the sum
-- know: see replace. What is reclaimed goes from below, and a grant comes above, or shows in the size of the range: then
-- the caller starts over. Tripwires, which come and go below all others, are counted when the range has come down to them
-- and up to the newest. At that instant permits are missing exactly when value + used < rate, and too many if it is more.
--
-- Keys that have a TTL live for as long as the permits in use, which are those of another client if that has a longer interval
-- by now.
--
-- It may run twice, and several callers may take turns: they go on with the same sum.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime, and of this package coolDown, reopenUntil, keptUntil, and how far this has come
-- KEYS[2]   string: permits left, of the type in ARGV[1]
-- KEYS[3]   sorted set: one member a grant, of the type in ARGV[1]
-- ARGV[1]   type that KEYS[2] and KEYS[3] stand for: 0 OVERALL, 1 PER_CLIENT
-- ARGV[2]   words: mark the scores that lie ahead of now, which is everybody's; long: write members of 20 bytes; check:
--           add up whatever there is to do before; leave: what is too much stays so; reclaim: what has expired
--           goes, and tripwires; a number: the rate that the state is known to have been of. Under another one, without a number, and
--           until keptUntil, what is too much comes off value
-- ARGV[3]   now in ms, or empty for this server's TIME
-- ARGV[4]   members to read in this call, about
-- ARGV[5]   members changed so far, as the call before has replied; left out to start, as is what follows
-- ARGV[6]   members ahead of the clock that have been looked at, from the newest on
-- ARGV[7]   1 when it has begun to add up
-- Returns   {0, name, number, ...}, of which those that are 0 are left out: what this call has healed:
--           marked: permits of grants that were marked   restored: the rate, when value was lost
--           lost: permits that were neither left nor in use   surplus: those beyond the rate
--           and then done, or next and the last three arguments of the next call
--           {1} not initialised   {2, type} the hash has another type   {4} the hash is malformed
--           {5} the range is not what was added up any more, start over

local conf = redis.call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'coolDown', 'reopenUntil', KEYS[3], 'keptUntil')
local rate, interval, typ, counted, malformed = conf[1], conf[2], conf[3], conf[6], false
--#use limiter
--#use rate
if malformed then
  return {4}
end
local now = tonumber(ARGV[3])
--#use now
--#use instant
local till = instant(conf[4])
local ends = conf[4] and math.max(till, instant(conf[5])) or 0
local cooling = till > now

-- A TTL of the hash goes for the others, too, as in acquire.
local stay, ttl = math.max(now, ends) - now + interval, redis.call('PTTL', KEYS[1])
if ttl >= 0 then -- 0 in its last millisecond
  stay = math.min(stay, math.max(1, ttl))
end
stay = math.min(stay, 9007199254740992) -- PEXPIRE would fail on one near 2^63
local function outlive(ttl) return ttl >= 0 and ttl < stay end
if outlive(redis.call('PTTL', KEYS[2])) then
  redis.call('PEXPIRE', KEYS[2], string.format('%.0f', stay))
end
if outlive(redis.call('PTTL', KEYS[3])) then
  redis.call('PEXPIRE', KEYS[3], string.format('%.0f', stay))
end

--#use formats
local byte, char, sub, floor = string.byte, string.char, string.sub, math.floor
--#use permits_of
--#use le32
--#use ms48
--#use members
--#use replace

--#use says
local long, reclaims = says(ARGV[2], 'long'), says(ARGV[2], 'reclaim')
--#use join
--#use as_grant
--#use join_early
local budget = tonumber(ARGV[4])
local tended, ahead, begun = tonumber(ARGV[5] or 0), tonumber(ARGV[6] or 0), ARGV[7] == '1'
local members, permits, oldest, newest = 0, 0, nil, nil -- the range that is added up
local stored = redis.call('GET', KEYS[2])
local value = tonumber(stored)
--#use whole
local marked, freed = 0, 0 -- freed are permits of members that went

-- save writes value, to which n comes. Without a value there is nothing to add to: it is rebuilt at the end.
local function save(n)
  if value and n ~= 0 then
    redis.call('INCRBY', KEYS[2], string.format('%.0f', n))
  end
end
local restored, lost, surplus = 0, 0, 0
local reply = {0}
--#use tell
local function finish(...)
  tell('marked', marked)
  tell('restored', restored)
  tell('lost', lost)
  tell('surplus', surplus)
  for _, x in ipairs({...}) do
    reply[#reply + 1] = x
  end
  return reply
end
local function done()
  return finish('done')
end
local function go_on()
  save(freed)
  if members > 0 then
    redis.call('HSET', KEYS[1], KEYS[3], string.format('%d %.0f %d ', members, permits, #oldest) .. oldest .. newest)
  end
  return finish('next', tended, ahead, members > 0 and 1 or 0)
end

-- mark replaces a member that lies ahead of the clock, which is a peer's that is fast, by a mark with the instant at which
-- it was first seen here. It keeps its score: moving it back would hand a fast Java peer a second burst. The place in
-- this call and two random bytes keep marks of one instant apart. Where they are the same all the same, another place
-- does.
local function mark(m, score, place)
  local p = sub(m, -4)
  for k = 0, 3 do
    local to = '\16~t~' .. p .. ms48(now) .. char((place + 89 * k) % 256) .. (#m == 8 and sub(m, 1, 2) or sub(m, -6, -5)) .. p
    if not redis.call('ZSCORE', KEYS[3], to) then
      replace(m, score, to)
      marked = marked + (seen_at(m) and 0 or permits_of(m))
      return true
    end
  end
  return false
end

-- lift turns the permits of a void block into what they were: grants of their own instant, or free.
local function lift(m)
  local t = math.min(block_at(m), now) -- equal blocks of 20 bytes are kept apart by their instant
  if t <= now - interval then
    freed = freed + permits_of(m)
  elseif redis.call('ZADD', KEYS[3], 'NX', t, as_grant(m)) == 0 then
    return false
  end
  replace(m)
  return true
end

-- tend does what is due for the members of a page, and returns for how many it has done it, 192 at most.
local function tend(page)
  local n = 0
  for i = 1, #page, 2 do
    local m, score, done = page[i], tonumber(page[i + 1]), false
    if score <= now and not reclaims and byte(m, 2) ~= 126 and byte(m, 9) ~= 126 then
      done = false -- neither a mark nor a block
    elseif is_spent(m) or reclaims and score <= now - interval then
      replace(m)
      freed, done = freed + permits_of(m), true
    elseif is_void(m, score) then
      done = lift(m)
    elseif score > now and says(ARGV[2], 'mark') and is_unmarked(m) then
      done = mark(m, page[i + 1], (i - 1) / 2)
    end
    n = done and n + 1 or n
    if n == 192 then
      break
    end
  end
  tended = tended + n
  return n
end

if cooling then
  if join_early() == 256 then
    return go_on()
  end
elseif not begun then
  while true do
    local page = redis.call('ZREVRANGE', KEYS[3], ahead, ahead + 255, 'WITHSCORES')
    while #page > 0 and tonumber(page[#page]) <= now do
      page[#page], page[#page - 1] = nil, nil
    end
    if #page == 0 then
      break
    end
    local n = tend(page)
    budget, ahead = budget - 256, ahead + (n == 0 and floor(#page / 2) or 0)
    if n == 192 or budget <= 0 then
      return go_on()
    end
  end
  -- Void blocks that are not ahead are the oldest members, since all that was due sooner became one. Marks are spent
  -- there that have been passed by the clock.
  if tend(redis.call('ZRANGE', KEYS[3], 0, 511, 'WITHSCORES')) == 192 then
    return go_on()
  end
end

-- trim takes up to n permits out of a page of the oldest members, and returns how many it has taken.
local function trim(n)
  local page, over = redis.call('ZRANGE', KEYS[3], 0, 1023, 'WITHSCORES'), n
  for i = 1, #page, 2 do
    local m = page[i]
    if over > 0 then
      local n = permits_of(m) - math.min(permits_of(m), over)
      over = over - permits_of(m) + n
      if n > 0 then
        --#use shrink
        redis.call('ZADD', KEYS[3], page[i + 1], smaller)
      end
      redis.call('ZREM', KEYS[3], m)
    end
  end
  return n - over
end

-- Add up the set. What is below the range is tripwires in the end.
local card = redis.call('ZCARD', KEYS[3])
if not begun and tended > 0 and card > budget and not says(ARGV[2], 'check') and value and value + freed <= rate then
  save(freed)
  return done()
end
local wires = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', '0', 'LIMIT', 0, 64)
local lo, hi = card, card - 1
local size, sum, length, from = string.match(counted or '', '^(%d+) (%d+) (%d+) ()')
if from then
  members, permits = tonumber(size), tonumber(sum)
  oldest, newest = sub(counted, from, from + length - 1), sub(counted, from + length)
  lo, hi = redis.call('ZRANK', KEYS[3], oldest), redis.call('ZRANK', KEYS[3], newest)
end
if begun and not from or not (lo and hi and hi - lo + 1 == members) then
  redis.call('HDEL', KEYS[1], KEYS[3])
  if begun then
    return {5}
  end
  lo, hi, members, permits, oldest, newest = card, card - 1, 0, 0, nil, nil
end
-- add counts a page, unless something had to be done for it.
local function add(page)
  if not cooling and tend(page) > 0 then
    return false
  end
  for i = 1, #page, 2 do
    permits = permits + permits_of(page[i])
  end
  members, budget = members + floor(#page / 2), budget - floor(#page / 2)
  return true
end
if lo > #wires then
  local from = math.max(#wires, lo - budget)
  local page = redis.call('ZRANGE', KEYS[3], from, lo - 1, 'WITHSCORES')
  if not add(page) then
    return go_on()
  end
  lo, oldest, newest = from, page[1], newest or page[#page - 1]
end
if budget > 0 and hi < card - 1 then
  local page = redis.call('ZRANGE', KEYS[3], hi + 1, hi + budget, 'WITHSCORES')
  if not add(page) then
    return go_on()
  end
  hi, newest = hi + #page / 2, page[#page - 1]
end
if lo > #wires or hi < card - 1 then
  return go_on()
end
if counted then
  redis.call('HDEL', KEYS[1], KEYS[3])
end
for i = 1, #wires do
  permits = permits + permits_of(wires[i])
end

-- Settle. Of a value that was lost, or is beyond the rate, nothing is believed. Otherwise what is too much goes from the
-- oldest members, so that a release by Java keeps what it gave, as far as those of a page stand for it, and the rest comes
-- off value, below 0 if need be: then the window has no room until that has expired. Where grants of another rate may be in
-- use no member goes: a higher one would find less in use than there is, and a reservation would have room that is none. A
-- caller that does not know which of them it is leaves both.
if not stored and card == 0 then
  return done() -- nobody has used it yet
end
local left = rate - permits
if value then
  local sum = value + freed + permits
  lost, surplus = math.max(0, rate - sum), math.max(0, sum - rate)
  if surplus > 0 and value + freed <= rate and not cooling then
    if says(ARGV[2], 'leave') then
      save(freed)
      surplus = 0
      return done()
    elseif tonumber(string.match(ARGV[2], '%d+') or 0) == rate and instant(conf[7]) <= now then
      left = left + trim(surplus)
    end
  end
else
  restored = rate
end
left = gain(left, 0)
if value then
  save(left - value)
else
  local has = redis.call('PTTL', KEYS[3])
  if has == -2 then -- the set is gone: the TTL of the value that was none, or of the hash
    has = math.max(redis.call('PTTL', KEYS[2]), ttl)
  end
  redis.call('SET', KEYS[2], string.format('%.0f', left))
  if has >= 0 then
    redis.call('PEXPIRE', KEYS[2], math.max(1, math.min(has, 9007199254740992))) -- it would fail on one near 2^63
  end
end
return done()
