-- SPDX-License-Identifier: Apache-2.0
-- The lengths of the members that this package writes, and what a block of the first length begins with.
local BC0I, LC0I, BLOCK = 21, 20, '\16~c~'
