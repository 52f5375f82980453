-- SPDX-License-Identifier: Apache-2.0
local function le32(n)
  return char(n % 256, floor(n / 256) % 256, floor(n / 65536) % 256, floor(n / 16777216) % 256)
end
