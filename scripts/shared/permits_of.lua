-- SPDX-License-Identifier: Apache-2.0
-- In every format the permits are the last four bytes, little endian. Shorter members than any format has
-- are nobody's grants and count for nothing.
local function permits_of(m)
  if #m < 8 then
    return 0
  end
  local a, b, c, d = byte(m, -4, -1)
  return a + b * 256 + c * 65536 + d * 16777216
end
