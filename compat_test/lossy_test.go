// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redistest"
)

// A loser draws which replies of scripts are lost: one in so many, and now and then a request. A seed repeats the
// order of the draws, but not which request gets which draw.
type loser struct {
	mu    sync.Mutex
	rng   *rand.Rand
	share float64
	most  int // losses of one request, however often it is sent; any further attempt gets its reply
	lost  map[string]int

	doubles bool // nothing is lost; requests reach Redis twice
}

func newLoser(seed uint64, share float64, most int) *loser {
	return &loser{rng: rand.New(rand.NewPCG(seed, 1)), share: share, most: most, lost: map[string]int{}}
}

func (l *loser) judge(words []string) (f redistest.Fault) {
	if !strings.HasPrefix(strings.ToLower(words[0]), "eval") {
		return f
	}
	// Our acquire sets a flag when it is sent again, and keeps its member. Everything else is repeated byte for byte.
	request := strings.Join(words, "\x00")
	if len(words) > 9 && (len(words[9]) == 20 || len(words[9]) == 21) && words[2] == "3" {
		request = words[9]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost[request] >= l.most || l.rng.Float64() >= l.share {
		return f
	}
	if l.doubles {
		f.Twice = true
		return f
	}
	l.lost[request]++
	f.Lose, f.Reset = redistest.LoseReply, l.rng.IntN(2) == 0
	if l.rng.IntN(20) == 0 {
		f.Lose = redistest.LoseRequest
	}
	return f
}

// A lossy is a set of limiters on a Redis whose replies are lost, with what the callers were told.
type lossy struct {
	testing.TB
	past     redis.UniversalClient   // no reply is lost here
	through  []redis.UniversalClient // one for each client
	ids      []string
	proxies  []*redistest.Proxy
	limiters []*lossyLimiter
}

type lossyLimiter struct {
	name  string
	rate  ratelimiter.Rate
	timed bool           // callers give up; a grant on its way to such a caller is refunded
	told  []atomic.Int64 // permits, by client
}

// Long grants stay, so that they can be counted. The short interval is longer than the time within which a call is
// sent again: otherwise what its first attempt was granted would be back before the second attempt.
const (
	lossyLong  = time.Hour
	lossyShort = 600 * time.Millisecond
	lossyMost  = 2
)

// newLossy makes two limiters of each kind. The permits of the long ones are used up in the course of the run, so
// that rejections are lost as well.
func newLossy(t testing.TB, past redis.UniversalClient, through []redis.UniversalClient, proxies []*redistest.Proxy, long int64) *lossy {
	t.Helper()
	w := &lossy{TB: t, past: past, through: through, proxies: proxies}
	for i := range through {
		w.ids = append(w.ids, fmt.Sprintf("client-%d", i))
	}
	name := redistest.Key(t)
	for i := range 16 {
		l := &lossyLimiter{name: fmt.Sprintf("%s%d", name, i), timed: i&4 != 0}
		l.told = make([]atomic.Int64, len(through))
		l.rate = ratelimiter.Rate{Type: ratelimiter.RateType(i & 1), Permits: 90, Interval: lossyShort}
		if i&2 != 0 {
			l.rate.Permits, l.rate.Interval = long, lossyLong
			if l.rate.Type == ratelimiter.PerClient {
				l.rate.Permits = long / int64(len(through))
			}
		}
		require.True(t, redistest.Must(clienttest.New(t, past).RateLimiter(l.name).TrySetRate(t.Context(), l.rate))(t))
		w.limiters = append(w.limiters, l)
	}
	return w
}

func (w *lossy) lost() (n int) {
	for _, p := range w.proxies {
		n += p.Counts().LostReplies
	}
	return n
}

// A taker acquires from one limiter as one client.
type taker func(ctx context.Context, rng *rand.Rand, l *lossyLimiter, client int, permits int64) (bool, error)

// run runs two callers of each client on each limiter until the given number of replies are lost.
func (w *lossy) run(seed uint64, goal int, losers *loser, take taker) {
	w.Helper()
	for _, p := range w.proxies {
		p.Judge(losers.judge)
	}
	ctx, cancel := context.WithTimeout(w.Context(), 2*time.Minute)
	defer cancel()
	var callers sync.WaitGroup
	var faults atomic.Int64
	for i := range 2 * len(w.through) * len(w.limiters) {
		client, l := i/2%len(w.through), w.limiters[i/2/len(w.through)]
		rng := rand.New(rand.NewPCG(seed, uint64(i)+2))
		callers.Go(func() {
			for w.lost() < goal && faults.Load() < 10 {
				permits, began := 1+rng.Int64N(5), time.Now()
				switch granted, err := take(ctx, rng, l, client, permits); {
				case err == nil && granted:
					l.told[client].Add(permits)
				case l.timed && errors.Is(err, ratelimiter.ErrUnavailable): // its time was up first
				case err != nil: // the last attempt always gets a reply
					faults.Add(1)
					w.Errorf("%s: after %v: %v", l.name, time.Since(began), err)
				}
			}
		})
	}
	callers.Wait()
	for _, p := range w.proxies {
		p.Judge(nil)
	}
}

// A holding is the permits of one limiter, and of one client where each client has its own.
type holding struct {
	*lossyLimiter
	mine           *ratelimiter.RateLimiter // not through the proxies
	value, permits string                   // keys
	toldSum        int64
}

func (w *lossy) holdings() (all []holding) {
	w.Helper()
	for _, l := range w.limiters {
		for client, id := range w.ids {
			mine := clienttest.New(w, w.past, ratelimiter.WithClientID(id)).RateLimiter(l.name)
			if l.rate.Type == ratelimiter.PerClient || client == 0 {
				s := redistest.Must(mine.Inspect(w.Context()))(w)
				all = append(all, holding{lossyLimiter: l, mine: mine, value: s.ValueKey, permits: s.PermitsKey})
			}
			h := &all[len(all)-1]
			h.toldSum += l.told[client].Load()
		}
	}
	return all
}

// state returns value and the permits in the set, both as they are at one instant.
func (w *lossy) state(h holding) (value, used int64) {
	w.Helper()
	var get *redis.StringCmd
	var set *redis.StringSliceCmd
	_, err := w.past.TxPipelined(w.Context(), func(pipe redis.Pipeliner) error {
		get, set = pipe.Get(w.Context(), h.value), pipe.ZRange(w.Context(), h.permits, 0, -1)
		return nil
	})
	require.NoError(w, err, h.value)
	value = redistest.Must(get.Int64())(w)
	for _, m := range set.Val() {
		used += int64(binary.LittleEndian.Uint32([]byte(m[len(m)-4:])))
	}
	return value, used
}

// eventually does what require.Eventually does, but in the goroutine of its caller, for conditions that may call FailNow.
func eventually(within time.Duration, done func() bool) bool {
	for until := time.Now().Add(within); ; time.Sleep(2 * time.Millisecond) {
		if done() {
			return true
		}
		if time.Now().After(until) {
			return false
		}
	}
}
