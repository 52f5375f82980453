-- SPDX-License-Identifier: Apache-2.0
-- PEXPIRE takes whole numbers only, and would fail when the permits have been spent.
keep = tonumber(keep or 0) or 0
malformed = malformed or keep > 0 and (keep % 1 ~= 0 or keep > 9007199254740992)
if math.type and not malformed then
  keep = math.floor(keep)
end
