// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"context"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redistest"
)

// TestLostReplies checks that with thousands of lost replies no permit of any limiter is lost or taken twice, and that a list
// which one limiter rejects keeps no permits of the others. On a cluster go-redis has a loop of its own that sends again, and
// the limiters of a list are called in turn.
func TestLostReplies(t *testing.T) {
	for name, c := range map[string]struct {
		start       func(t testing.TB, clients int) *lossy
		clients     int
		long        int64
		lose, lists int
	}{
		"one server": {onServer, 4, 3000, redistest.Cases(4000, 10_000), 800},
		"a cluster":  {onCluster, 2, 500, redistest.Cases(1500, 4000), 0}, // no script has keys of several slots
	} {
		t.Run(name, func(t *testing.T) {
			w := c.start(t, c.clients).fill(c.long)
			losers := w.run(newTwinSeed(t).run, c.lose, true, w.ours())
			require.GreaterOrEqual(t, losers.lists, c.lists)
			redistest.Measured(t, losers.slowest < lossyShort, "the machine is too slow: what was granted first would be back after %v", losers.slowest)
			w.requireAtMostOnce()
		})
	}
}

// TestLostRepliesToTheEnd checks that a try that never gets a reply returns an error, and that it takes its permits
// once, however often it was sent, and for one interval.
func TestLostRepliesToTheEnd(t *testing.T) {
	t.Parallel()
	w := onServer(t, 4).fill(200)
	var warm, callers sync.WaitGroup
	warm.Add(len(w.ids) * 3 * len(w.groups))
	for _, group := range w.groups {
		for _, l := range group {
			for i, id := range w.ids {
				callers.Go(func() {
					// Each try has a Client of its own, because a Client that knows that Redis is down sends nothing.
					c := clienttest.New(t, w.through[i], ratelimiter.WithClientID(id))
					defer c.Close()
					limiter := c.RateLimiter(l.name)
					assert.NoError(t, limiter.Acquire(t.Context(), 1)) // loads the script, and learns the type
					warm.Done()
					warm.Wait()
					w.proxies[0].Judge(func(words []string) (f redistest.Fault) {
						if strings.HasPrefix(words[0], "eval") {
							f.Lose = redistest.LoseReply
						}
						return f
					})
					r, err := limiter.Allow(t.Context(), 3)
					assert.ErrorIs(t, err, ratelimiter.ErrUnavailable)
					assert.ErrorIs(t, err, io.EOF, "the cause")
					assert.False(t, r.Granted)
					l.told[i].Add(4)
				})
			}
		}
	}
	callers.Wait()
	require.GreaterOrEqual(t, w.lost(), 4*len(w.ids)*3*len(w.groups))
	w.proxies[0].Judge(nil)
	w.requireAtMostOnce()
}

// TestLostRepliesOfRedisson checks that the same run finds the fault of Redisson's script: go-redis sends it again
// like any command, and permits are lost for good.
func TestLostRepliesOfRedisson(t *testing.T) {
	t.Parallel()
	j := newJar(t, newestListed())
	w := onServer(t, 4).fill(3000)
	require.NoError(t, j.load(t.Context(), w.past))
	w.run(newTwinSeed(t).run, 800, false, func(ctx context.Context, rng *rand.Rand, client int, of []*lossyLimiter, permits []int64) (bool, error) {
		return j.tryAcquire(ctx, w.through[client], of[0].name, w.ids[client], permits[0], rng.Uint64())
	})
	drift := int64(0)
	for _, h := range w.holdings() {
		value, used := w.state(h)
		drift += h.rate.Permits - value - used
	}
	require.Positive(t, drift, "permits that are neither left nor in use")
}

// tryAcquire runs the jar's script, as a program would that had copied it.
func (j *jar) tryAcquire(ctx context.Context, rdb redis.UniversalClient, name, id string, permits int64, bits uint64) (bool, error) {
	op := twinOp{name: "tryAcquire", permits: permits}
	words := j.send(ctx, rdb.Pipeline(), op, name, id, time.Now().UnixMilli(), j.random(bits)).cmd.Args()
	cmd := rdb.Do(ctx, words...)
	switch answer := (sent{op: op, cmd: cmd}).answer(); answer.word {
	case granted:
		return true, nil
	case rejected:
		return false, nil
	default:
		return false, cmd.Err()
	}
}
