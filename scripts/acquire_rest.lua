-- SPDX-License-Identifier: Apache-2.0
-- acquire_rest: takes permits for runs of equal requests at one instant, whatever the state of the limiter.
--
-- It is sent for what acquire does not decide: what a caller knows to be unusual goes here at once, and what acquire
-- has replied to with {6}.
--
-- The answer is that of running the requests one after another at that instant. What a run of equal
-- requests is granted is stored as one member, which every Redisson reads as one larger grant. The
-- work of a call is bounded whatever the set holds: where a request needs more, the answer says so
-- and the caller sends the rest at once.
--
-- The phases are numbered as in docs/design/protocol.md. What a phase hands on is declared above it.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime, and of this package minGap, coolDown, reopenUntil, waiting
-- KEYS[2]   string: permits left, of the type in ARGV[1]
-- KEYS[3]   sorted set: one member a grant, of the type in ARGV[1]
-- ARGV[1]   type that KEYS[2] and KEYS[3] stand for: 0 OVERALL, 1 PER_CLIENT
-- ARGV[2]   permits of one request of the first run, 1 .. 2^32-1
-- ARGV[3]   number of its requests, >= 1
-- ARGV[4]   the member to store when the first run is granted as a whole, in the format to write. Its
--           random part is the request id; with the run's number in one byte it is that of each run
-- ARGV[5]   words: replay this call may have run before under the same id; check that value and the permits in the
--           set add up to the rate; healed: heal has just run, so that what it left is no reason to ask for it again;
--           mark the scores that lie ahead of now, which is everybody's; order: first come, first served: grant no run
--           behind a request that does not fit; dry take nothing, and keep nothing alive: say what would be granted;
--           renew, with dry: keep the keys alive all the same
-- ARGV[6]   now in ms, or empty for this server's TIME; may be left out, as may what follows
-- ARGV[7]   further runs: permits and number of each, as in "3 1 2 40", 255 at most
-- ARGV[8]   least TTL in ms of PER_CLIENT state when the limiter has none, 0 for no TTL
-- ARGV[9]   walk, continued: members already walked and their permits, as in "512 700"; or empty
-- ARGV[10]  of callers that wait beside others, five numbers: the grace in ms, for which permits that fall
--           due are left to others; how many of them may be taken all the same; the tag of this process
--           in its members, 65536 to plant no tripwire; 1 to look who holds the newest grants when nothing is free;
--           how many callers wait, for those who look at the tripwire. May be left out
-- ARGV[11]  permits that are to stay free: no request is granted that would leave fewer. May be left out
-- ARGV[12]  who waits, for those who look on: the queue, its callers, for how many ms the note counts, and the id of a PER_CLIENT
--           client, as in "28d0 40 4000 6b29-1"; or empty. It is noted in the hash unless a tripwire says it. May be left out
-- Returns   {0, now, name, number, ...}, of which those that are 0 are left out:
--           granted: for each run in its order, 0 too: requests that were granted, -1 where its permits exceed the rate
--           wait: ms until the first request that was rejected can be granted
--           available: permits left after the call
--           rate, interval, keepAlive, minGap: the limiter's
--           ttl: 1 when the hash has one
--           again: 1 send the rest at once, with walked and walkedPermits, and wait is a lower bound; 2 heal comes first
--           skew: ms that the newest score is ahead of now
--           other: 1 when a member was met that has the layout of Redisson 3.16.4 .. 3.16.8, or another one where ARGV[4] has that
--           and with ARGV[10]: soon: ms until the permits expire that may be taken then; found, stands: 1 when the
--           tripwire was there, and is there now; mine, theirs, ours: permits that this process, Redisson and other
--           processes of this package hold among the newest 128 grants; blocked: those that a cool-down has not given
--           back; waiting: for each other process whose callers wait, its tag
--           {1} not initialised   {2, type} the hash has another type
--           {3, rate} the permits of every run exceed the rate   {4} the hash is malformed

-- 1. Read the limiter.
local rate, interval, keep, min_gap, cool_down
do
  local conf = redis.call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'keepAliveTime', 'minGap', 'coolDown')
  local typ, malformed = conf[3], false
  rate, interval, keep, min_gap, cool_down = conf[1], conf[2], conf[4], conf[5], conf[6]
  --#use limiter
  --#use rate
  --#use keep_alive
  if malformed then
    return {4}
  end
