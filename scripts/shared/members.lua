-- SPDX-License-Identifier: Apache-2.0
--#use stamps

-- is_spent reports whether m is a mark whose time is up: no grant is held for longer than an interval.
local function is_spent(m)
  local since = seen_at(m)
  return since and since + interval <= now
end

-- is_unmarked reports whether m, which lies ahead of the clock, is to become a mark, or one with another instant.
local function is_unmarked(m)
  return #m >= 8 and (seen_at(m) or math.huge) > now and not block_at(m)
end

-- is_void reports whether m is a block whose cool-down is over although the block is not: the cool-down was lifted or
-- the limiter deleted by somebody who could not name this set, or a shorter one came after it. Where it says so by
-- chance, m is what a peer wrote: no block is longer than two times 366 days.
local function is_void(m, score)
  local t, joined = block_at(m)
  return t and score + interval > math.max(now, joined and till or ends)
    and (t == 0 or t <= now + 32 and t <= score + 32 and t >= score - 63244800000)
end
