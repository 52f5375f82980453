// SPDX-License-Identifier: Apache-2.0

package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// A watch is a hook that counts commands with several calls of so many keys, and the calls in them.
type watch struct {
	redistest.Passing
	keys          int
	joints, calls atomic.Int64
}

func (w *watch) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if args := cmd.Args(); len(args) > 3 {
				if n, _ := args[2].(int); n > w.keys {
					w.joints.Add(1)
					w.calls.Add(int64(n / w.keys))
				}
			}
		}
		return next(ctx, cmds)
	}
}

// valueKey returns the key of the permits that a limiter has left.
func valueKey(name string) string {
	if strings.Contains(name, "{") {
		return name + ":value"
	}
	return "{" + name + "}:value"
}

// traffic is what callers of many limiters were told.
type traffic struct {
	granted [64]atomic.Int64
	errs    [64][]error // of each limiter
}

// names returns the names of 64 limiters, most of which are odd unless they are to be plain.
func names(plain bool) (list []string) {
	for i := range 64 {
		name := fmt.Sprint("many-", i)
		if !plain {
			name += []string{"\x00\xff{\n}\r\n", strings.Repeat("x", 4096), "') redis.call('FLUSHALL') --", "KEYS[1] %d @body $1 $2", "限流", "{a}b", "", ""}[i%8]
		}
		list = append(list, name)
	}
	return list
}

// drive has two callers of each of 64 limiters call for a time, in which disturb runs.
func drive(t *testing.T, c *ratelimiter.Client, names []string, d time.Duration, disturb func()) *traffic {
	var all traffic
	var wg sync.WaitGroup
	var mu sync.Mutex
	until := time.Now().Add(d)
	for i := range 128 {
		l := c.RateLimiter(names[i/2])
		wg.Go(func() {
			for time.Now().Before(until) {
				ok, err := l.TryAcquire(context.Background(), 1, 0)
				if err != nil {
					mu.Lock()
					all.errs[i/2] = append(all.errs[i/2], err)
					mu.Unlock()
					time.Sleep(time.Millisecond)
				} else if ok {
					all.granted[i/2].Add(1)
				}
			}
		})
	}
	if disturb != nil {
		disturb()
	}
	wg.Wait()
	return &all
}

