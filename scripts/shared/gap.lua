-- SPDX-License-Identifier: Apache-2.0
-- after_gap returns the instant at which the gap behind the newest grant is over, 0 without a grant, and whether there are
-- grants to be marked. Each permit takes a gap, and all of them an interval at most. Blocks are no grants, nor are mine and what holds no
-- permits. Of a grant that was ahead of the clock, since a peer is fast or the clock was put back, nobody knows the instant: it counts as
-- one of when it was first seen, which a mark says; and if it has none and is to get one, as one of now. Otherwise it is none.
-- ahead and past are up to 128 members and scores each, ahead of the clock and up to it, newest first.
local function after_gap(ahead, past, gap, interval, marks, mine)
  local newest, over, unmarked = -1, 0, false
  local function look(m, at)
    if at > newest then
      newest, over = at, at + math.min(gap * permits_of(m), interval)
    end
  end
  for i = 1, #ahead, 2 do
    local m = ahead[i]
    if permits_of(m) > 0 and m ~= mine and not block_at(m) then
      local since = seen_at(m) or math.huge
      if since <= now then
        look(m, since)
      elseif marks then
        look(m, now)
        unmarked = true
      end
    end
  end
  for i = 1, #past, 2 do
    local m, at = past[i], tonumber(past[i + 1])
    if permits_of(m) > 0 and m ~= mine and not block_at(m) then
      local since = seen_at(m)
      look(m, math.min(since or at, at))
      if not since then
        break
      end
    end
  end
  return over, unmarked
end
