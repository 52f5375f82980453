-- SPDX-License-Identifier: Apache-2.0
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
