-- SPDX-License-Identifier: Apache-2.0
-- Redisson gives keepAliveTime to all three keys with each call; without it the TTL of the hash goes for the
-- others too. Those of a client that never comes back must not stay forever.
if stay > 0 then
  stay = math.max(stay, least)
  redis.call('PEXPIRE', KEYS[1], stay)
  redis.call('PEXPIRE', KEYS[2], stay)
  redis.call('PEXPIRE', KEYS[3], stay)
  ttl = stay
else
  ttl = redis.call('PTTL', KEYS[1])
  if ttl >= 0 then -- 0 in its last millisecond
    ttl = math.max(1, math.min(ttl, 9007199254740992)) -- PEXPIRE would fail on one near 2^63
    redis.call('PEXPIRE', KEYS[2], ttl)
    redis.call('PEXPIRE', KEYS[3], ttl)
  elseif ARGV[1] == '1' and idle ~= '0' then
    idle = math.max(tonumber(idle), 2 * interval, least)
    if redis.call('PTTL', KEYS[2]) <= idle / 2 or redis.call('PTTL', KEYS[3]) <= idle / 2 then
      redis.call('PEXPIRE', KEYS[2], idle)
      redis.call('PEXPIRE', KEYS[3], idle)
    end
  elseif ARGV[1] == '1' then
    -- Another client has removed the TTL that the hash had, and could not name these keys.
    redis.call('PERSIST', KEYS[2])
    redis.call('PERSIST', KEYS[3])
  end
end
