-- SPDX-License-Identifier: Apache-2.0
if not (rate and interval and typ) then
  return {1}
end
if typ ~= ARGV[1] then
  return {2, typ == '0' and 0 or typ == '1' and 1 or -1}
end
