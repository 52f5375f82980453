-- SPDX-License-Identifier: Apache-2.0
-- fleet/parameters: says which parameters are in force, and sets them.
--
-- KEYS[1]   string: the algorithm and its parameters as JSON, for all keys of a limiter
-- ARGV[1]   those to set; empty to set none
-- ARGV[2]   those that are there if these may be set; empty for none
-- ARGV[3]   ms after which they are forgotten, if nobody looks
-- Returns   those that are there now; empty for none

local is = redis.call('GET', KEYS[1]) or ''
if ARGV[1] ~= '' and is == ARGV[2] then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
  return ARGV[1]
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return is
