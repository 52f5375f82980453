package httplimit

import (
	"context"
	"time"
)

type maxWaitKey struct{}

// ContextWithMaxWait returns a context whose requests wait for permits no longer than d, beside [WithMaxWait]. Unlike a
// deadline, it does not end a response that is still being read. 0 rejects what cannot be sent at once; a negative d
// counts as 0.
func ContextWithMaxWait(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, maxWaitKey{}, max(d, 0))
}

// boundByContext returns the smaller of limit and the bound of ContextWithMaxWait.
func boundByContext(ctx context.Context, limit time.Duration) time.Duration {
	if d, ok := ctx.Value(maxWaitKey{}).(time.Duration); ok {
		return min(limit, d)
	}
	return limit
}
