-- SPDX-License-Identifier: Apache-2.0
local at = #m == BC0I and sub(m, 1, 4) == BLOCK and sub(m, 5, 8) == sub(m, -4) and 9
  or #m == LC0I and sub(m, 9, 10) == '~c' and 11
