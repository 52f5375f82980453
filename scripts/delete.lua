-- SPDX-License-Identifier: Apache-2.0
-- delete: removes the limiter: its rate, the permits in use of all, and those of the calling client.
--
-- A cool-down goes with the hash: the blocks in the sets of other PER_CLIENT clients, which cannot be named,
-- are lifted by the next acquire that meets them.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime
-- KEYS[2]   string: permits left, OVERALL
-- KEYS[3]   sorted set: one member a grant, OVERALL
-- KEYS[4]   string: permits left, of the calling client
-- KEYS[5]   sorted set: one member a grant, of the calling client
-- KEYS[6]   string: who takes permits ahead of their return, OVERALL
-- KEYS[7]   string: the same, of the calling client
-- Returns   1 at least one key existed, 0 none did

if redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]) == 0 then
  return 0
end
-- What has the names of the other keys may be somebody else's, which does not look like ours.
local function is_ours(text)
  return type(text) == 'string' and string.find(text, '^%w+ %d+ %d+')
end
if is_ours(redis.pcall('GET', KEYS[6])) then
  redis.call('UNLINK', KEYS[6])
end
if is_ours(redis.pcall('GET', KEYS[7])) then
  redis.call('UNLINK', KEYS[7])
end
return 1
