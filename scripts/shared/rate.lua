-- SPDX-License-Identifier: Apache-2.0
rate, interval = tonumber(rate), tonumber(interval)
malformed = not rate or rate < 1 or rate % 1 ~= 0 or rate > 9007199254740992
  or not interval or interval < 1 or interval % 1 ~= 0 or interval > 9007199254740992
if math.type and not malformed then -- Lua 5.4 has floats of its own, and 1e3 is one
  rate, interval = math.floor(rate), math.floor(interval)
end
