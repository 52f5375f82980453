package redisson

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/redis/go-redis/v9"
)

// Expire gives the limiter's keys a TTL of ttl ms, or has them expire at the instant at, in ms since the epoch; the
// other of the two is empty. It reports whether any key took it, under the condition of that flag.
func (l *Limiter) Expire(ctx context.Context, ttl, at any, flag string) (bool, error) {
	n, err := l.run(ctx, l.Scripts.Expire, l.Keys.All(permit.Overall), ttl, at, flag)
	return err == nil && n[0] == 1, err
}

// ClearExpire takes the TTL from the limiter's keys, and reports whether any had one.
func (l *Limiter) ClearExpire(ctx context.Context) (bool, error) {
	n, err := l.run(ctx, l.Scripts.ClearExpire, l.Keys.All(permit.Overall))
	return err == nil && n[0] == 1, err
}

// TTL returns how long the limiter still lives; -1 and -2 as Redis has them.
func (l *Limiter) TTL(ctx context.Context) (time.Duration, error) {
	if err := l.ready(ctx); err != nil {
		return 0, err
	}
	// go-redis returns -1 and -2 as they are.
	cmd := redis.NewDurationCmd(ctx, time.Millisecond, "pttl", l.Keys.Hash)
	return command(ctx, l, "ttl", cmd, cmd.Result)
}

// ExpireTime returns when the limiter expires; the zero time when it does not, or does not exist.
func (l *Limiter) ExpireTime(ctx context.Context) (time.Time, error) {
	n, err := l.run(ctx, l.Scripts.ExpireTime, []string{l.Keys.Hash})
	if err != nil || n[0] < 0 {
		return time.Time{}, err
	}
	return time.UnixMilli(n[0]), nil
}
