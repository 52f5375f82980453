package ratelimiter

import (
	"context"
	"crypto/rand"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/wire"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// likeRedisson is an acquire with the effects of Redisson's, as docs/design/protocol.md has them: reclaim what has
// expired, all of it; take the permits at the caller's own clock, or return when to ask again. Its members
// are of 21 bytes, of which the test draws those that are random.
//
// KEYS: hash, value, set. ARGV: permits, now, 17 bytes.
var likeRedisson = redis.NewScript(`
local conf = redis.call('HMGET', KEYS[1], 'rate', 'interval')
local now, interval, n = tonumber(ARGV[2]), tonumber(conf[2]), tonumber(ARGV[1])
local left = tonumber(redis.call('GET', KEYS[2]) or conf[1])
local old = redis.call('ZRANGEBYSCORE', KEYS[3], 0, now - interval)
for _, m in ipairs(old) do
  local a, b, c, d = string.byte(m, -4, -1)
  left = left + a + b * 256 + c * 65536 + d * 16777216
  redis.call('ZREM', KEYS[3], m)
end
local wait = 0
if left < n then
  wait = 3 + interval - (now - redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2])
else
  redis.call('ZADD', KEYS[3], now, ARGV[3] .. string.char(n, 0, 0, 0))
  left = left - n
end
redis.call('SET', KEYS[2], left)
return wait`)

// A jvm asks as Redisson does.
type jvm struct {
	w   *world
	rdb *redis.Client
}

func (j *jvm) ask(permits int64) (wait time.Duration) {
	random := make([]byte, 17)
	_, _ = rand.Read(random)
	random[0] = 16
	n, err := likeRedisson.Run(j.w.ctx, j.rdb, keysOf(j.w.l, Overall), permits, time.Now().UnixMilli(), random).Int64()
	if err != nil {
		j.w.t.Error(err)
	}
	return time.Duration(n) * time.Millisecond
}

// To whoever finds it, a tripwire is a grant that has expired: no permit is lost or gained, and a caller of
// Redisson that is rejected removes it.
func TestTripwireIsNobodysPermit(t *testing.T) {
	for _, format := range []wire.Format{wire.FormatBc0I, wire.FormatLc0I} {
		inWorld(t, overall(3, 10*time.Second), func(t *testing.T, w *world) {
			w.granted(3)
			ctx, cancel := context.WithTimeout(w.ctx, 4500*time.Millisecond)
			defer cancel()
			java := &jvm{w: w, rdb: w.rdb}
			var wg sync.WaitGroup
			wg.Go(func() { _ = w.l.Acquire(ctx, 1) })
			w.at(1500 * time.Millisecond)
			members := w.rdb.ZRangeWithScores(w.ctx, w.permitsKey(), 0, 0).Val()
			require.Zero(t, members[0].Score)
			m, err := wire.ParseMember([]byte(members[0].Member.(string)))
			require.NoError(t, err)
			require.EqualValues(t, 1, m.Permits)
			require.Equal(t, format, m.Format)
			require.EqualValues(t, -1, w.value())
			w.available(0)
			require.Equal(t, 8503*time.Millisecond, java.ask(1), "the wait is that of the oldest grant")
			require.Zero(t, w.value())
			used, _ := w.used()
			require.EqualValues(t, 3, used)
			w.at(2500 * time.Millisecond)
			require.EqualValues(t, -1, w.value(), "planted again")
			require.NoError(t, w.l.Release(w.ctx, 1))
			wg.Wait()
			w.rejected(1, 10*time.Second-w.elapsed())
			used, _ = w.used()
			require.EqualValues(t, 3, used)
			require.Zero(t, w.value())
		}, WithMemberFormat(format))
	}
}