// TestManyLimitersTogether runs calls of many limiters in shared commands on a real server, and disturbs them. An error that is
// about one limiter is that of its callers alone, and no limiter has other permits in use than its callers were told of.
func TestManyLimitersTogether(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Since(t, 6, 2, "HELLO without arguments")
	redistest.Repeats(t)
	const denied = 7
	every := func(d time.Duration, n int, f func()) func() {
		return func() {
			for range n {
				time.Sleep(d)
				f()
			}
		}
	}
	for name, c := range map[string]struct {
		disturb func(t *testing.T, rdb *redis.Client)
		before  func(t *testing.T, rdb *redis.Client)
		of      func(t *testing.T, limiter int, errs []error)
		lost    bool // permits may be in use that no caller was told of
		apart   bool // the calls travel together for a part of the time at most
	}{
		"nothing": {},
		"a key of another type": {
			before: func(t *testing.T, rdb *redis.Client) {
				require.NoError(t, rdb.RPush(t.Context(), "{many-7}:value", "x").Err())
			},
			of: func(t *testing.T, limiter int, errs []error) {
				require.Equal(t, limiter == denied, len(errs) > 0, errs)
				for _, err := range errs {
					require.ErrorContains(t, err, "WRONGTYPE")
					require.NotErrorIs(t, err, ratelimiter.ErrUnavailable)
				}
			},
		},
		"a malformed hash": {
			before: func(t *testing.T, rdb *redis.Client) {
				require.NoError(t, rdb.HSet(t.Context(), "many-7", "rate", "x").Err())
			},
			of: func(t *testing.T, limiter int, errs []error) {
				require.Equal(t, limiter == denied, len(errs) > 0, errs)
				for _, err := range errs {
					require.ErrorIs(t, err, ratelimiter.ErrMalformed)
				}
			},
		},
		"a limiter that an ACL denies": {
			before: func(t *testing.T, rdb *redis.Client) {
				args := []any{"ACL", "SETUSER", "default", "resetkeys"}
				for i := range 64 {
					if i != denied {
						args = append(args, fmt.Sprint("~many-", i), fmt.Sprintf("~{many-%d}*", i))
					}
				}
				require.NoError(t, rdb.Do(t.Context(), args...).Err())
			},
			of: func(t *testing.T, limiter int, errs []error) {
				require.Equal(t, limiter == denied, len(errs) > 0, errs)
				for _, err := range errs {
					require.ErrorIs(t, err, ratelimiter.ErrDenied)
					require.ErrorContains(t, err, `"many-7"`)
				}
			},
			apart: true,
		},
		"scripts that are forgotten": {
			disturb: func(t *testing.T, rdb *redis.Client) {
				every(5*time.Millisecond, 100, func() { rdb.ScriptFlush(t.Context()) })()
			},
		},
		"memory that is full": {
			disturb: func(t *testing.T, rdb *redis.Client) {
				every(50*time.Millisecond, 4, func() {
					rdb.ConfigSet(t.Context(), "maxmemory", "1")
					time.Sleep(20 * time.Millisecond)
					rdb.ConfigSet(t.Context(), "maxmemory", "0")
				})()
			},
			of: func(t *testing.T, _ int, errs []error) {
				for _, err := range errs {
					require.ErrorContains(t, err, "OOM")
					require.ErrorIs(t, err, ratelimiter.ErrUnavailable)
				}
			},
		},
		"a server that becomes a replica": {
			disturb: func(t *testing.T, rdb *redis.Client) {
				time.Sleep(50 * time.Millisecond)
				rdb.ReplicaOf(t.Context(), "127.0.0.1", "1")
				time.Sleep(50 * time.Millisecond)
				rdb.ReplicaOf(t.Context(), "NO", "ONE")
			},
			of: func(t *testing.T, _ int, errs []error) {
				for _, err := range errs {
					require.ErrorIs(t, err, ratelimiter.ErrUnavailable)
				}
			},
		},
		"connections that break": {
			disturb: func(t *testing.T, rdb *redis.Client) {
				every(20*time.Millisecond, 20, func() { rdb.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes") })()
			},
			of:   func(*testing.T, int, []error) {},
			lost: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t)
			admin, rdb, w := s.Client(t), s.Client(t), &watch{keys: 3}
			rdb.AddHook(w)
			client := redistest.Must(ratelimiter.New(rdb))(t)
			defer client.Close()
			list := names(c.apart)
			for i := range 64 {
				redistest.Must(client.RateLimiter(list[i]).TrySetRate(t.Context(), ratelimiter.Rate{Permits: 1e9, Interval: time.Hour}))(t)
			}
			if c.before != nil {
				c.before(t, admin)
			}
			all := drive(t, client, list, 500*time.Millisecond, func() {
				if c.disturb != nil {
					c.disturb(t, admin)
				}
			})
			require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "default", "allkeys").Err())
			if !c.apart {
				require.Greater(t, w.joints.Load(), int64(10))
				require.Greater(t, w.calls.Load(), 3*w.joints.Load())
			}
			for i := range 64 {
				if c.of != nil {
					c.of(t, i, all.errs[i])
				} else {
					require.Empty(t, all.errs[i])
				}
				if i == denied && c.before != nil {
					require.Zero(t, all.granted[i].Load())
					continue
				}
				if !c.lost { // a limiter may have met broken connections alone
					require.NotZero(t, all.granted[i].Load())
				}
				value, err := admin.Get(t.Context(), valueKey(list[i])).Result()
				if c.lost && errors.Is(err, redis.Nil) { // none of its calls arrived
					value, err = "1000000000", nil
				}
				require.NoError(t, err)
				used := 1_000_000_000 - redistest.Must(strconv.ParseInt(value, 10, 64))(t)
				if c.lost {
					require.GreaterOrEqual(t, used, all.granted[i].Load())
					require.LessOrEqual(t, used, all.granted[i].Load()+int64(2*len(all.errs[i])))
				} else {
					require.Equal(t, all.granted[i].Load(), used)
				}
			}
		})
	}
}
