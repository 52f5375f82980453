-- SPDX-License-Identifier: Apache-2.0
-- other becomes 1 when the member m has one of Redisson's layouts, and either that of 3.16.4 .. 3.16.8, which is read by these
-- alone, or our own, ARGV[4], is it and m is not. long says that ours is.
if (#m == 20) ~= long and (long and (#m == 8 or #m == 13 and byte(m) == 8 or #m == 21 and byte(m) == 16)
  or not long and string.sub(m, 1, 8) == '\8\0\0\0\0\0\0\0') then
  other = 1
end
