-- SPDX-License-Identifier: Apache-2.0
-- rate: the fields that make up the limiter's rate. Others may have written any number to the hash.
--
-- KEYS[1]   hash: rate, interval, type, keepAliveTime, minGap
-- Returns   {rate, interval, type, keepAliveTime, minGap} as they are, nil for each that is absent

return redis.call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'keepAliveTime', 'minGap')
