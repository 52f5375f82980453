-- SPDX-License-Identifier: Apache-2.0
-- A mark is a member that was ahead of the clock when it was first seen, with the instant of that. seen_at returns the
-- instant, nil for other members.
local function seen_at(m)
  --#use seen
end

-- A block is what a cool-down put there. block_at returns the instant of the grants whose place it took, 0 for permits
-- that were free, and whether it joined the cool-down later on; nil for other members.
local function block_at(m)
  --#use is_block
  if at then
    --#use block_instant
    return t < 4294967296 and 0 or t, a >= 128
  end
end
