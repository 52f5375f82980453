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
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// What the tests in real time have in common.

// abreast runs the subtests at the same time: mostly they wait, each on a server of its own.
func abreast(t *testing.T, tests map[string]func(t *testing.T)) {
	t.Helper()
	var wg sync.WaitGroup
	for name, test := range tests {
		wg.Go(func() { t.Run(name, test) })
	}
	wg.Wait()
}

// soon polls until ok. It makes no goroutine, as require.Eventually does: some tests count them.
func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within ten seconds: " + what)
		}
	}
}

// inTime is what comes out of c.
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
	cure         atomic.Pointer[func()] // called once, after a failure and before anybody knows of it
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

// accounts says what is wrong with a limiter of which exactly granted permits should be in use; nil
// when nothing is.
func accounts(rdb redis.UniversalClient, l *RateLimiter, rate, granted int64) error {
	ctx, used, wires := context.Background(), int64(0), int64(0)
	members, err := rdb.ZRangeWithScores(ctx, l.redis.Keys.Permits[Overall], 0, -1).Result()
	for _, z := range members {
		m, bad := ParseMember([]byte(z.Member.(string)))
		err = errors.Join(err, bad)
		if z.Score == 0 { // a tripwire, for which value is one less
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

// asleep is how many callers of l have been refused and wait, and nothing is in flight.
func asleep(l *RateLimiter) int {
	return l.handle.Snapshot().Asleep
}

// The lags of many events, and those that the machine itself has meanwhile: what a sleep of a
// millisecond and a round trip to Redis take when no limiter has a part in it. A loaded machine stands
// still for tens of milliseconds at times; what happens then says nothing.
type lags struct {
	mu     sync.Mutex
	ours   []lag
	theirs [4][]lag // of goroutines that measure
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

// still is how long the machine stood still while e was late, at worst at once and altogether: by how
// much the measures took longer than they do as a rule.
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

// require holds the p99 of the events in calm moments to the bound, beyond the machine's own lag. When
// these are few the machine is too loaded to say that; then the median of all.
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
	if len(calm) < len(late)/4 {
		require.LessOrEqual(t, p(beyond, 50), bound)
		return
	}
	t.Logf("of these in calm moments %d: p99 %v, largest %v", len(calm), p(calm, 99), p(calm, 100))
	require.LessOrEqual(t, p(calm, 99), bound)
}
