package ratelimiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/wire"
	"github.com/redis/go-redis/v9"
)

// This file has what the tests in real time share.

// abreast runs the subtests at the same time, since mostly they wait, each on a server of its own.
func abreast(t *testing.T, tests map[string]func(t *testing.T)) {
	t.Helper()
	var wg sync.WaitGroup
	for name, test := range tests {
		wg.Go(func() { t.Run(name, test) })
	}
	wg.Wait()
}

// soon polls until ok returns true. Unlike require.Eventually it makes no goroutine, because some tests count
// them.
func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within ten seconds: " + what)
		}
	}
}

// inTime returns what comes out of c.
func inTime[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(20 * time.Second):
		t.Fatal("nothing within twenty seconds")
	}
	return v
}

// A watch counts the scripts that a redis client sends, and those that fail.
type watch struct {
	scriptHook
	sent, failed atomic.Int64
	cure         atomic.Pointer[func()] // called once, after a failure and before the caller learns of it
}

func (w *watch) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return next(ctx, cmd)
		}
		w.sent.Add(1)
		err := next(ctx, cmd)
		if err != nil && !redis.HasErrorPrefix(err, "NOSCRIPT") {
			w.failed.Add(1)
			if cure := w.cure.Swap(nil); cure != nil {
				(*cure)()
			}
		}
		return err
	}
}

func watched(rdb redis.UniversalClient) *watch {
	w := &watch{}
	rdb.AddHook(w)
	return w
}

// accounts returns what is wrong with a limiter of which exactly granted permits should be in use, or nil.
func accounts(rdb redis.UniversalClient, l *RateLimiter, rate, granted int64) error {
	ctx, used, wires := context.Background(), int64(0), int64(0)
	members, err := rdb.ZRangeWithScores(ctx, l.redis.Keys.Permits[Overall], 0, -1).Result()
	for _, z := range members {
		m, bad := wire.ParseMember([]byte(z.Member.(string)))
		err = errors.Join(err, bad)
		if z.Score == 0 { // a tripwire, because of which value is one less
			wires++
		} else {
			used += int64(m.Permits)
		}
	}
	value, lost := rdb.Get(ctx, l.redis.Keys.Value[Overall]).Int64()
	if err = errors.Join(err, lost); err == nil && (used != granted || value+wires != rate-granted) {
		err = fmt.Errorf("granted %d of %d, in the set %d, left %d", granted, rate, used, value)
	}
	return err
}

// asleep returns how many callers of l have been rejected and wait while nothing is in flight.
func asleep(l *RateLimiter) int {
	return l.handle.Snapshot().Asleep
}

// A lags collects the lags of many events, and those that the machine itself has at the same time: what a sleep
// of a millisecond and a round trip to Redis take without any limiter. A loaded machine stands still for tens
// of milliseconds at times; events at such a moment prove nothing.
type lags struct {
	mu     sync.Mutex
	ours   []lag
	theirs [4][]lag // lags of goroutines that measure the machine
}

type lag struct{ due, done time.Time }

func (g *lags) add(due, done time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ours = append(g.ours, lag{due, done})
}

// control measures the machine until stop is called.
func (g *lags) control(t *testing.T) (stop func()) {
	var (
		wg       sync.WaitGroup
		rdb      = redistest.Client(t)
		ctx, end = context.WithCancel(context.Background())
	)
	for i := range g.theirs {
		wg.Go(func() {
			for ctx.Err() == nil {
				begin := time.Now()
				time.Sleep(time.Millisecond)
				_ = rdb.Ping(context.Background()).Err()
				g.theirs[i] = append(g.theirs[i], lag{begin, time.Now()})
			}
		})
	}
	return func() { end(); wg.Wait() }
}

// still returns how long the machine stood still while e was late, at worst at once and altogether: by how much
// the measurements took longer than usual.
func (g *lags) still(e lag, rule time.Duration) (once, altogether time.Duration) {
	for _, measures := range g.theirs {
		sum := time.Duration(0)
		for _, m := range measures {
			if more := m.done.Sub(m.due) - rule; more > 0 && m.due.Before(e.done) && m.done.After(e.due) {
				once, sum = max(once, more), sum+more
			}
		}
		altogether = max(altogether, sum)
	}
	return once, altogether
}

// require checks that the median of the events is within the bound, beyond the lag of the machine itself: what
// all of them have in common is the limiter's. A long run, on a machine that does nothing else, checks the p99 of
// the events in calm moments as well.
func (g *lags) require(t *testing.T, bound time.Duration) {
	t.Helper()
	p := func(of []time.Duration, n int) time.Duration {
		slices.Sort(of)
		return of[(len(of)-1)*n/100].Round(10 * time.Microsecond)
	}
	var took, late, beyond, calm []time.Duration
	for _, m := range slices.Concat(g.theirs[:]...) {
		took = append(took, m.done.Sub(m.due))
	}
	rule := p(took, 50)
	for _, e := range g.ours {
		l := e.done.Sub(e.due)
		once, altogether := g.still(e, rule)
		late, beyond = append(late, l), append(beyond, l-altogether)
		if once < 3*time.Millisecond {
			calm = append(calm, l-altogether)
		}
	}
	t.Logf("%d events are late by p50 %v, p99 %v, largest %v; beyond the machine's own lag p50 %v, p99 %v",
		len(late), p(late, 50), p(late, 99), p(late, 100), p(beyond, 50), p(beyond, 99))
	redistest.Measured(t, p(beyond, 50) <= bound, "half of the events are late by more than %v, beyond the machine's own lag", p(beyond, 50))
	if redistest.Long() && len(calm) >= len(late)/4 {
		t.Logf("of these in calm moments %d: p99 %v, largest %v", len(calm), p(calm, 99), p(calm, 100))
		redistest.Measured(t, p(calm, 99) <= bound, "one event in a hundred is late by more than %v in calm moments", p(calm, 99))
	}
}
