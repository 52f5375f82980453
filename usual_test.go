package ratelimiter

import (
	"context"
	"encoding/binary"
	"strconv"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestSecondTripIsRare checks that no call of a limiter in its usual state, of those that acquire is made for, is left to
// acquire_rest.
func TestSecondTripIsRare(t *testing.T) {
	const calls = 300
	for name, c := range map[string]struct {
		rate    permit.Rate
		ttl     time.Duration
		expired int           // members that have expired before the first call
		between time.Duration // from call to call
		idle    time.Duration // in the middle
		run     permit.Run
	}{
		"granted":           {rate: permit.Rate{Permits: 1000, Interval: time.Second}, run: permit.Run{Permits: 1, Count: 1}},
		"most rejected":     {rate: permit.Rate{Permits: 10, Interval: time.Second}, between: time.Millisecond, run: permit.Run{Permits: 1, Count: 1}},
		"partly":            {rate: permit.Rate{Permits: 10, Interval: time.Second}, between: 30 * time.Millisecond, run: permit.Run{Permits: 3, Count: 4}},
		"PER_CLIENT":        {rate: permit.Rate{Type: permit.PerClient, Permits: 10, Interval: time.Second}, between: 10 * time.Millisecond, run: permit.Run{Permits: 1, Count: 1}},
		"large requests":    {rate: permit.Rate{Permits: 1000, Interval: time.Second}, expired: 300, between: 7 * time.Millisecond, run: permit.Run{Permits: 300, Count: 1}},
		"KeepAlive":         {rate: permit.Rate{Permits: 10, Interval: time.Second, KeepAlive: 3 * time.Hour}, between: 20 * time.Millisecond, run: permit.Run{Permits: 1, Count: 2}},
		"a TTL":             {rate: permit.Rate{Permits: 10, Interval: time.Second}, ttl: 3 * time.Hour, between: 20 * time.Millisecond, run: permit.Run{Permits: 1, Count: 2}},
		"an idle hour":      {rate: permit.Rate{Permits: 10, Interval: time.Second}, idle: time.Hour, between: 20 * time.Millisecond, run: permit.Run{Permits: 1, Count: 2}},
		"many members":      {rate: permit.Rate{Permits: 200, Interval: time.Second}, between: 3 * time.Millisecond, run: permit.Run{Permits: 1, Count: 1}},
		"1000 have expired": {rate: permit.Rate{Permits: 1000, Interval: time.Second}, expired: 1000, run: permit.Run{Permits: 900, Count: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
				ctx, sent := t.Context(), map[string]int{}
				conn := redisson.NewConn(rdb, redisson.Config{Scripts: &scripts, ClientClock: true, KeyTTL: time.Hour,
					Called: func(c permit.Call) { sent[c.Script]++ }})
				key := redistest.Key(t)
				l := &redisson.Limiter{Conn: conn, Gate: ungated{}, Name: key, Keys: redisson.NewKeys(key, "me")}
				_, err := l.TrySetRate(ctx, c.rate)
				require.NoError(t, err)
				if c.ttl > 0 {
					require.NoError(t, rdb.PExpire(ctx, key, c.ttl).Err())
				}
				typ, old := c.rate.Type, time.Now().Add(-time.Minute).UnixMilli()
				if c.expired > 0 {
					members := make([]redis.Z, c.expired)
					for i := range members {
						members[i] = redis.Z{Score: float64(old), Member: "\x10abc" + strconv.Itoa(1000+i) + "id" + string(binary.LittleEndian.AppendUint32(nil, 1))}
					}
					require.NoError(t, rdb.ZAdd(ctx, l.Keys.Permits[typ], members...).Err())
					require.NoError(t, rdb.Set(ctx, l.Keys.Value[typ], c.rate.Permits-int64(c.expired), 0).Err())
				}
				granted := int64(0)
				for i := range calls {
					b := &permit.Batch{Type: typ, Runs: []permit.Run{c.run}}
					binary.BigEndian.PutUint32(b.ID[12:], uint32(i))
					a, err := l.Acquire(ctx, b)
					require.NoError(t, err)
					require.Equal(t, permit.Done, a.Next)
					granted += a.Granted[0]
					require.Equal(t, a.Granted[0] < c.run.Count, a.Wait > 0)
					time.Sleep(c.between)
					if i == calls/2 {
						time.Sleep(c.idle)
					}
				}
				require.Positive(t, granted)
				require.Equal(t, calls, sent["acquire"])
				require.Zero(t, sent["acquire_rest"])
			})
		})
	}
}

// ungated is a Gate that makes one attempt.
type ungated struct{}

func (ungated) Gated(_ context.Context, _ string, attempt func(replay bool) error) error {
	return attempt(false)
}
