-- SPDX-License-Identifier: Apache-2.0
if #m == BC0I and sub(m, 1, 4) == '\16~t~' then
  local a, b, c, d, e, f = byte(m, 9, 14)
  return ((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f
end
