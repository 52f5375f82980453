-- SPDX-License-Identifier: Apache-2.0
-- tell adds a name and a number to reply, unless that is 0.
local function tell(name, n)
  if n ~= 0 then
    reply[#reply + 1] = name
    reply[#reply + 1] = n
  end
end
