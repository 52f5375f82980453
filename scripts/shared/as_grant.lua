-- SPDX-License-Identifier: Apache-2.0
-- as_grant returns the member that a block becomes when its permits are those of a grant again.
local function as_grant(m)
  return #m == BC0I and '\16~l~' .. sub(m, 5) or sub(m, 1, 8) .. '~l' .. sub(m, 11)
end
