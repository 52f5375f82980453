-- SPDX-License-Identifier: Apache-2.0
-- smaller is m with n permits. It has the same id, so that a call that is sent again finds it.
local p = le32(n)
local smaller = sub(m, 1, -5) .. p
if #m == BC0I and sub(m, 5, 8) == sub(m, -4) then
  smaller = sub(m, 1, 4) .. p .. sub(m, 9, 17) .. p
end
