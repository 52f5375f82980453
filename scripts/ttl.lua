-- SPDX-License-Identifier: Apache-2.0
-- ttl: how long the limiter still lives.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime
-- Returns   ms, -1 it does not expire, -2 it does not exist

return redis.call('PTTL', KEYS[1])
