-- SPDX-License-Identifier: Apache-2.0
local function ms48(t)
  return char(floor(t / 1099511627776) % 256, floor(t / 4294967296) % 256, floor(t / 16777216) % 256,
    floor(t / 65536) % 256, floor(t / 256) % 256, floor(t % 256))
end
