-- SPDX-License-Identifier: Apache-2.0
-- A value that is no whole number as INCRBY takes it, or that Lua would round, counts as lost.
if value and stored ~= '0' and not (value >= -9007199254740992 and value <= 9007199254740992
  and stored ~= '-0' and string.format('%.0f', value) == stored) then
  value = nil
end