end
-- Numbers that go to redis.call are written in full up to 2^53 when they are whole.

-- 2. Read the clock.
local now = tonumber(ARGV[6])
do
  --#use now
end

-- 3. Count what is wanted. There are three lists by run: the permits of a request, the number of requests, and how
-- many of these are granted, -1 where their permits exceed the rate. shared says that callers wait who leave room for
-- others.
local permits, count, granted, wanted = {tonumber(ARGV[2])}, {tonumber(ARGV[3])}, {0}, 0
local shared, stay_free = (ARGV[10] or '') ~= '', tonumber(ARGV[11] or 0)
do
  for p, n in string.gmatch(ARGV[7] or '', '(%d+) (%d+)') do
    permits[#permits + 1], count[#count + 1], granted[#granted + 1] = tonumber(p), tonumber(n), 0
  end
  for i = 1, #permits do
    if permits[i] + stay_free > rate then
      count[i], granted[i] = 0, -1
    end
    wanted = wanted + permits[i] * count[i]
  end
  if wanted == 0 then
    return {3, rate}
  end
  wanted = wanted + stay_free
end

--#use formats
local TRIPWIRE = '\16~w~' -- what one begins with
local byte, char, sub, floor = string.byte, string.char, string.sub, math.floor

--#use permits_of

--#use le32

--#use instant
-- How long a cool-down still lasts, when it ends, and when its re-opening ends, which may be later.
local till = instant(cool_down)
local cooling, ends = till - now, 0
if cool_down and cooling <= 0 then
  ends = math.max(till, instant(redis.call('HGET', KEYS[1], 'reopenUntil')))
end

--#use members
--#use gap

-- 4. Reclaim what has expired. The oldest go first, and a bounded number. Expired members that stay are legal:
-- Redisson reclaims lazily too. In a cool-down they become part of it. old holds the members that went and freed their permits.
local stored = redis.call('GET', KEYS[2])
local value = tonumber(stored)
local grace, early, tag, look, callers = 0, 0, 0, '0', 0
local limit = value and value >= wanted and 64 or 512
local old, freed = {}, 0
local long, other = #ARGV[4] == LC0I, 0
do
  local due = now - interval
  if shared then
    grace, early, tag, look, callers = string.match(ARGV[10], '(%d+) (%d+) (%d+) (%d+) (%d+)')
    grace, early, tag, callers = tonumber(grace), tonumber(early), tonumber(tag), math.min(tonumber(callers), 16777215)
    due = due - grace
  end
  if cooling <= 0 then
    old = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', string.format('%.0f', due), 'LIMIT', 0, limit)
  end
  if #old > 0 then
    for i = 1, #old do
      local m = old[i]
      freed = freed + permits_of(m)
      --#use other_layout
    end
    redis.call('ZREMRANGEBYRANK', KEYS[3], 0, #old - 1)
  end
end

-- What the reply tells beside what was granted.
local skew, wait, again, walked, walked_permits = 0, 0, 0, 0, 0
local soon, found, stands, mine, theirs, ours, blocked, waiting
local gap, planted = 0, 0
--#use says
local in_order, take, healed = says(ARGV[5], 'order'), not says(ARGV[5], 'dry'), says(ARGV[5], 'healed')
local ON, HEAL = 1, 2 -- of again
-- Bytes 4..7 of 21 repeat the permits, so that the 8-byte reader of Redisson 3.13.3 .. 3.16.3 finds
-- them where it looks and the later ones find them at the end.
local function member(run, n)
  local p, m = le32(n), ARGV[4]
  if #m == LC0I then
    return sub(m, 1, 15) .. char(run - 1) .. p
  end
  return sub(m, 1, 4) .. p .. char(run - 1) .. sub(m, 10, 17) .. p
end

-- 5. Look who else waits. A tripwire is a member of one permit with score 0, and value is one less for it: no
-- permit is missing. Its nine bytes are the tag of the process whose callers wait, a zero, when it was planted, and how many
-- wait, which members of 20 bytes do not have. wires are the bytes of those that were reclaimed, cut is how many these are.
local wires, cut = nil, 0
do
  if shared then
    soon, found, stands, mine, theirs, ours, blocked, waiting, wires = 0, 0, 0, 0, 0, 0, 0, {}, {}
    for i = 1, math.min(#old, 60) do
      local m = old[i]
      local b = #m == BC0I and sub(m, 1, 4) == TRIPWIRE and sub(m, 9, 17) or #m == LC0I and sub(m, 9, 10) == '~w' and sub(m, 11, 16)
      if not b then
        break
      end
      wires[i], cut = b, i
    end
  end
end

-- 6. Look up an earlier grant. A call under this id that was granted something before is granted no more.
local earlier = false
do
  if says(ARGV[5], 'replay') then
    local missing = {}
    for i = 1, #permits do
      local k = math.min(count[i], floor(4294967295 / permits[i]))
      while k > 0 and not redis.call('ZSCORE', KEYS[3], member(i, permits[i] * k)) do
        k = k - 1
      end
      if k > 0 then
        granted[i], earlier = k, true
      elseif count[i] > 0 then
        local m = member(i, 0)
        missing[sub(m, 1, 4) .. sub(m, 9, -5)] = i
      end
    end
    -- A release since then may have made a member smaller: it is among the newest, and has the id.
    local newest = next(missing) and redis.call('ZREVRANGE', KEYS[3], 0, 255) or {}
    for j = 1, #newest do
      local m = newest[j]
      local i = missing[sub(m, 1, 4) .. sub(m, 9, -5)]
      if i then
        granted[i], earlier = math.min(count[i], math.ceil(permits_of(m) / permits[i])), true
      end
    end
    for i = 1, #permits do
      wanted = wanted - permits[i] * math.max(0, granted[i])
    end
  end
end

-- 7. Look at what is left. A lost value counts for nothing, and what is beyond the rate neither: somebody gave back
-- more than was out, or the rate was lowered. heal settles both. fresh says that nobody has used the limiter yet, excess
-- is what is beyond the rate.
local fresh, lost, excess = false, false, 0
do
  --#use whole
  if value then
    value = value + freed
    excess = math.max(0, value - rate)
  else
    fresh = not stored and redis.call('ZCARD', KEYS[3]) == 0
    value, lost = fresh and rate or 0, not fresh
  end
  value = value - excess
  if (ARGV[9] or '') ~= '' then
    -- A walk is continued: what has been reclaimed since is no longer in front of it.
    walked, walked_permits = string.match(ARGV[9], '(%d+) (%d+)')
    walked = math.max(0, tonumber(walked) - (#old - cut))
    walked_permits = math.max(0, tonumber(walked_permits) - (freed - cut))
  end
end
-- most is how many permits may be granted: beside others, those of which nobody has taken any within the grace, and as many
-- more as the caller is allowed.
local most = grace > 0 and value - math.max(0, (tonumber(stored) or 0) + cut) + early or wanted
-- sick says that the limiter is to be healed; later, that the set is to be added up after this call.
local sick, later = lost or excess > 0, false
local function heals()
  return sick and not healed
end
-- is_off says whether value and the permits in the set do not add up to the rate, or a mark is spent, which heal leaves for after a
-- cool-down. A set that is too large to add up here is added up by heal, after this call.
local function is_off()
  later = redis.call('ZCARD', KEYS[3]) > 512
  local sum, spent, all = value, false, later and {} or redis.call('ZRANGE', KEYS[3], 0, -1)
  for i = 1, #all do
    local m = all[i]
    sum = sum + permits_of(m)
    spent = spent or cooling <= 0 and is_spent(m)
    --#use other_layout
  end
  return spent or not later and sum ~= rate
end

-- A gap is at most an interval, and no less than nothing; nan, which is neither, is none.
gap = tonumber(min_gap or 0) or 0
gap = gap > 0 and math.min(gap, interval) + 0.0 or 0
if cooling > 0 then
  -- 8. Obey the cool-down. What expires before its end is to join it, and whatever has become free.
  do
    wait = cooling
    sick = sick or value > 0 or redis.call('ZCOUNT', KEYS[3], '-inf', string.format('(%.0f', till - interval)) > 0
      or says(ARGV[5], 'check') and is_off()
    again = heals() and HEAL or 0
  end
else
  -- 9. Forget a cool-down that is over.
  do
    if cool_down and ends <= now then
      redis.call('HDEL', KEYS[1], 'coolDown', 'reopenUntil', 'waiting')
    end
  end

  -- 10. Keep the gap. gap_left is how long nothing can be granted for it. Grants ahead of the clock that have no mark yet
  -- are for heal to mark, so that the gap behind them begins now.
  local gap_left = 0
  do
    if gap > 0 then
      local clock = string.format('%.0f', now)
      local ahead = redis.call('ZREVRANGEBYSCORE', KEYS[3], '+inf', '(' .. clock, 'WITHSCORES', 'LIMIT', 0, 128)
      local past = redis.call('ZREVRANGEBYSCORE', KEYS[3], clock, '-inf', 'WITHSCORES', 'LIMIT', 0, 128)
      local over, unmarked = after_gap(ahead, past, gap, interval, says(ARGV[5], 'mark'))
      gap_left, sick = over - now, sick or unmarked
      if gap_left > 0 and #ahead > 0 and not block_at(ahead[1]) then
        skew = tonumber(ahead[2]) - now
      end
    end
  end

  -- 11. Reclaim within the grace. Only as many permits are reclaimed as are granted: the others keep the instant
  -- at which they expired.
  do
    if grace > 0 and early > 0 and value < math.min(wanted, most) and #old < limit and not heals() then
      local part = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now - interval, 'LIMIT', 0, 64)
      local p, due = permits[1], 0
      for i = 1, #part do
        due = due + permits_of(part[i])
      end
      local left = math.min(wanted, most, value + due)
      left = (#permits > 1 and left >= p and left or floor(left / p) * p) - value
      for i = 1, #part do
        if left <= 0 then
          break
        end
        local m, taken = part[i], permits_of(part[i])
        if taken > left then
          local n = taken - left
          --#use shrink
          redis.call('ZADD', KEYS[3], redis.call('ZSCORE', KEYS[3], m), smaller)
          taken = left
        end
        redis.call('ZREM', KEYS[3], m)
        value, left = value + taken, left - taken
      end
    end
  end

  -- 12. Look for what is to be healed. That are marks whose time is up, and what a peer that is fast has put ahead of
  -- the clock; void blocks, which are the oldest members where they are not ahead, since all that was due sooner became
  -- one; and permits that are lost or too many.
  do
    local last = {}
    if not sick and value < wanted and #old == limit then
      again = ON -- there is more to reclaim
    elseif not sick and (value < wanted or says(ARGV[5], 'check')) then
      last = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')
      sick = #last == 0 and value < rate
    end
    if #last > 0 and tonumber(last[2]) > now then
      local ahead = redis.call('ZRANGEBYSCORE', KEYS[3], string.format('(%.0f', now), '+inf', 'WITHSCORES', 'LIMIT', 0, 64)
      ahead[#ahead + 1], ahead[#ahead + 2] = last[1], last[2]
      for i = 1, #ahead, 2 do
        local m, score = ahead[i], tonumber(ahead[i + 1])
        sick = sick or is_void(m, score) or is_spent(m) or says(ARGV[5], 'mark') and is_unmarked(m)
        if not block_at(m) then
          skew = math.max(skew, score - now)
        end
      end
    end
    local oldest = #last > 0 and not sick and redis.call('ZRANGE', KEYS[3], 0, 7, 'WITHSCORES') or {}
    for i = 1, #oldest, 2 do
      sick = sick or is_void(oldest[i], tonumber(oldest[i + 1]))
    end
    sick = sick or #last > 0 and says(ARGV[5], 'check') and is_off()
    again = heals() and HEAL or again
  end

  -- 13. Grant what fits. need is what the first request that is rejected asks for.
  local need
  do
    local spend = (again == HEAL and 0 or math.min(value, most)) - stay_free
    for i = 1, #permits do
      local p, n = permits[i], count[i]
      if not earlier and n > 0 and spend >= p and gap_left <= 0 and not (need and in_order) then
        local g = math.min(n, floor(spend / p), floor(4294967295 / p))
        if gap > 0 then
          g, gap_left = 1, math.min(gap * p, interval)
        end
        if take and redis.call('ZADD', KEYS[3], 'NX', now, member(i, p * g)) == 1 then
          value = value - p * g
        end
        spend = spend - p * g
        granted[i] = g
      end
      if granted[i] >= 0 and granted[i] < n then
        if spend >= p and gap_left <= 0 and take and not (need and in_order) then
          -- One member holds no more, or the replay finds more free than the first call did.
          again = math.max(again, ON)
        end
        need = need or p
      end
    end
  end

  -- 14. Tell the wait. One more request fits when enough permits have come back, so the members are walked until
  -- then, oldest first.
  do
    need = need and need + stay_free -- that many have to be free
    if need and again == 0 and value < need then
      local at, last, budget, page = nil, nil, 512, 8
      local rank, near, soon_at = walked, 0, nil
      while not (at and (soon_at or grace == 0)) and budget > 0 do
        page = math.min(page, budget)
        local part = redis.call('ZRANGE', KEYS[3], rank, rank + page - 1, 'WITHSCORES')
        rank = rank + page
        for i = 1, #part, 2 do
          -- No grant is held for longer than an interval, whatever its score; a block is.
          local m, due = part[i], tonumber(part[i + 1])
          local since = seen_at(m)
          --#use other_layout
          if not block_at(m) then
            due = math.min(due, since or due, now)
          else
            sick = sick or is_void(m, due)
          end
          sick = sick or since and since <= now - interval
          if not at then
            walked = walked + 1
            walked_permits = walked_permits + permits_of(m)
            last = math.max(last or 0, due + interval)
            if value + walked_permits >= need then
              at = last
            end
          end
          if grace == 0 and at then
            break
          elseif grace > 0 and not soon_at and due + interval > now then
            near = near + permits_of(m)
            if value + near >= need then
              soon_at = math.max(due + interval, at or 0)
            end
          end
        end
        budget = budget - page
        if #part < page * 2 then
          break
        end
        page = page * 8
      end
      if not at and budget == 0 then
        again = ON -- the walk is not complete
      elseif not at then
        sick = true -- the whole set and what is left do not make up one request: permits were lost
      end
      again = heals() and HEAL or again
      wait = math.max(1, (at or last or now + 1) + grace - now)
      soon = math.max(0, (soon_at or now + wait) - now)
    elseif need and again == 0 and most < wanted then
      wait, soon = math.max(1, math.min(grace, 100)), 1
    end
    if need and again == 0 then
      wait, soon = math.max(wait, gap_left), math.max(soon or 0, gap_left)
    end
  end

  -- 15. Look who holds the newest grants. This is at a moment when nothing is free. A mark is Redisson's, whatever
  -- lies in a block nobody's.
  do
    if shared and look == '1' and need and soon > 0 then
      local newest = redis.call('ZREVRANGEBYSCORE', KEYS[3], '+inf', '(' .. string.format('%.0f', now - interval), 'LIMIT', 0, 128)
      for i = 1, #newest do
        local m, t = newest[i], nil
        if #m == BC0I and sub(m, 5, 8) == sub(m, -4) then
          t = byte(m, 2) * 256 + byte(m, 3)
        elseif #m == LC0I and #ARGV[4] == LC0I and byte(m, 9) * 256 == tag then
          t = tag
        end
        if block_at(m) then
          blocked = blocked + permits_of(m)
        elseif not t or seen_at(m) then
          theirs = theirs + permits_of(m)
        elseif t == tag then
          mine = mine + permits_of(m)
        elseif byte(m, 2) ~= 126 then
          ours = ours + permits_of(m)
        end
      end
    end
  end

  -- 16. Plant the tripwires. Those of the others stay, as long as they are not from callers that have long been
  -- served. Ours is planted anew while somebody waits.
  do
    if shared and ARGV[1] == '0' and now - interval > 0 then
      local function plant(b)
        local m = TRIPWIRE .. '\1\0\0\0' .. sub(b .. '\0\0\0', 1, 9) .. '\1\0\0\0'
        if #ARGV[4] == LC0I then
          m = sub(ARGV[4], 1, 8) .. '~w' .. sub(b, 1, 6) .. '\1\0\0\0'
        end
        if redis.call('ZADD', KEYS[3], 'NX', 0, m) == 1 then
          planted = planted + 1
        end
      end
      local function three(n)
        return char(floor(n / 65536), floor(n / 256) % 256, n % 256)
      end
      for i = 1, #granted do
        callers = callers - math.max(0, granted[i])
      end
      local time, number = floor(now) % 16777216, three(math.max(0, callers))
      for i = 1, cut do
        local a, b, _, d, e, f = byte(wires[i], 1, 6)
        local t, since = a * 256 + b, (now - (d * 65536 + e * 256 + f)) % 16777216
        if t == tag then
          found = 1
          local same = since < 1000 or #wires[i] < 9 or sub(wires[i], 7) == number
          if need and since <= math.min(interval, 4194304) and same then
            plant(wires[i]) -- unchanged: an audit may have counted it
          end
        elseif since <= math.min(3 * interval + 1000, 8388608) then
          waiting[#waiting + 1] = t
          plant(wires[i])
        end
      end
      if need and tag < 65536 and planted == #waiting then
        plant(char(floor(tag / 256), tag % 256, 0) .. three(time) .. number)
      end
      if need then
        stands = 1
      end
      value = value - planted
    end
  end
end

-- 17. Note who waits where no tripwire of the queue says so. The field has one note a queue, the newest last, and those that count.
-- No call fails because that cannot be written, for instance when the memory is full.
do
  local queue, n, counts, client = string.match(ARGV[12] or '', '^(%S+) (%d+) (%d+) ?(%S*)$')
  if queue and (stands ~= 1 or tag == 65536) then
    local notes, before = {}, redis.call('HGET', KEYS[1], 'waiting') or ''
    for note, of, at, valid in string.gmatch(before, '((%S+) %d+ (%d+) (%d+) [^; ]*;)') do
      if tonumber(at) + tonumber(valid) > now and of ~= queue then
        notes[#notes + 1] = note
      end
    end
    n = tonumber(n)
    for i = 1, #granted do
      n = n - math.max(0, granted[i])
    end
    if n > 0 then
      notes[#notes + 1] = string.format('%s %.0f %.0f %s %s;', queue, n, now, counts, client)
    end
    if #notes > 0 then
      redis.pcall('HSET', KEYS[1], 'waiting', table.concat(notes, '', math.max(1, #notes - 63)))
    elseif before ~= '' then
      redis.pcall('HDEL', KEYS[1], 'waiting')
    end
  end
end

-- 18. Write what is left.
do
  if fresh then
    redis.call('SET', KEYS[2], value)
  elseif not lost and value + excess ~= tonumber(stored) then
    redis.call('INCRBY', KEYS[2], value + excess - stored)
  end
  again = later and again == 0 and HEAL or again
end

-- 19. Keep the keys alive. A cool-down must not end because nobody dares to call, and a call that takes nothing
-- keeps nothing alive unless it is told to. ttl is that of the hash, 0 for none.
local ttl
do
  local least = cooling > 0 and cooling + interval or 0
  local stay, idle = (take or says(ARGV[5], 'renew')) and keep or 0, ARGV[8] or '0'
  --#use ttl
end

-- 20. Reply.
do
  local reply = {0, now}
  --#use tell
  for i = 1, #granted do
    reply[2 * i + 1], reply[2 * i + 2] = 'granted', granted[i]
  end
  tell('wait', floor(wait))
  tell('available', math.max(0, value + planted))
  tell('rate', rate)
  tell('interval', interval)
  tell('keepAlive', keep)
  tell('minGap', floor(gap))
  tell('ttl', ttl > 0 and 1 or 0)
  tell('again', again)
  tell('walked', walked)
  tell('walkedPermits', walked_permits)
  tell('skew', floor(skew))
  tell('other', other)
  if shared then
    tell('soon', floor(soon))
    tell('found', found)
    tell('stands', stands)
    tell('mine', mine)
    tell('theirs', theirs)
    tell('ours', ours)
    tell('blocked', blocked)
    for i = 1, #waiting do
      tell('waiting', waiting[i])
    end
  end
  return reply
end
