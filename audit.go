package ratelimiter

import (
	"context"
	"errors"
	"time"
)

// auditEvery is how often lost permits are looked for: once an interval, but no more often than every
// 50 ms, and every minute where the interval is longer, since a rate set elsewhere may have made it
// shorter.
func auditEvery(interval time.Duration) time.Duration {
	return min(max(interval, 50*time.Millisecond), time.Minute)
}

// audit looks for permits that are neither left nor in use and gives them back, in calls of bounded
// work, and answers value + used − rate as it was. A set that turns over faster than it can be read
// is left for another time.
func (l *RateLimiter) audit(ctx context.Context, typ RateType) (balance int64, err error) {
	for range 3 {
		var t tally
		for {
			next, done, balance, err := l.runAudit(ctx, typ, t)
			var other *otherTypeError
			if errors.As(err, &other) || errors.Is(err, ErrNotInitialized) {
				return 0, nil // changed meanwhile; the next call will be told
			}
			if err != nil || done {
				return balance, err
			}
			if next.members == 0 {
				break
			}
			t = next
		}
	}
	return 0, nil
}
