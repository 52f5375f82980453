-- SPDX-License-Identifier: Apache-2.0
-- exists: whether the limiter has a rate.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime
-- Returns   1 it has one, 0 it has none

return redis.call('EXISTS', KEYS[1])
