// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A panicker is a hook that panics.
type panicker struct {
	redistest.Passing
	before, after int // so many more times
}

func (p *panicker) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if p.before > 0 {
			p.before--
			panic("boom")
		}
		err := next(ctx, cmd)
		if p.after > 0 {
			p.after--
			panic("boom")
		}
		return err
	}
}

// A panic in a hook of the user's client is an error of the call. The process and the limiter go on.
func TestPanicInAHook(t *testing.T) {
	onEach(t, every(), func(t *testing.T, rdb *redis.Client, kind string, a Algorithm) {
		p := &panicker{}
		rdb.AddHook(p)
		l := shared(t, rdb, a)
		redistest.Must(l.Peek(t.Context(), 1))(t)
		endless, endable := context.WithoutCancel(t.Context()), t.Context()
		for _, ctx := range []context.Context{endless, endable} {
			for i, q := range []panicker{{before: 1}, {after: 1}} {
				l := l.For(fmt.Sprint(i, ctx.Done() == nil)) // which has rejected nothing
				*p = q
				_, err := l.Allow(ctx, 1)
				require.ErrorIs(t, err, ratelimiter.ErrUnavailable, kind)
				require.ErrorContains(t, err, "panicked: boom", kind)
				require.Zero(t, *p, "it is not sent again")
			}
			*p = panicker{after: 1}
			begin := time.Now()
			require.ErrorIs(t, Wait(ctx, l, 1), ratelimiter.ErrUnavailable)
			require.Zero(t, time.Since(begin))
			require.NoError(t, Wait(ctx, l, 1), kind)
		}
		synctest.Wait()
	})
}
