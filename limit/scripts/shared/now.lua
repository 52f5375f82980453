-- SPDX-License-Identifier: Apache-2.0
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
