// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A listener collects the events of a Client.
type listener []Event

func (l *listener) hook() Option {
	return WithHook(Hook{Event: func(e Event) { *l = append(*l, e) }})
}

// TestMixedLayoutsAreReported checks that a Client which meets grants of Redisson 3.16.4 to 3.16.8 beside its own layout reports
// them, and one with WithRedisson316 grants in another layout: once for each limiter, whatever call meets them.
func TestMixedLayoutsAreReported(t *testing.T) {
	for _, long := range []bool{false, true} {
		for name, call := range map[string]func(w *world){
			"granted": func(w *world) { require.True(w.t, w.try(8).Granted) },
			"peek": func(w *world) {
				require.True(w.t, must(w.l.Peek(w.ctx, 8))(w.t).Granted)
			},
			"waits": func(w *world) {
				require.NoError(w.t, w.l.Acquire(w.ctx, 10))
			},
			"list": func(w *world) {
				other := w.client.RateLimiter(redistest.Key(w.t))
				require.NoError(w.t, other.SetRate(w.ctx, overall(10, time.Second)))
				require.True(w.t, must(w.client.TryAcquireAll(w.ctx, 0, Demand{Limiter: other, Permits: 1}, Demand{Limiter: w.l, Permits: 8}))(w.t).Granted)
			},
		} {
			t.Run(fmt.Sprint(name, long), func(t *testing.T) {
				var heard listener
				opts := []Option{heard.hook()}
				if long {
					opts = append(opts, WithRedisson316())
				}
				inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
					write := func(id byte) {
						member := string(redisson.Member(!long, redisson.RandomID().Run(int(id)), 2))
						require.NoError(t, w.rdb.ZAdd(w.ctx, w.permitsKey(), redis.Z{Score: float64(time.Now().UnixMilli()), Member: member}).Err())
						require.NoError(t, w.rdb.IncrBy(w.ctx, w.valueKey(), -2).Err())
					}
					require.True(t, w.try(1).Granted)
					require.Empty(t, heard)
					write(0)
					w.at(1500 * time.Millisecond)
					call(w)
					synctest.Wait()
					require.Len(t, heard, 1)
					require.Equal(t, LayoutsMixed, heard[0].Kind)
					require.Equal(t, w.l.Name(), heard[0].Limiter)
					require.False(t, heard[0].Time.Before(w.epoch.Add(1500*time.Millisecond)))
					require.ErrorContains(t, heard[0].Err, "WithRedisson316")
					require.ErrorContains(t, heard[0].Err, "3.16.4 to 3.16.8")
					require.Equal(t, long, strings.Contains(heard[0].Err.Error(), "make this one without"))

					w.at(4 * time.Second)
					require.True(t, w.try(1).Granted)
					write(1)
					w.at(6 * time.Second)
					call(w)
					require.Len(t, heard, 1, "once")
				}, opts...)
			})
		}
	}
}

// TestMixedLayoutsOfManyLimiters checks that a Client reports no more than a hundred limiters.
func TestMixedLayoutsOfManyLimiters(t *testing.T) {
	var heard listener
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		beside := w.another(WithRedisson316()).client
		for i := range 120 {
			name := fmt.Sprint(redistest.Key(t), i)
			require.NoError(t, beside.RateLimiter(name).SetRate(w.ctx, overall(10, time.Minute)))
			require.True(t, must(beside.RateLimiter(name).TryAcquire(w.ctx, 8, 0))(t))
			require.False(t, must(w.client.RateLimiter(name).TryAcquire(w.ctx, 8, 0))(t))
		}
		require.Len(t, heard, 100)
	}, heard.hook())
}

// TestMixedLayoutsInAJoint has calls of thirty limiters travel in one command, half of which meet grants of another layout. It checks
// that each of these limiters is reported, and no other.
func TestMixedLayoutsInAJoint(t *testing.T) {
	t.Run("in use", func(t *testing.T) { mixedInAJoint(t, 0) })
	t.Run("expired", func(t *testing.T) { mixedInAJoint(t, 90*time.Second) })
}

// mixedInAJoint makes the calls so long after the grants that they meet, which are in use for a minute.
func mixedInAJoint(t *testing.T, after time.Duration) {
	var mu sync.Mutex
	want, heard := map[string]int{}, map[string]int{}
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		cutter := &redistest.Cutter{Delay: time.Millisecond} // the others wait behind the first, and leave together
		client := newWorld(t, redistest.Peer(t, w.rdb, cutter.Option), WithHook(Hook{Event: func(e Event) {
			mu.Lock()
			defer mu.Unlock()
			heard[e.Limiter]++
		}})).client
		defer client.Close()
		beside := w.another(WithRedisson316()).client
		var all []*RateLimiter
		for i := range 30 {
			l := client.RateLimiter(fmt.Sprint(redistest.Key(t), i))
			require.NoError(t, l.SetRate(w.ctx, overall(10, time.Minute)))
			if i%2 == 0 {
				require.True(t, must(beside.RateLimiter(l.Name()).TryAcquire(w.ctx, 8, 0))(t))
				want[l.Name()] = 1
			}
			all = append(all, l)
		}
		time.Sleep(after)
		joints := 0
		for range 3 {
			cutter.CutAt(math.MaxInt, func(requests [][]string) bool {
				return strings.HasPrefix(requests[0][0], "eval") && len(requests[0]) > 40 // of ten limiters or more
			})
			var calls sync.WaitGroup
			for i, l := range all {
				calls.Go(func() {
					ok, err := l.TryAcquire(w.ctx, 3, 0)
					assert.NoError(t, err)
					assert.Equal(t, after > 0 || i%2 == 1, ok)
				})
			}
			calls.Wait()
			if _, matched := cutter.Cut(); matched {
				joints++
			}
		}
		require.Positive(t, joints)
		require.Equal(t, want, heard)
	})
}
