// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"context"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A reply is the text of an error of Redis.
type reply string

func (r reply) Error() string { return string(r) }

// RedisError implements redis.Error.
func (reply) RedisError() {}

// A refusal is a hook that has CLIENT LIST fail, and counts how often it is sent.
type refusal struct {
	redis.Hook
	err  error
	sent int
}

func (*refusal) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*refusal) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (r *refusal) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		last := cmds[len(cmds)-1]
		if args := last.Args(); len(args) < 2 || args[0] != "client" || args[1] != "list" {
			return next(ctx, cmds)
		}
		r.sent++
		last.SetErr(r.err)
		return r.err
	}
}

// TestConnectionsAreAskedForAgain checks that a server which does not allow CLIENT LIST is not asked a second time, and one that
// could not reply is.
func TestConnectionsAreAskedForAgain(t *testing.T) {
	for text, want := range map[string]int{"NOPERM User eve has no permissions": 1, "LOADING Redis is loading the dataset in memory": 2} {
		t.Run(text, func(t *testing.T) {
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
				name, r := redistest.Key(t), &refusal{err: reply(text)}
				c := clienttest.New(t, rdb)
				l := c.RateLimiter(name).WithRate(ratelimiter.Rate{Permits: 10, Interval: time.Minute})
				require.NoError(t, l.Acquire(t.Context(), 1))
				require.NoError(t, c.Close())
				asks := redistest.Peer(t, rdb)
				asks.AddHook(r)
				s := New(asks)
				st := redistest.Must(s.Read(t.Context(), name, ""))(t)
				for range 3 { // the second within originAge
					s.Locate(t.Context(), st)
					require.Empty(t, st.Origins)
					if r.sent == 2 {
						break
					}
					time.Sleep(originAge - time.Second)
				}
				require.Equal(t, want, r.sent)
			})
		})
	}
}
