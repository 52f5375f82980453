-- SPDX-License-Identifier: Apache-2.0
-- instant returns the instant in ms that a field of the hash holds: 0 for none, for what is no number and for one
-- before 1970, and 2^53 for what is later. A fraction is rounded up, since PEXPIRE takes whole numbers only.
local function instant(s)
  local n = tonumber(s or 0) or 0
  return n > 0 and math.ceil(math.min(n, 9007199254740992)) or 0
end
