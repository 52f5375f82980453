-- SPDX-License-Identifier: Apache-2.0
local by, mark, owed = string.match(ARGV[1], '^=(%-?%d+) (%d+) (%d+)$')
by = by * cost
if by < 0 then
  -- No more comes back than has not come in since.
  by = -math.max(0, math.min(-by, owed - math.max(0, now - mark) * flow))
end
